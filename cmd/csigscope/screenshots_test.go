package main

import (
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/csigscope/csigscope/dashboards/page/pagetest"
)

// TestScreenshots takes the pictures of the README: states of the page over the demo, in the
// folder in CSIGSCOPE_TEST_README_SCREENSHOTS.
func TestScreenshots(t *testing.T) {
	folder := os.Getenv("CSIGSCOPE_TEST_README_SCREENSHOTS")
	if folder == "" {
		t.Skip("takes the pictures of the README: make screenshots")
	}
	env := engineEnv(t)
	url := serveBinary(t, env, "demo", "--dir", t.TempDir(), "--listen", "127.0.0.1:0")
	shoot := func(v *pagetest.Visitor, name string, width, height int64) {
		v.Resize(width, height)
		v.Wait("innerHeight === " + pagetest.Evaluate[string](v, "String(%d)", height))
		v.Wait("!csigscope.current().waiting && (csigscope.current().chosen === null || csigscope.current().series)")
		file, err := os.Create(filepath.Join(folder, name+".png"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		encoder := png.Encoder{CompressionLevel: png.BestCompression}
		if err := encoder.Encode(file, v.Screenshot(name)); err != nil {
			t.Fatal(err)
		}
	}
	v := pagetest.Visit(t, url, "dark")
	shoot(v, "overview", 1400, 1240)
	v.Open(url + "#signal=max_delay&step=1s&utc=1&src=rack9&dst=rack5&theme=light")
	v.Import("App", "app.js")
	v.SetWindow(pagetest.Evaluate[int](v, "App.model.windows.length >> 1"))
	v.Wait("['ports', 'flows', 'findings'].every((list) => document.getElementById('detail-' + list).textContent.length > 1)")
	v.Resize(1400, 1100)
	pagetest.Evaluate[bool](v, "document.getElementById('detail').scrollIntoView({ block: 'end' }) === undefined")
	shoot(v, "cell", 1400, 1100)
	v.Open(url + "#live=1&theme=dark")
	v.Wait("csigscope.current().stale")
	shoot(v, "stale", 1400, 620)
	v.Open(url + "#theme=light")
	shoot(v, "narrow", 390, 1000)
}
