package grafanatest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/grafana/grafana-plugin-sdk-go/data"
)

// Asked is a panel, as its dashboard's JSON has it, and what its queries gave.
type Asked struct {
	Panel  json.RawMessage
	Frames data.Frames
}

// Drawn is what a panel is to show, after its transformations and its field configuration.
type Drawn struct {
	Title  string
	Frames []DrawnFrame
}

// DrawnFrame is a table, or series over time.
type DrawnFrame struct{ Fields []DrawnField }

// DrawnField is a column, or a series.
type DrawnField struct {
	Name   string
	Title  string // that is shown
	Type   string
	Unit   string
	Labels map[string]string
	Custom map[string]any
	Values []DrawnValue
}

// DrawnValue is a cell, or a point.
type DrawnValue struct {
	Text    string
	Color   string // #rrggbb, or what CSS takes
	Number  *float64
	Missing bool // null
	Links   []DrawnLink
}

// DrawnLink is where a value leads to.
type DrawnLink struct{ Title, Href string }

// Draw has Grafana's own package @grafana/data make of every panel's frames what is to be
// shown, with the viewer's choices and range. Without Node or the package the test is
// skipped, and fails in CI.
func (v *Viewer) Draw(t *testing.T, asked []Asked) []Drawn {
	t.Helper()
	request := make([]map[string]any, len(asked))
	for i, a := range asked {
		request[i] = map[string]any{"panel": a.Panel, "frames": a.Frames, "variables": v.variables(), "range": v.rangeParameters()}
	}
	text, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	node, script := drawScript(t)
	cmd := exec.CommandContext(t.Context(), node, script)
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

func (v *Viewer) variables() []map[string]string {
	list := make([]map[string]string, 0, len(v.Choices))
	for name, c := range v.Choices {
		if c.Text == "" {
			c.Text = c.Value
		}
		list = append(list, map[string]string{"name": name, "text": c.Text, "value": c.Value})
	}
	return list
}

func (v *Viewer) rangeParameters() string {
	return url.Values{"from": {strconv.FormatInt(v.From.UnixMilli(), 10)}, "to": {strconv.FormatInt(v.To.UnixMilli(), 10)}}.Encode()
}

// drawScript finds Node, and the script beside the package's modules, from a test's folder.
func drawScript(t *testing.T) (node, script string) {
	t.Helper()
	node, err := exec.LookPath("node")
	var dir string
	if err == nil {
		dir, err = panelsFolder()
	}
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "node_modules", ".installed"))
	}
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%v: run make deps", err)
		}
		t.Skipf("SKIPPED: %v: run make deps", err)
	}
	return node, filepath.Join(dir, "draw.cjs")
}

// panelsFolder is in the module that the test is run in.
func panelsFolder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "dashboards", "grafana", "testdata", "panels"), nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the module: no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
}
