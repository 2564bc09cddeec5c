package page_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/dashboards/page"
	"github.com/csigscope/csigscope/dashboards/page/pagetest"
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

// TestRampsSurviveColourBlindness holds that severity can be told by lightness alone: it
// rises or falls all along each ramp, far enough to see.
func TestRampsSurviveColourBlindness(t *testing.T) {
	v := pagetest.Visit(t, report(t, bundle(t, 2, 2)), "dark")
	for theme, rising := range map[string]bool{"dark": true, "light": false} {
		light := pagetest.Evaluate[[]float64](v, `Array.from({length: 33}, (_, i) => {
			const [r, g, b] = Color.ramp(%q, i / 32).map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
			const y = 0.2126 * r + 0.7152 * g + 0.0722 * b;
			return y > 0.008856 ? 116 * Math.cbrt(y) - 16 : 903.3 * y;
		})`, theme)
		for i := 1; i < len(light); i++ {
			if (light[i] > light[i-1]) != rising {
				t.Errorf("%s: lightness goes from %.1f to %.1f at step %d", theme, light[i-1], light[i], i)
			}
		}
		if span := max(light[0], light[32]) - min(light[0], light[32]); span < 60 {
			t.Errorf("%s: lightness spans %.0f of 100", theme, span)
		}
	}
}
