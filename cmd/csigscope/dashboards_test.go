package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/csigscope/csigscope/dashboards/grafana"
	"github.com/csigscope/csigscope/dashboards/grafana/grafanatest"
)

// drawn is the part of a panel that determines its data.
type drawn struct {
	Title, Type string
	Targets     []struct {
		RawSQL string `json:"rawSql"`
		Format any    `json:"format"`
	} `json:"targets"`
	Transformations []json.RawMessage `json:"transformations"`
}

// TestDashboardQueries runs the queries of every panel and variable over the interface that
// Grafana uses, and checks the frames: a panel with a frame of the wrong shape draws nothing,
// without an error.
func TestDashboardQueries(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	store := "--store=" + newStore(t, env, filepath.Join(t.TempDir(), "store"))
	mustRun(t, env, "replay", "--scenario", "demo", "--set", "duration=10s", "--fine", "10ms", store)
	address := freeAddress(t)
	page := serveBinary(t, env, "query", "serve", store, "--listen", "127.0.0.1:0", "--clickhouse-listen", address)
	start := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	for _, rows := range []grafanatest.Choice{{Text: "1s", Value: "1000000000"}, {Text: "1m", Value: "60000000000"}, {Text: "fine", Value: "10000000"}} {
		// The range extends by a second of unknown data on both sides.
		v := grafanatest.Viewer{
			URL: "http://" + address + "/?database=csigscope", From: start.Add(-time.Second), To: start.Add(11 * time.Second), Interval: 200 * time.Millisecond,
			Choices: map[string]grafanatest.Choice{
				"signal": {Text: "available bandwidth of capacity", Value: "1"}, "level": {Text: "port", Value: "0"}, "resolution": rows, "rows": {Text: "1s", Value: "1s"}, "datasource": {Value: "csigscope-clickhouse"},
				"src": {Value: "rack5"}, "dst": {Value: "rack6"}, "group": {Value: "rack5"}, "location": {}, "onset": {Value: "0.05"}, "clear": {Value: "0.02"},
			},
		}
		if rows.Text == "1m" {
			v.Choices["rows"] = rows
			v.From = start
			v.To = start.Add(time.Minute)
		}
		t.Run(rows.Text, func(t *testing.T) {
			o := grafana.DefaultOptions()
			for _, o.Tables = range []bool{false, true} {
				all, err := grafana.Dashboards(o)
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range all {
					t.Run(d.Name, func(t *testing.T) { askDashboard(t, &v, d.JSON) })
				}
			}
			if rows.Text == "1s" {
				t.Run("drawn", func(t *testing.T) { checkDrawn(t, &v, page) })
				t.Run("links", func(t *testing.T) { checkCongestedLinks(t, v, page) })
				t.Run("silent", func(t *testing.T) { checkQuiet(t, v, start.Add(-time.Hour), "no data") })
				t.Run("healthy", func(t *testing.T) { checkQuiet(t, v, start.Add(3*time.Second), "nothing heavy") })
			}
		})
	}
}

// checkCongestedLinks: the first row has as many congested links as the API, whenever the range ends, and no
// data if nothing was observed for 300 windows.
func checkCongestedLinks(t *testing.T, v grafanatest.Viewer, page string) {
	all, err := grafana.Dashboards(grafana.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(d grafana.Dashboard) bool { return d.Name == "fabric" })
	panels := decodeJSON[struct{ Panels []drawn }](t, string(all[at].JSON)).Panels
	at = slices.IndexFunc(panels, func(p drawn) bool { return strings.HasPrefix(p.Title, "Congestion") })
	v.Choices = maps.Clone(v.Choices)
	counts := map[string]bool{}
	start := v.From.Add(time.Second)
	for _, signal := range []struct{ id, name string }{{"1", "min_abw_ratio"}, {"2", "max_delay"}} {
		for _, after := range []time.Duration{time.Second, 2 * time.Second, 3500 * time.Millisecond, 5 * time.Second, 8 * time.Second, 10 * time.Second, 4 * time.Minute, 10 * time.Minute} {
			v.Choices["signal"] = grafanatest.Choice{Text: signal.name, Value: signal.id}
			v.To = start.Add(after)
			frame, err := v.Ask(panels[at].Targets[0].RawSQL)
			if err != nil {
				t.Fatal(err)
			}
			field, _ := frame.FieldByName("congested links")
			shown := field.At(0).(string)
			counts[shown] = true
			want := "no data"
			if after < 5*time.Minute {
				text := got(t, fmt.Sprintf("%sapi/v1/links?signal=%s&from=%s&to=%s&state=congested", page, signal.name, v.From.Format(time.RFC3339Nano), v.To.Format(time.RFC3339Nano)))
				want = strconv.Itoa(decodeJSON[struct{ Total int }](t, text).Total)
			}
			if shown != want {
				t.Errorf("%s, %s after the start: %s congested links, the API has %s", signal.name, after, shown, want)
			}
		}
	}
	if len(counts) < 4 {
		t.Errorf("the numbers of congested links are %v: too few differ", counts)
	}
}

