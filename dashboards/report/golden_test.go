package report_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden compares a complete document with reviewed HTML and Markdown.
func TestGolden(t *testing.T) {
	t.Parallel()
	r := sample(t, 5)
	for name, write := range map[string]func(*bytes.Buffer) error{
		"report.html": func(b *bytes.Buffer) error { return r.WriteHTML(b) },
		"report.md":   func(b *bytes.Buffer) error { return r.WriteMarkdown(b) },
	} {
		var got bytes.Buffer
		if err := write(&got); err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%s differs (-want +got); -update rewrites the golden file:\n%.4000s", name, diff)
		}
	}
}
