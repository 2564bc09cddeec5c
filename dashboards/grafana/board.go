package grafana

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/grafana-tools/sdk"
)

// schemaVersion is Grafana's version of the JSON; Grafana migrates older ones.
const schemaVersion = 41

// gridWidth is the width of Grafana's panel grid.
const gridWidth = 24

// Dashboard is one dashboard as JSON.
type Dashboard struct {
	UID, Title string
	Name       string // file name without .json
	JSON       []byte // ends in a newline
}

// board describes a dashboard before it is encoded.
type board struct {
	uid, title, name string
	refresh, from    string
	variables        []sdk.TemplateVar
	panels           []panel
}

// Dashboards returns all dashboards.
func Dashboards(o Options) ([]Dashboard, error) {
	var all []Dashboard
	for _, b := range []board{fabricBoard(&o), cellsBoard(&o), jobBoard(&o), pipelineBoard()} {
		text, err := b.marshal()
		if err != nil {
			return nil, fmt.Errorf("make dashboard %s: %w", b.name, err)
		}
		all = append(all, Dashboard{UID: b.uid, Title: b.title, Name: b.name, JSON: text})
	}
	return all, nil
}

// build lays out the panels in rows, in order.
func (b *board) build() *sdk.Board {
	out := sdk.NewBoard(b.title)
	out.ID = 0 // Grafana assigns one in its database
	out.UID, out.SchemaVersion, out.Refresh = b.uid, schemaVersion, &sdk.BoolString{Value: b.refresh}
	out.Tags, out.Links = []string{"csigscope"}, []sdk.Link{siblings()}
	out.Time = sdk.Time{From: b.from, To: "now"}
	out.Timepicker = sdk.Timepicker{RefreshIntervals: []string{"5s", "10s", "30s", "1m", "5m", "15m"}, TimeOptions: []string{}}
	out.Annotations.List = []sdk.Annotation{}
	out.Templating.List = b.variables
	out.GraphTooltip = 1 // shared crosshair for all panels
	x, y, tallest := 0, 0, 0
	for i := range b.panels {
		p := &b.panels[i]
		p.id = cmp.Or(p.id, uint(i+1))
		if x+p.width > gridWidth {
			x, y, tallest = 0, y+tallest, 0
		}
		out.Panels = append(out.Panels, p.build(x, y))
		x, tallest = x+p.width, max(tallest, p.height)
	}
	return out
}

// siblings links each dashboard to the others.
func siblings() sdk.Link {
	yes, no, none := true, false, ""
	icon := "external link"
	return sdk.Link{
		Title: "csigscope", Type: "dashboards", Tags: []string{"csigscope"}, IncludeVars: true,
		KeepTime: &yes, AsDropdown: &yes, TargetBlank: &no, Icon: &icon, Tooltip: &none, URL: &none,
	}
}

// Keys that the sdk writes although Grafana has dropped them or they mean nothing.
var (
	legacyBoard    = []string{"slug", "originalTitle", "style", "hideControls", "sharedCrosshair", "rows"}
	legacyPanel    = []string{"editable", "error", "isNew", "span", "renderer", "transparent"}
	legacyPicker   = []string{"time_options", "now"}
	legacyVariable = []string{"allFormat", "multiFormat"}
)

// marshal sorts the keys, so that a change of a panel is a small difference. It adds zero values
// that the sdk omits but Grafana's types require.
func (b *board) marshal() ([]byte, error) {
	text, err := json.Marshal(b.build())
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	var tree object
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return nil, fmt.Errorf("read the dashboard that the Grafana SDK wrote: %w", err)
	}
	drop(tree, legacyBoard)
	tree["id"] = nil
	eachObject(tree["panels"], func(p object) { drop(p, legacyPanel) })
	if picker, ok := tree["timepicker"].(object); ok {
		drop(picker, legacyPicker)
	}
	templating, _ := tree["templating"].(object)
	eachObject(templating["list"], tidyVariable)
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(tree); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return out.Bytes(), nil
}

func drop(o object, keys []string) {
	for _, k := range keys {
		delete(o, k)
	}
}

// tidyVariable removes keys that are invalid for the variable's type, and makes the selected text a
// string, which the sdk can only write as a list.
func tidyVariable(v object) {
	drop(v, legacyVariable)
	if v["datasource"] == nil {
		delete(v, "datasource")
	}
	if v["allValue"] == "" {
		delete(v, "allValue")
	}
	chosen, _ := v["current"].(object)
	if list, ok := chosen["text"].([]any); ok && len(list) == 1 {
		chosen["text"] = list[0]
	} else {
		delete(v, "current") // Grafana selects the first value
	}
}

func eachObject(list any, f func(object)) {
	all, _ := list.([]any)
	for _, v := range all {
		if o, ok := v.(object); ok {
			f(o)
		}
	}
}