// checkQuiet: in a second without a heavy observation the panels over time have rows for
// Grafana to draw, which say whether anything was seen.
func checkQuiet(t *testing.T, v grafanatest.Viewer, from time.Time, says string) {
	v.From, v.To = from, from.Add(time.Second)
	all, err := grafana.Dashboards(grafana.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, d := range all {
		for _, p := range decodeJSON[struct{ Panels []drawn }](t, string(d.JSON)).Panels {
			if p.Type != "heatmap" && p.Type != "state-timeline" && !strings.HasPrefix(p.Title, "Congestion") {
				continue
			}
			frame, err := v.Ask(p.Targets[0].RawSQL)
			if err != nil || frame.Rows() == 0 {
				t.Errorf("%s: %d rows, %v", p.Title, frame.Rows(), err)
				continue
			}
			checked++
			want := says
			switch {
			case says != "no data" && strings.HasPrefix(p.Title, "Congestion"):
				want = "0 of 240"
			case says != "no data" && p.Title != "Bottlenecks over time":
				continue
			}
			texts := slices.IndexFunc(frame.Fields, func(f *data.Field) bool { return f.Type() == data.FieldTypeString })
			if p.Type == "state-timeline" {
				texts = len(frame.Fields) - 1
			}
			if got := frame.Fields[texts].At(0); got != want {
				t.Errorf("%s says %v, want %s", p.Title, got, want)
			}
		}
	}
	if checked != 4 {
		t.Errorf("%d panels checked, want 4", checked)
	}
}

func askDashboard(t *testing.T, v *grafanatest.Viewer, text []byte) {
	board := decodeJSON[struct {
		Panels     []drawn
		Templating struct {
			List []struct {
				Name, Type string
				Query      json.RawMessage
			}
		}
	}](t, string(text))
	for _, q := range board.Templating.List {
		if q.Type != "query" || !bytes.HasPrefix(q.Query, []byte(`"SELECT`)) {
			continue // from Prometheus
		}
		frame, err := v.Ask(decodeJSON[string](t, string(q.Query)))
		if err != nil || len(frame.Fields) != 1 || q.Name != "rows" && frame.Rows() < 16 {
			t.Errorf("variable %s: got %v, %v, want one column of groups", q.Name, frame, err)
			continue
		}
		// The first choices give the worst cell: from the slow uplinks, or into their rack.
		if first := frame.Fields[0].At(0).(string); q.Name == "src" && first != "rack4" && first != "rack5" {
			t.Errorf("the first source is %s, want one that is congested", first)
		}
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			if target.RawSQL == "" {
				continue
			}
			frame, err := v.Ask(target.RawSQL)
			if err != nil {
				t.Errorf("%s: %v", p.Title, err)
				continue
			}
			checkFrame(t, v, &p, frame, target.Format == 0.0)
		}
	}
}

