package grafanatest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/grafana/grafana-plugin-sdk-go/data"
)

// Asked is a panel from its dashboard's JSON, with the results of its queries.
type Asked struct {
	Panel  json.RawMessage `json:"panel"`
	Frames []*data.Frame   `json:"frames"` // not data.Frames, which encodes several frames without commas
}

// Drawn is the content of a panel after its transformations and field configuration.
type Drawn struct {
	Title  string
	Frames []DrawnFrame
}

// DrawnFrame is a table, or series over time.
type DrawnFrame struct{ Fields []DrawnField }

// DrawnField is a column, or a series.
type DrawnField struct {
	Name   string
	Title  string // displayed
	Type   string
	Unit   string
	Labels map[string]string
	Values []DrawnValue
}

// DrawnValue is a cell, or a point.
type DrawnValue struct {
	Text    string
	Color   string // #rrggbb or another CSS color
	Number  *float64
	Missing bool // null
	Links   []DrawnLink
}

// DrawnLink is the link of a value.
type DrawnLink struct {
	Title, Href string
	Path        string            // of Href
	Query       map[string]string // of Href, decoded as in a browser
}

// Draw computes the displayed content of every panel with Grafana's own package @grafana/data, for
// the viewer's choices and range. Without Node or the package the test is skipped, or fails in CI.
func (v *Viewer) Draw(t *testing.T, asked []Asked) []Drawn {
	t.Helper()
	text, err := json.Marshal(v.scene(nil, asked))
	if err != nil {
		t.Fatal(err)
	}
	node, dir := modules(t, "panels", "deps")
	cmd := exec.CommandContext(t.Context(), node, filepath.Join(dir, "draw.cjs"))
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("draw panels: %v: %.2000s", err, stderr.String())
	}
	if stderr.Len() > 0 {
		t.Errorf("Grafana says: %.2000s", stderr.String())
	}
	var drawn []Drawn
	if err := json.Unmarshal(out, &drawn); err != nil {
		t.Fatalf("read what is drawn: %v: %.200s", err, out)
	}
	return drawn
}

// scene returns the input of scripts: panels with their frames, and the viewer's choices.
func (v *Viewer) scene(board json.RawMessage, asked []Asked) map[string]any {
	variables := make([]map[string]string, 0, len(v.Choices))
	for name, c := range v.Choices {
		c.Text = cmp.Or(c.Text, c.Value)
		variables = append(variables, map[string]string{"name": name, "text": c.Text, "value": c.Value})
	}
	from, to := v.From.UnixMilli(), v.To.UnixMilli()
	return map[string]any{
		"board": board, "asked": asked, "variables": variables, "from": from, "to": to,
		"range": url.Values{"from": {strconv.FormatInt(from, 10)}, "to": {strconv.FormatInt(to, 10)}}.Encode(),
	}
}

// modules returns Node and the test data folder with the given name, with scripts and their
// modules, which a make target installs. Without them the test is skipped, or fails in CI.
func modules(t *testing.T, name, target string) (node, dir string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err == nil {
		dir, err = testdata(name)
	}
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "node_modules", ".installed"))
	}
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%v: run make %s", err, target)
		}
		t.Skipf("SKIPPED: %v: run make %s", err, target)
	}
	return node, dir
}

// testdata returns a test data folder of the dashboards in the module of the running test.
func testdata(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "dashboards", "grafana", "testdata", name), nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the module: no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
}

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

// Page serves one dashboard as its viewer sees it. After layout, window.scene has its width and
// height in pixels.
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
	// Icons and fonts are part of Grafana's application and not of any package.
	mux.HandleFunc("/public/build/img/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/svg+xml")
		_, _ = w.Write([]byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`))
	})
	mux.HandleFunc("/data.json", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(scene) })
	return mux
}
