package page_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestUplotIsTheReleasedOne holds the copy that the page is served with against the
// package, which its lock file names by hash.
func TestUplotIsTheReleasedOne(t *testing.T) {
	for name, origin := range map[string]string{
		"uPlot.iife.min.js": "dist/uPlot.iife.min.js", "uPlot.min.css": "dist/uPlot.min.css", "LICENSE": "LICENSE",
	} {
		want, err := os.ReadFile(filepath.Join("testdata/uplot/node_modules/uplot", origin))
		if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") == "" {
			t.Skip("NOT TESTED: uPlot is not installed: make deps")
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("static/uplot", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("static/uplot/%s is not what was released: copy %s of the package", name, origin)
		}
	}
}