// checkFrame compares a frame with the requirements of the panel's plugin.
func checkFrame(t *testing.T, v *grafanatest.Viewer, p *drawn, frame *data.Frame, series bool) {
	t.Helper()
	rows := frame.Rows()
	if rows == 0 && !mayBeEmpty(v, p.Title) {
		t.Errorf("%s: no rows", p.Title)
		return
	}
	t.Logf("%s: %d rows", p.Title, rows)
	switch {
	case p.Type == "heatmap":
		checkHeatmap(t, v, p.Title, frame)
	case strings.HasPrefix(p.Title, "Steps of"):
		checkSteps(t, v, p.Title, frame)
	case p.Type == "state-timeline":
		checkStates(t, v, p.Title, frame)
	case p.Type == grafana.MatrixPanelID:
		checkCells(t, v, p.Title, frame)
	case series:
		checkWide(t, p.Title, frame)
	}
	if names := fieldNames(frame); len(p.Transformations) > 0 && p.Type == "table" {
		if !slices.Equal(names, []string{"src", "dst", "value"}) {
			t.Errorf("%s: fields %q, want src, dst and value", p.Title, names)
		}
		checkSquare(t, p.Title, frame)
	}
}

// mayBeEmpty reports whether the demo has no data for a panel: it breaks no protocol. Fine rows
// exist only for heavy observations.
func mayBeEmpty(v *grafanatest.Viewer, title string) bool {
	return title == "Findings" || v.Choices["resolution"].Text == "fine" || strings.HasPrefix(title, "Period") && v.Choices["resolution"].Text == "1m"
}

func fieldNames(frame *data.Frame) (names []string) {
	for _, f := range frame.Fields {
		names = append(names, f.Name)
	}
	return names
}

// windows returns the number of windows that a panel should show.
func windows(v *grafanatest.Viewer) int {
	length, _ := time.ParseDuration(v.Choices["resolution"].Value + "ns")
	length = max(v.Interval/length, 1) * length
	return int((v.To.Sub(v.From) + length - 1) / length)
}

// checkHeatmap: one string column, a value named Value, each time once for each location
// without gaps, and time is the end of a window.
func checkHeatmap(t *testing.T, v *grafanatest.Viewer, title string, frame *data.Frame) {
	t.Helper()
	if names := fieldNames(frame); len(names) != 3 || names[0] != "time" || names[2] != "Value" || frame.Fields[1].Type() != data.FieldTypeString {
		t.Fatalf("%s: fields %q", title, names)
	}
	if frame.Rows() == 0 {
		return
	}
	wide := checkWide(t, title, frame)
	if wide == nil {
		return
	}
	if wide.Rows() != windows(v) {
		t.Errorf("%s: %d columns of the heatmap, want %d", title, wide.Rows(), windows(v))
	}
	if first := wide.Fields[0].At(0).(time.Time); !first.After(v.From) {
		t.Errorf("%s: the first column ends at %s, want after %s", title, first, v.From)
	}
	for _, f := range wide.Fields[1:] {
		total := 0.0
		for i := range f.Len() {
			value, ok := f.NullableFloatAt(i)
			if value == nil || ok != nil {
				t.Fatalf("%s: %s has a hole at %d", title, f.Labels, i)
			}
			total += *value
		}
		if total == 0 && frame.Fields[1].Name == "location" || f.Name != "Value" || len(f.Labels) != 1 {
			t.Errorf("%s: row %s %v adds up to %g, want something and one label", title, f.Name, f.Labels, total)
		}
	}
	if frame.Fields[1].Name == "values" && v.Choices["resolution"].Text == "1s" {
		checkValues(t, wide)
	}
	// Shares of a column add up to at most 1.
	for i := 0; i < wide.Rows() && frame.Fields[1].Name == "location"; i++ {
		sum := 0.0
		for _, f := range wide.Fields[1:] {
			value, _ := f.FloatAt(i)
			sum += value
		}
		if sum > 1+1e-9 {
			t.Errorf("%s: column %d adds up to %g", title, i, sum)
		}
	}
}

// checkValues: the rows of a ratio are all twentieths from 0 up, in that order.
func checkValues(t *testing.T, wide *data.Frame) {
	t.Helper()
	for i, f := range wide.Fields[1:] {
		if want := fmt.Sprintf("%2d to %d %%", 5*i, 5*(i+1)); f.Labels["values"] != want || len(wide.Fields) != 21 {
			t.Errorf("row %d of %d is %q, want %q of 20", i, len(wide.Fields)-1, f.Labels["values"], want)
		}
	}
}

