package grafana_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/dashboards/grafana"
)

var write = flag.Bool("write", false, "write the generated files again")

// TestGenerated compares the checked-in files for import with the generated ones.
func TestGenerated(t *testing.T) {
	files, err := grafana.Files(grafana.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasPrefix(f.Path, "plugins/") {
			continue // covered by TestPlugin, and stored in matrix/dist
		}
		path := filepath.Join("provisioned", filepath.FromSlash(f.Path))
		if *write {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, f.Content, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(f.Content, want) {
			t.Errorf("%s is not what is made now: run make generate (-there +made)\n%s", path, cmp.Diff(string(want), string(f.Content)))
		}
	}
}

// decoded returns all dashboards as JSON, by name.
func decoded(t testing.TB, o grafana.Options) map[string]map[string]any {
	t.Helper()
	all, err := grafana.Dashboards(o)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]any{}
	for _, d := range all {
		var tree map[string]any
		if err := json.Unmarshal(d.JSON, &tree); err != nil {
			t.Fatal(err)
		}
		out[d.Name] = tree
	}
	return out
}

// TestNoWordsForNoValue checks that panels set no text for missing values, since Grafana puts it
// into every empty table cell, and an empty range means silence, which no panel may call health.
func TestNoWordsForNoValue(t *testing.T) {
	all, err := grafana.Dashboards(grafana.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		for _, line := range strings.Split(string(d.JSON), "\n") {
			if _, words, ok := strings.Cut(strings.TrimSpace(line), `"noValue": `); ok && !slices.Contains([]string{`"none"`, `"no data"`, `"nothing stored"`}, strings.TrimSuffix(words, ",")) {
				t.Errorf("%s: %s", d.Name, strings.TrimSpace(line))
			}
		}
	}
}
