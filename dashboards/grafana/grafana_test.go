package grafana_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/dashboards/grafana"
)

// each calls f for every JSON object in v.
func each(v any, f func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		f(v)
		for _, inner := range v {
			each(inner, f)
		}
	case []any:
		for _, inner := range v {
			each(inner, f)
		}
	}
}

// TestBoards checks assumptions of Grafana that it does not report if they are violated.
func TestBoards(t *testing.T) {
	links := map[string]map[float64]bool{}
	all := decoded(t, grafana.DefaultOptions())
	for _, b := range all {
		links["/d/"+b["uid"].(string)] = map[float64]bool{}
	}
	for name, b := range all {
		if b["id"] != nil || b["schemaVersion"] != 41.0 || b["refresh"] == "" || b["refresh"] == nil {
			t.Errorf("%s: id %v, schemaVersion %v, refresh %v", name, b["id"], b["schemaVersion"], b["refresh"])
		}
		at := map[string]bool{}
		for _, p := range b["panels"].([]any) {
			p := p.(map[string]any)
			id := p["id"].(float64)
			if links["/d/"+b["uid"].(string)][id] || id == 0 {
				t.Errorf("%s: panel id %v is 0 or twice there", name, id)
			}
			links["/d/"+b["uid"].(string)][id] = true
			place := fmt.Sprint(p["gridPos"])
			if at[place] {
				t.Errorf("%s: two panels at %s", name, place)
			}
			at[place] = true
		}
		for _, list := range []string{"panels", "links", "tags"} {
			if _, ok := b[list].([]any); !ok {
				t.Errorf("%s: %s is no list", name, list)
			}
		}
	}
	for name, b := range all {
		each(b, func(o map[string]any) {
			url, _ := o["url"].(string)
			path, values, linked := strings.Cut(url, "?")
			if !linked {
				return
			}
			if links[path] == nil {
				t.Errorf("%s: link to %s, which is no dashboard", name, path)
			}
			var panel float64
			if _, err := fmt.Sscanf(values[max(strings.Index(values, "viewPanel="), 0):], "viewPanel=%g", &panel); err == nil && !links[path][panel] {
				t.Errorf("%s: link to panel %v of %s, which is not there", name, panel, path)
			}
		})
	}
}

// TestColors checks that a location has the page's color in every panel that names it, that coarse
// locations take precedence if there are too many, and that names survive Grafana's escaping.
func TestColors(t *testing.T) {
	var locations []fabric.Location
	for i := range 1500 {
		id := aggregate.LocationID(100 + i)
		locations = append(locations, fabric.Location{
			ID: id, Name: fmt.Sprintf("leaf%d:up%d", i/8, i%8), Kind: fabric.KindPort, Device: fmt.Sprintf("leaf%d", i/8), Stage: "leaf", Set: 10, DeviceLoc: 11, StageLoc: 12,
		})
	}
	locations = append(locations, fabric.Location{ID: 12, Name: "leaf", Kind: fabric.KindSet, Stage: "leaf", Set: 12, DeviceLoc: 12, StageLoc: 12})
	o := grafana.DefaultOptions()
	o.Locations = locations
	found := 0
	for name, b := range decoded(t, o) {
		each(b, func(m map[string]any) {
			options, ok := m["options"].(map[string]any)
			if m["type"] != "value" || !ok || options["clear"] == nil {
				return
			}
			found++
			for i, at := range map[int]bool{0: true, 1500: true, 799: false} {
				l := locations[i]
				mapping, there := options[l.Name].(map[string]any)
				if there != at {
					t.Errorf("%s: %s has a colour: %t, want %t", name, l.Name, there, at)
				}
				if there && (mapping["color"] != query.Color(l) || mapping["text"] != l.Name) {
					t.Errorf("%s: %s is shown as %v, on the page in %s", name, l.Name, mapping, query.Color(l))
				}
			}
		})
	}
	if found < 5 {
		t.Errorf("%d places name locations, want at least 5", found)
	}
}

// TestTables checks that without the plugin the matrices are tables and everything else stays the
// same.
func TestTables(t *testing.T) {
	o := grafana.DefaultOptions()
	panels := decoded(t, o)["cells"]["panels"].([]any)
	o.Tables = true
	tables := 0
	for i, p := range decoded(t, o)["cells"]["panels"].([]any) {
		p, panel := p.(map[string]any), panels[i].(map[string]any)
		if p["title"] != panel["title"] || p["type"] == grafana.MatrixPanelID {
			t.Errorf("%v is %v", panel["title"], p["type"])
		}
		if panel["type"] != grafana.MatrixPanelID {
			continue
		}
		tables++
		if p["type"] != "table" || p["gridPos"].(map[string]any)["w"] != 24.0 || len(p["transformations"].([]any)) != 1 {
			t.Errorf("%v is %v at %v", p["title"], p["type"], p["gridPos"])
		}
	}
	if tables != 5 {
		t.Errorf("%d matrices, want 5", tables)
	}
}

// TestWrite checks that files can be written again, and that Grafana can read them.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	o := grafana.DefaultOptions()
	o.Store.Host, o.Store.Port, o.Store.Secure = "db.example", 8443, true
	for range 2 {
		written, err := grafana.Write(dir, o)
		if err != nil || len(written) < 4 {
			t.Fatalf("wrote %q, %v", written, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "provisioning", "datasources", "csigscope.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var sources struct {
		Datasources []struct {
			UID, Type string
			JSONData  map[string]any `yaml:"jsonData"`
		}
	}
	if err := yaml.Unmarshal(text, &sources); err != nil {
		t.Fatal(err)
	}
	d := sources.Datasources[0].JSONData
	if d["host"] != "db.example" || d["port"] != 8443 || d["secure"] != true || d["protocol"] != "http" || d["defaultDatabase"] != "csigscope" {
		t.Errorf("the data source is %v", d)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*.new"))
	if err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := grafana.Write(blocked, o); err == nil {
		t.Error("writing below a file: no error")
	}
}