// checkWide makes series of a long frame, as the data source does.
func checkWide(t *testing.T, title string, frame *data.Frame) *data.Frame {
	t.Helper()
	schema := frame.TimeSeriesSchema()
	switch schema.Type {
	case data.TimeSeriesTypeWide:
		return frame
	case data.TimeSeriesTypeLong:
		wide, err := data.LongToWide(frame, nil)
		if err != nil {
			t.Errorf("%s: %v", title, err)
		}
		return wide
	}
	t.Errorf("%s: %v makes no series", title, fieldNames(frame))
	return nil
}

// checkStates: every cell has a state in every window, so silence is a state too.
func checkStates(t *testing.T, v *grafanatest.Viewer, title string, frame *data.Frame) {
	t.Helper()
	if names := fieldNames(frame); !slices.Equal(names, []string{"time", "src", "dst", "mode"}) {
		t.Fatalf("%s: fields %q", title, names)
	}
	cells, seen := map[string]int{}, map[string]bool{}
	for i := range frame.Rows() {
		mode := frame.Fields[3].At(i).(string)
		cells[frame.Fields[1].At(i).(string)+" to "+frame.Fields[2].At(i).(string)]++
		seen[mode] = true
		if mode == "" {
			t.Fatalf("%s: a state without a name", title)
		}
	}
	for cell, n := range cells {
		if n != windows(v) {
			t.Errorf("%s: %s has %d states, want %d", title, cell, n, windows(v))
		}
	}
	if v.Choices["resolution"].Text == "1s" && (!seen["no data"] || !seen["leaf5 up"] && !seen["leaf5:up1"]) {
		t.Errorf("%s: states are %v, want silence before the first window, and the slow uplinks", title, seen)
	}
}

// checkCells: the plugin finds its columns and the groups of the axes by name.
func checkCells(t *testing.T, v *grafanatest.Viewer, title string, frame *data.Frame) {
	t.Helper()
	names := fieldNames(frame)
	if slices.Equal(names, []string{"name", "parent", "level"}) {
		if frame.Rows() < 16 {
			t.Errorf("%s: %d groups", title, frame.Rows())
		}
		return
	}
	mean := "mean"
	if strings.HasPrefix(title, "Mode") {
		mean += " " + v.Choices["signal"].Text
	}
	want := []string{"src", "dst", mean, "state", "since", "observations", "measured", "heavy", "trimmed", "mode", "named", "others", "second", "second_named"}
	if !slices.Equal(names, want) || frame.Rows() != 240 {
		t.Errorf("%s: %d rows of %q, want 240 of %q", title, frame.Rows(), names, want)
	}
}

// checkSteps: the demo's job sends for 2 s of every 4 s.
func checkSteps(t *testing.T, v *grafanatest.Viewer, title string, frame *data.Frame) {
	t.Helper()
	if names := fieldNames(frame); !slices.Equal(names, []string{"steps", "period", "idle", "quiet"}) || frame.Rows() != 1 {
		t.Fatalf("%s: fields %q, %d rows", title, names, frame.Rows())
	}
	if v.Choices["resolution"].Text == "1m" {
		return
	}
	// A gap begins and ends anywhere within a window.
	window := 0.2
	if v.Choices["resolution"].Text == "1s" {
		window = 1
	}
	for i, want := range []struct{ value, off float64 }{{2, 0}, {4, 0}, {2, 2 * window}, {4, 4 * window}} {
		got, err := frame.Fields[i].FloatAt(0)
		if err != nil || math.Abs(got-want.value) > want.off+1e-9 {
			t.Errorf("%s: %s is %g, want %g, give or take %g", title, frame.Fields[i].Name, got, want.value, want.off)
		}
	}
}

