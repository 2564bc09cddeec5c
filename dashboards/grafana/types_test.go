package grafana_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/dashboards/grafana"
	"github.com/csigscope/csigscope/dashboards/typestest"
)

// plugins maps panel types to their names in @grafana/schema.
var plugins = map[string]string{"heatmap": "Heatmap", "state-timeline": "StateTimeline", "stat": "Stat", "table": "Table", "timeseries": "TimeSeries"}

// noFieldConfig lists panel types without a type for custom fields.
var noFieldConfig = map[string]bool{"stat": true}

// TestTypes checks dashboards with TypeScript against Grafana's own types, so that a misspelled
// option, which Grafana ignores, is an error.
func TestTypes(t *testing.T) {
	o := grafana.DefaultOptions()
	for _, o.Tables = range []bool{false, true} {
		if out := typestest.TypeErrors(t, checks(t, decoded(t, o))); out != "" {
			t.Error(out)
		}
	}
}

// TestTypesFail checks that the check finds errors.
func TestTypesFail(t *testing.T) {
	all := decoded(t, grafana.DefaultOptions())
	board := all["fabric"]
	panel := board["panels"].([]any)[2].(map[string]any)
	board["schemaVersion"] = "41"
	board["panels"].([]any)[3].(map[string]any)["options"].(map[string]any)["showHeaders"] = true
	panel["options"].(map[string]any)["color"].(map[string]any)["mode"] = "schema"
	panel["fieldConfig"].(map[string]any)["defaults"].(map[string]any)["units"] = "s"
	out := typestest.TypeErrors(t, checks(t, map[string]map[string]any{"fabric": board}))
	for _, want := range []string{"not assignable to type 'number'", "showHeaders", "schema", "units"} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing is said about %s:\n%s", want, out)
		}
	}
}

// checks writes every part of a dashboard as a constant of its type. Panels are checked one by one,
// since a dashboard's member could have either of two types.
func checks(t *testing.T, all map[string]map[string]any) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("import type { Dashboard, FieldConfig, Panel, RowPanel } from \"@grafana/schema\";\nimport type { Part, Plain } from \"./plain.d.ts\";\n")
	for _, kind := range slices.Sorted(maps.Keys(plugins)) {
		name := plugins[kind]
		fmt.Fprintf(&b, "import type * as %s from \"@grafana/schema/dist/esm/raw/composable/%s/panelcfg/x/%sPanelCfg_types.gen\";\n", name, strings.ReplaceAll(kind, "-", ""), name)
	}
	n := 0
	constant := func(kind string, v any) {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		n++
		fmt.Fprintf(&b, "export const c%d: %s = %s;\n", n, kind, text)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		board := maps.Clone(all[name])
		for _, p := range board["panels"].([]any) {
			checkPanel(t, p.(map[string]any), constant)
		}
		delete(board, "panels")
		constant("Plain<Dashboard>", board)
	}
	return b.String()
}

func checkPanel(t *testing.T, p map[string]any, constant func(kind string, v any)) {
	t.Helper()
	kind := p["type"].(string)
	if kind == "row" {
		constant("Plain<RowPanel>", p)
		return
	}
	constant("Plain<Panel>", p)
	if kind == grafana.MatrixPanelID {
		return // its options are checked where they are drawn
	}
	name, known := plugins[kind]
	if !known {
		t.Fatalf("panel %v is of the unknown type %s", p["title"], kind)
	}
	constant("Plain<"+name+".Options>", p["options"])
	config := p["fieldConfig"].(map[string]any)
	defaults := config["defaults"].(map[string]any)
	if custom := defaults["custom"]; custom != nil && !noFieldConfig[kind] {
		constant("Plain<Partial<"+name+".FieldConfig>>", custom)
	}
	for _, o := range config["overrides"].([]any) {
		for _, property := range o.(map[string]any)["properties"].([]any) {
			property := property.(map[string]any)
			path := strings.Split(property["id"].(string), ".")
			of := "FieldConfig"
			if path[0] == "custom" {
				of, path = name+".FieldConfig", path[1:]
			}
			value := property["value"]
			for _, key := range slices.Backward(path) {
				value = map[string]any{key: value}
			}
			constant("Plain<Part<"+of+">>", value)
		}
	}
}
