package page_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/dashboards/page/pagetest"
	"github.com/csigscope/csigscope/dashboards/typestest"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestDrawingIsTyped checks that the modules that draw plain data, which other code imports too,
// have types in their comments and do not depend on the page.
func TestDrawingIsTyped(t *testing.T) {
	modules := map[string]string{}
	for _, name := range []string{"color.js", "palette.js", "scale.js", "matrix.js", "axes.js"} {
		text, err := os.ReadFile(filepath.Join("static", name))
		if err != nil {
			t.Fatal(err)
		}
		modules[name] = string(text)
	}
	if got := typestest.ScriptErrors(t, modules); got != "" {
		t.Errorf("TypeScript says:\n%s", got)
	}
	for name, text := range modules {
		if global := regexp.MustCompile(`(^|[^.\w])(document|window|location|fetch)\.`).FindString(text); global != "" {
			t.Errorf("%s uses %s", name, global)
		}
	}
}

// typed returns the example fabric with signal types defined by a table: two meanings of type 5,
// and a sum over hops, which names no location.
func typed() *querytest.Memory {
	m := querytest.Fabric(8, 20)
	for i := range m.Rows {
		r := &m.Rows[i]
		switch r.Signal {
		case csig.MinABW:
			r.Signal = csig.ConfiguredSignal(5, csig.BitPerSecond, csig.AggregateMin)
		case csig.MinABWRatio:
			r.Signal = csig.ConfiguredSignal(5, csig.Ratio, csig.AggregateMax)
		default:
			r.Signal = csig.ConfiguredSignal(6, csig.Count, csig.AggregateSum)
			r.Location = aggregate.NoLocation
		}
	}
	return m
}

func TestPageOfConfiguredTypes(t *testing.T) {
	v := pagetest.Visit(t, serve(t, typed()), "dark")
	tabs := pagetest.Evaluate[[]string](v, "[...document.querySelectorAll('#signals button')].map((b) => b.textContent)")
	if got := strings.Join(tabs, ", "); got != "type 5 min bit/s, type 5 max ratio, type 6" {
		t.Errorf("tabs %s", got)
	}
	for i, want := range []struct{ signal, title, unit string }{
		{"type_5:min:bit/s", "Mean of the minimum of type 5 min bit/s", "bit/s"},
		{"type_5:max:ratio", "Mean of the maximum of type 5 max ratio", "%"},
		{"type_6", "Mean of the sum over hops of type 6", ""},
	} {
		v.Click("#signals button:nth-child(" + string(rune('1'+i)) + ")")
		v.Wait("csigscope.current().signal === '" + want.signal + "'")
		if got := pagetest.Evaluate[string](v, "document.getElementById('mean-title').textContent"); got != want.title {
			t.Errorf("title %q, want %q", got, want.title)
		}
		if got := pagetest.Evaluate[string](v, "document.getElementById('scale-worst').textContent"); !strings.Contains(got, want.unit) {
			t.Errorf("%s: scale ends at %q, want the unit %q", want.signal, got, want.unit)
		}
		v.SetWindow(-1)
		v.CheckCells(v.Screenshot("type"), 8)
	}
	checkSum(t, v)
}

// checkSum checks that cells with a heavy sum over hops look neither clear nor like a location.
func checkSum(t *testing.T, v *pagetest.Visitor) {
	t.Helper()
	if got := pagetest.Evaluate[string](v, "document.getElementById('legend').textContent"); !strings.Contains(got, "no single hop is the bottleneck") {
		t.Errorf("legend of a sum says %q", got)
	}
	b, err := query.Build(context.Background(), typed(), query.Options{Named: []string{"type_6"}})
	if err != nil {
		t.Fatal(err)
	}
	total := &b.Data[0].Total
	colors := map[bool]map[string]bool{true: {}, false: {}}
	for i, heavy := range total.Heavy {
		if mode := total.Modes["location"].Mode[i]; mode != -1 {
			t.Fatalf("a sum over hops has the mode %s", b.Locations[mode].Name)
		}
		if total.Samples[i] >= aggregate.MinObservations {
			colors[heavy > 0][pagetest.Evaluate[string](v, "csigscope.cellColor('right', %d, %d)", total.Src[i], total.Dst[i])] = true
		}
	}
	if len(colors[true]) == 0 || len(colors[false]) != 1 {
		t.Errorf("%d colours of heavy cells, %d of clear ones, want some and one", len(colors[true]), len(colors[false]))
	}
	for clear := range colors[false] {
		if colors[true][clear] {
			t.Errorf("a cell with a heavy sum is drawn clear, %s", clear)
		}
	}
	x, y := v.Cell("left", total.Src[0], total.Dst[0]).Middle()
	v.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y))
	v.Wait("!document.getElementById('tip').hidden")
	if tip := pagetest.Evaluate[string](v, "document.getElementById('tip').innerText"); strings.Contains(tip, "mode") || !strings.Contains(tip, "mean") {
		t.Errorf("tooltip of a sum:\n%s", tip)
	}
}