// checkSquare: every pair of groups has a row, in one order, so that the matrix has the groups
// in the fabric's order on both axes.
func checkSquare(t *testing.T, title string, frame *data.Frame) {
	t.Helper()
	var axis []string
	for i := range frame.Rows() {
		if name := frame.Fields[0].At(i).(string); !slices.Contains(axis, name) {
			axis = append(axis, name)
		}
	}
	if frame.Rows() != len(axis)*len(axis) {
		t.Fatalf("%s: %d rows of %d groups", title, frame.Rows(), len(axis))
	}
	known := 0
	for i := range frame.Rows() {
		if value := frame.Fields[2]; !value.NilAt(i) && value.At(i) != "no data" {
			known++
		}
		if got, want := frame.Fields[1].At(i).(string), axis[i%len(axis)]; got != want {
			t.Fatalf("%s: row %d is of %s, want %s", title, i, got, want)
		}
	}
	// Traffic within a rack does not use the fabric.
	if frame.Rows() > 0 && (known == 0 || known > len(axis)*(len(axis)-1)) {
		t.Errorf("%s: %d of %d cells are known", title, known, frame.Rows())
	}
}

// TestDashboardsWrite: colors come from the fabric file, the next steps are those of the README,
// and errors name the mistake.
func TestDashboardsWrite(t *testing.T) {
	t.Parallel()
	e := emit(t, "--set", "duration=100ms")
	dir := filepath.Join(t.TempDir(), "grafana")
	out := mustRun(t, os.Environ(), "dashboards", "write", "--out", dir, "--fabric", e.fabric(), "--clickhouse", "https://db.example")
	out, next, _ := strings.Cut(out, "\nnext, on Grafana's machine:\n")
	readme, err := os.ReadFile("../../dashboards/grafana/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, steps, _ := strings.Cut(string(readme), "```sh\ncsigscope dashboards write --out grafana --fabric fabric.yaml\n")
	steps, _, _ = strings.Cut(steps, "```")
	var want strings.Builder
	for line := range strings.Lines(steps) {
		line, _, _ = strings.Cut(line, "#")
		fmt.Fprintln(&want, " ", strings.ReplaceAll(strings.TrimSpace(line), " grafana/", " "+dir+"/"))
	}
	if next != want.String() || steps == "" {
		t.Errorf("next: %q, want %q", next, want.String())
	}
	for path := range strings.Lines(out) {
		text, err := os.ReadFile(strings.TrimSpace(path))
		if err != nil {
			t.Fatal(err)
		}
		switch name := filepath.Base(strings.TrimSpace(path)); {
		case name == "cells.json" && !strings.Contains(string(text), `"leaf5:up1"`):
			t.Errorf("%s gives locations no colours", name)
		case strings.Contains(path, "datasources") && !strings.Contains(string(text), "port: 8443"):
			t.Errorf("%s has another port than https has: %s", name, text)
		}
	}
	if strings.Count(out, "\n") < 4 {
		t.Errorf("wrote %q", out)
	}
	for _, args := range [][]string{
		{"--clickhouse", "127.0.0.1:8123"}, {"--clickhouse", "tcp://db:9000"}, {"--prometheus", "nowhere"}, {"--fine", "1s"}, {"--fabric", filepath.Join(dir, "missing.yaml")}, {"extra"},
	} {
		r := runBinary(t, os.Environ(), append([]string{"dashboards", "write", "--out", dir}, args...)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, strings.TrimPrefix(args[0], "--")) && !strings.Contains(r.stderr, "missing.yaml") {
			t.Errorf("%q: exit code %d, %s", args, r.code, r.stderr)
		}
	}
}

// TestDashboardsThresholds checks that Grafana judges cells by the configuration, as the page and
// the API do.
func TestDashboardsThresholds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "csigscope.yaml")
	if err := os.WriteFile(file, []byte("states: {onset: 0.3, clear: 0.25}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustRun(t, os.Environ(), "dashboards", "write", "--out", dir, "--config", file)
	for _, name := range []string{"fabric", "cells"} {
		text, err := os.ReadFile(filepath.Join(dir, "dashboards", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		shown := map[string]string{}
		for _, v := range decodeJSON[struct {
			Templating struct {
				List []struct {
					Name  string
					Query any // a text, or an object for Prometheus
				}
			}
		}](t, string(text)).Templating.List {
			if query, ok := v.Query.(string); ok {
				shown[v.Name] = query
			}
		}
		if shown["onset"] != "0.3" || shown["clear"] != "0.25" {
			t.Errorf("%s begins with the thresholds %q and %q", name, shown["onset"], shown["clear"])
		}
	}
}
