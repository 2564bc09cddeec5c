package page_test

import (
	"context"
	"image"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/dashboards/page"
)

func report(t *testing.T, b *query.Bundle) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(path, []byte(write(t, b)), 0o644); err != nil {
		t.Fatal(err)
	}
	return "file://" + path
}

func bundle(t *testing.T, racks, windows int) *query.Bundle {
	t.Helper()
	b, err := query.Build(context.Background(), querytest.Fabric(racks, windows), query.Options{
		Fabric: "example pod", Levels: query.Levels(), Now: querytest.Start.Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestReportDrawsItsData compares the pixels of every cell, in both matrices, in a
// window and over the whole range, with the colours that the data asks for.
func TestReportDrawsItsData(t *testing.T) {
	b := bundle(t, 16, 30)
	url := report(t, b)
	for _, theme := range []string{"dark", "light"} {
		t.Run(theme, func(t *testing.T) {
			v := visit(t, url, theme)
			for name, window := range map[string]int{"whole": -1, "early": 2, "late": 22} {
				v.setWindow(window)
				checkCells(v, v.screenshot(name), len(b.Groups))
			}
		})
	}
}

func checkCells(v *visitor, picture image.Image, size int) {
	v.t.Helper()
	painted := map[string]bool{}
	for _, side := range []string{"left", "right"} {
		colors := evaluate[[]*string](v,
			"Array.from({length: %d}, (_, i) => csigscope.cellColor(%q, Math.floor(i / %d), i %% %d))", size*size, side, size, size)
		rects := evaluate[[]rect](v,
			"Array.from({length: %d}, (_, i) => csigscope.cellRect(%q, Math.floor(i / %d), i %% %d))", size*size, side, size, size)
		for i, want := range colors {
			if want == nil {
				continue
			}
			if got := colorAt(picture, rects[i]); got != *want {
				v.t.Errorf("%s cell %d,%d is %s, data asks for %s", side, i/size, i%size, got, *want)
			}
			painted[*want] = true
		}
	}
	if len(painted) < 20 {
		v.t.Errorf("only %d colours in both matrices: the data has more", len(painted))
	}
}

// TestReportSilence holds that a rack whose tap fell silent is drawn as without
// data, and that it was not before.
func TestReportSilence(t *testing.T) {
	v := visit(t, report(t, bundle(t, 16, 30)), "dark")
	const silent, source = 8, 2
	for window, heard := range map[int]bool{4: true, 22: false} {
		v.setWindow(window)
		for _, side := range []string{"left", "right"} {
			if got := evaluate[bool](v, "csigscope.cellColor(%q, %d, %d) !== null", side, source, silent); got != heard {
				t.Errorf("window %d, %s: cell has a colour: %t, want %t", window, side, got, heard)
			}
		}
	}
}

func TestReportReacts(t *testing.T) {
	v := visit(t, report(t, bundle(t, 16, 30)), "light")
	v.setWindow(22)
	x, y := v.rect("right", 2, 4).middle()
	v.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y))
	v.wait("!document.getElementById('tip').hidden")
	v.screenshot("tip")
	tip := evaluate[string](v, "document.getElementById('tip').innerText")
	for _, want := range []string{"rack3 → rack5", "mean", "Gbit/s", "samples", "trimmed", "tags"} {
		if !strings.Contains(tip, want) {
			t.Errorf("tooltip does not say %q:\n%s", want, tip)
		}
	}
	v.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 5, 5))
	v.click("#signals button:nth-child(3)")
	v.click("#levels label:nth-of-type(3)")
	v.click("#legend li:nth-child(1) button")
	got := evaluate[map[string]any](v, "csigscope.current()")
	if got["signal"] != "max_delay" || got["level"] != "device" || got["highlight"] == float64(-1) {
		t.Errorf("after clicks on signal, level and legend: %v", got)
	}
	v.screenshot("highlight")
	v.do(chromedp.Focus(chromedp.CSS("#mode")), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown))
	if spoken := evaluate[string](v, "document.getElementById('spoken').textContent"); !strings.HasPrefix(spoken, "rack2 → rack1") {
		t.Errorf("keyboard announces %q, want the cell rack2 → rack1", spoken)
	}
	evaluate[chromedp.Void](v, "document.getElementById('timeline').scrollIntoView()")
	at := evaluate[[]float64](v, "(({right, top}) => [right - 12, top + 5])(document.getElementById('timeline').getBoundingClientRect())")
	v.do(chromedp.MouseClickXY(at[0], at[1]))
	if got := evaluate[float64](v, "csigscope.current().window"); got != 29 {
		t.Errorf("a click at the end of the time heatmap chose window %v, want 29", got)
	}
}

// TestLivePage opens the served page, whose policy forbids what a report may do.
func TestLivePage(t *testing.T) {
	api := query.NewHandler(query.HandlerConfig{Reader: querytest.Fabric(8, 20), Options: query.Options{Fabric: "live"}})
	server := httptest.NewServer(page.LoopbackOnly(page.Handler(api)))
	defer server.Close()
	v := visit(t, server.URL, "dark")
	v.setWindow(2)
	checkCells(v, v.screenshot("first"), 8)
	v.click("#signals button:nth-child(2)")
	v.wait("csigscope.current().signal === 'min_abw_ratio'")
	v.click("#levels label:nth-of-type(4)")
	v.wait("csigscope.current().level === 'stage'")
	if got := evaluate[float64](v, "csigscope.current().window"); got != 2 {
		t.Errorf("another signal moved the time to window %v, want 2", got)
	}
	v.screenshot("stage")
}
