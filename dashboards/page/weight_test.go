package page_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/dashboards/page"
)

// TestPageIsLight holds the size of the page without its data, as it travels compressed,
// and that of the pictures in the README.
func TestPageIsLight(t *testing.T) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	if err := page.WriteReport(zip, &query.Bundle{}); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("the page takes %d bytes", out.Len())
	if out.Len() > 300_000 {
		t.Errorf("the page takes %d bytes compressed, at most 300,000 are meant to", out.Len())
	}
	pictures, err := filepath.Glob("screenshots/*.png")
	if err != nil || len(pictures) == 0 {
		t.Fatalf("no screenshots: %v", err)
	}
	var size int64
	for _, name := range pictures {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > 1_500_000 {
		t.Errorf("the screenshots take %d bytes, at most 1,500,000 are meant to", size)
	}
}
