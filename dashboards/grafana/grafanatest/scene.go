package grafanatest

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"testing"
)

const scenePage = `<!doctype html>
<meta charset="utf-8">
<link rel="icon" href="data:,">
<link rel="stylesheet" href="main.css">
<style>body { margin: 0 } .uplot { cursor: default }</style>
<div id="root"></div>
<script src="main.js"></script>
`

// Stage bundles the page that draws dashboards with Grafana's component library.
type Stage struct{ dir string }

// NewStage needs the modules of testdata/screenshots, which make screenshots installs.
func NewStage(t *testing.T) *Stage {
	t.Helper()
	node, folder := modules(t, "screenshots", "screenshots")
	s := &Stage{dir: t.TempDir()}
	cmd := exec.CommandContext(t.Context(), node, "build.cjs", s.dir)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("bundle the page: %v: %.2000s", err, out)
	}
	return s
}

// Page serves one dashboard as its viewer sees it. When it is laid out, window.scene has its
// width and height in pixels.
func (s *Stage) Page(t *testing.T, v *Viewer, board json.RawMessage, asked []Asked) http.Handler {
	t.Helper()
	scene, err := json.Marshal(v.scene(board, asked))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(s.dir)))
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(scenePage))
	})
	// Icons and fonts are in Grafana's application and in no package.
	mux.HandleFunc("/public/build/img/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/svg+xml")
		_, _ = w.Write([]byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`))
	})
	mux.HandleFunc("/data.json", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(scene) })
	return mux
}
