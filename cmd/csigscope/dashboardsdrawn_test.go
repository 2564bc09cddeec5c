package main

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/csigscope/csigscope/dashboards/grafana"
	"github.com/csigscope/csigscope/dashboards/grafana/grafanatest"
)

// storePanel is a panel that queries the store, as drawn by Grafana's own code.
type storePanel struct {
	drawn
	board string
	shown grafanatest.Drawn
}

// writtenBoards are the dashboards of people who name the fabric file, and further flags.
func writtenBoards(t *testing.T, flags ...string) map[string]json.RawMessage {
	t.Helper()
	dir := t.TempDir()
	mustRun(t, os.Environ(), append([]string{"dashboards", "write", "--out", dir, "--fabric", emit(t, "--set", "duration=1ms").fabric()}, flags...)...)
	boards := map[string]json.RawMessage{}
	for _, name := range []string{"fabric", "cells", "job", "pipeline"} {
		text, err := os.ReadFile(filepath.Join(dir, "dashboards", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		boards[name] = text
	}
	return boards
}

// askStore runs the store queries of a dashboard's panels.
func askStore(t *testing.T, v *grafanatest.Viewer, board json.RawMessage) (panels []storePanel, asked []grafanatest.Asked) {
	t.Helper()
	for _, panel := range decodeJSON[struct{ Panels []json.RawMessage }](t, string(board)).Panels {
		p, a := decodeJSON[storePanel](t, string(panel)), grafanatest.Asked{Panel: panel}
		for i := range p.Targets {
			a.Frames = append(a.Frames, answerOf(t, v, &p, i))
		}
		panels, asked = append(panels, p), append(asked, a)
	}
	return panels, asked
}

// drawPanels has Grafana draw all panels with store queries at once, since it takes a second to
// load.
func drawPanels(t *testing.T, v *grafanatest.Viewer) (panels []storePanel) {
	t.Helper()
	var asked []grafanatest.Asked
	boards := writtenBoards(t, "--tables")
	for _, name := range []string{"fabric", "cells", "job"} {
		of, a := askStore(t, v, boards[name])
		for i := range of {
			if of[i].board = name; len(a[i].Frames) > 0 { // not a row of panels
				panels, asked = append(panels, of[i]), append(asked, a[i])
			}
		}
	}
	for i, d := range v.Draw(t, asked) {
		panels[i].shown = d
	}
	return panels
}

// answerOf is the frame that comes to Grafana's page: the data source makes series of long
// frames where a query asks for them.
func answerOf(t *testing.T, v *grafanatest.Viewer, p *storePanel, target int) *data.Frame {
	t.Helper()
	frame, err := v.Ask(p.Targets[target].RawSQL)
	if err != nil {
		t.Fatal(err)
	}
	if p.Targets[target].Format == 0.0 {
		frame = checkWide(t, p.Title, frame)
	}
	frame.RefID = string(rune('A' + target))
	return frame
}

// pageColors returns the page's colors of locations.
func pageColors(t *testing.T, page string) map[string]string {
	t.Helper()
	colors := map[string]string{}
	for _, l := range decodeJSON[struct {
		Locations []struct{ Name, Color string }
	}](t, got(t, page+"api/v1/bundle")).Locations {
		colors[l.Name] = l.Color
	}
	return colors
}

// got is the answer at a URL.
func got(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v\n%s", url, response.Status, err, text)
	}
	return string(text)
}

// checkDrawn compares the panels, as drawn by Grafana's own code, with the stored rows and with
// the page.
func checkDrawn(t *testing.T, v *grafanatest.Viewer, page string) {
	colors := pageColors(t, page)
	for _, p := range drawPanels(t, v) {
		t.Run(p.board+"/"+p.shown.Title, func(t *testing.T) {
			checkShown(t, &p)
			checkLinks(t, v, &p)
			switch {
			case p.Type == "heatmap":
				checkRows(t, &p)
			case p.Type == "state-timeline":
				checkTimeline(t, &p, colors)
			case len(p.Transformations) > 0:
				checkMatrix(t, &p, colors)
			case p.Type == "table":
				checkPlaces(t, &p, colors)
			}
		})
	}
}

// counted are columns with counts, or with numbers as names.
var counted = []string{"heavy", "source port", "destination port", "candidate ports", "cells", "observations", "windows", "samples", "count", "source_port", "destination_port"}

// checkShown: variables in titles are replaced, there is data, series have distinct names, and
// a quantity has its unit.
func checkShown(t *testing.T, p *storePanel) {
	t.Helper()
	if strings.Contains(p.shown.Title, "$") || len(p.shown.Frames) == 0 {
		t.Fatalf("%q has %d frames", p.shown.Title, len(p.shown.Frames))
	}
	series := map[string]bool{}
	for _, frame := range p.shown.Frames {
		for _, f := range frame.Fields {
			if f.Type == "time" {
				continue
			}
			if series[f.Title] {
				t.Errorf("%s: two series are called %q", p.Type, f.Title)
			}
			series[f.Title] = true
			if strings.Contains(f.Title, "$") || f.Title == "" {
				t.Errorf("a field is called %q", f.Title)
			}
			if !slices.ContainsFunc(f.Values, func(x grafanatest.DrawnValue) bool { return !x.Missing }) && p.Title != "Findings" {
				t.Errorf("%s says nothing", f.Title)
			}
			if f.Type == "number" && f.Unit == "" && !slices.Contains(counted, f.Title) && !strings.HasPrefix(p.Title, "Cells of") {
				t.Errorf("%s has no unit", f.Title)
			}
		}
	}
}

// checkLinks: each link leads to the cells with all current choices, and contains no unresolved
// variable.
func checkLinks(t *testing.T, v *grafanatest.Viewer, p *storePanel) {
	t.Helper()
	for _, frame := range p.shown.Frames {
		for _, f := range frame.Fields {
			for _, x := range f.Values {
				for _, l := range x.Links {
					if p.Title == "Known" { // leads to the capture, which ends within its first minute
						if l.Path != "/d/"+grafana.FabricUID || l.Query["from"] != "1767571200000" || l.Query["to"] != "1767571210000" {
							t.Errorf("%q leads to %s", l.Title, l.Href)
						}
						continue
					}
					if l.Path != "/d/"+grafana.CellsUID || strings.Contains(l.Href+l.Title, "$") || l.Query["from"] != strconv.FormatInt(v.From.UnixMilli(), 10) {
						t.Fatalf("%s: %q leads to %s", f.Title, l.Title, l.Href)
					}
					for _, name := range []string{"signal", "resolution", "level", "datasource"} {
						if l.Query["var-"+name] != v.Choices[name].Value {
							t.Fatalf("%s: %q chooses another %s: %s", f.Title, l.Title, name, l.Href)
						}
					}
				}
			}
		}
	}
}

// checkLink: the value's first link makes the given choices.
func checkLink(t *testing.T, x grafanatest.DrawnValue, choices map[string]string) {
	t.Helper()
	if len(x.Links) != 1 {
		t.Fatalf("%q has the links %v, want one", x.Text, x.Links)
	}
	for name, want := range choices {
		if got := x.Links[0].Query["var-"+name]; got != want {
			t.Errorf("%q: the link %q chooses %s %q, want %q", x.Text, x.Links[0].Title, name, got, want)
		}
	}
}

// colorOf returns the color of a state, or of a location on the page.
func colorOf(text string, colors map[string]string) string {
	states := map[string]string{"clear": "#1e4d2b", "brief": "#4d4a1e", "too few": "#48525f", "not judged": "#48525f", "no data": "#1b1f26"}
	return cmp.Or(states[text], colors[text])
}

// checkRows: the heatmap's times are the ends of windows of one length without gaps, and every
// row has a value at each.
func checkRows(t *testing.T, p *storePanel) {
	t.Helper()
	fields := p.shown.Frames[0].Fields
	if len(p.shown.Frames) != 1 || fields[0].Type != "time" || len(fields) < 3 || len(fields[0].Values) < 10 {
		t.Fatalf("%d frames of %d fields", len(p.shown.Frames), len(fields))
	}
	times := fields[0].Values
	for i := 2; i < len(times); i++ {
		if *times[i].Number-*times[i-1].Number != *times[1].Number-*times[0].Number {
			t.Errorf("window %d has another length", i)
		}
	}
	for _, f := range fields[1:] {
		if f.Type != "number" || slices.ContainsFunc(f.Values, func(x grafanatest.DrawnValue) bool { return x.Missing }) {
			t.Errorf("row %s is of %s, or has holes", f.Title, f.Type)
		}
	}
}

// checkTimeline: a row for each cell, and each state with its text and color.
func checkTimeline(t *testing.T, p *storePanel, colors map[string]string) {
	t.Helper()
	seen := map[string]bool{}
	for _, frame := range p.shown.Frames {
		f := frame.Fields[len(frame.Fields)-1]
		src, dst := f.Labels["src"], f.Labels["dst"]
		if len(frame.Fields) != 2 || frame.Fields[0].Type != "time" || f.Title != src+" to "+dst || src == "" {
			t.Fatalf("a row has %d fields and the name %q", len(frame.Fields), f.Title)
		}
		for _, x := range f.Values {
			seen[x.Text] = true
			if want := colorOf(x.Text, colors); x.Color != want || want == "" {
				t.Errorf("%s: %q has the colour %s, want %q", f.Title, x.Text, x.Color, want)
			}
			checkLink(t, x, map[string]string{"src": src, "dst": dst})
		}
	}
	if len(p.shown.Frames) != 30 || len(seen) < 4 {
		t.Errorf("%d cells with %d states", len(p.shown.Frames), len(seen))
	}
}

// checkMatrix: the same groups in rows and columns, with every pair; an unmeasured pair has the
// color of no data, and not that of the worst or best value.
func checkMatrix(t *testing.T, p *storePanel, colors map[string]string) {
	t.Helper()
	fields := p.shown.Frames[0].Fields
	names, columns := fields[0], fields[1:]
	if len(p.shown.Frames) != 1 || len(columns) != 16 || len(names.Values) != len(columns) {
		t.Fatalf("%d frames, %d rows of %d columns", len(p.shown.Frames), len(names.Values), len(columns))
	}
	known := 0
	for i, column := range columns {
		name := names.Values[i]
		if len(name.Links) > 0 || name.Text != column.Title {
			t.Errorf("row %d is %q, with %d links, and its column %q", i, name.Text, len(name.Links), column.Title)
		}
		for row, x := range column.Values {
			checkLink(t, x, map[string]string{"src": names.Values[row].Text, "dst": column.Title})
			want := colorOf(x.Text, colors)
			switch {
			case x.Missing:
				want = colorOf("no data", nil)
			case column.Type == "number":
				known++
				want = x.Color
			case x.Text == "" && x.Color == colorOf("clear", nil): // has no text, since most cells are clear
				known++
				want = x.Color
			case x.Text == "":
				want = colorOf("no data", nil)
			default:
				known++
			}
			if x.Color != want || want == "" || x.Missing && x.Text != "" {
				t.Errorf("%s to %s: %q has the colour %s, want %q", names.Values[row].Text, column.Title, x.Text, x.Color, want)
			}
		}
	}
	if known < 100 {
		t.Errorf("%d of the cells are known", known)
	}
}

// checkPlaces: locations have the page's colors, and link to their details.
func checkPlaces(t *testing.T, p *storePanel, colors map[string]string) {
	t.Helper()
	for _, f := range p.shown.Frames[0].Fields {
		if f.Name != "location" {
			continue
		}
		for _, x := range f.Values {
			if x.Text == "" {
				continue // of a flow without heavy observations
			}
			if want := colors[x.Text]; x.Color != want || want == "" {
				t.Errorf("%s has the colour %s, on the page %q", x.Text, x.Color, want)
			}
			if p.Title != "Findings" {
				checkLink(t, x, map[string]string{"location": x.Text})
			}
		}
	}
}
