package page_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/dashboards/page"
	"github.com/csigscope/csigscope/dashboards/page/pagetest"
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
		Fabric: "example pod", Levels: fabric.Levels(), Now: querytest.Start.Add(time.Hour),
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
			v := pagetest.Visit(t, url, theme)
			for name, window := range map[string]int{"whole": -1, "early": 2, "late": 22} {
				v.SetWindow(window)
				v.CheckCells(v.Screenshot(name), len(b.Groups))
			}
		})
	}
}

// TestReportSilence holds that a rack whose tap fell silent is drawn as without
// data, and that it was not before.
func TestReportSilence(t *testing.T) {
	v := pagetest.Visit(t, report(t, bundle(t, 16, 30)), "dark")
	const silent, source = 8, 3
	for window, heard := range map[int]bool{4: true, 22: false} {
		v.SetWindow(window)
		for _, side := range []string{"left", "right"} {
			if got := pagetest.Evaluate[bool](v, "csigscope.cellColor(%q, %d, %d) !== null", side, source, silent); got != heard {
				t.Errorf("window %d, %s: cell has a colour: %t, want %t", window, side, got, heard)
			}
		}
	}
}

func TestReportReacts(t *testing.T) {
	v := pagetest.Visit(t, report(t, bundle(t, 16, 30)), "light")
	v.SetWindow(22)
	x, y := v.Cell("right", 2, 4).Middle()
	v.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y))
	v.Wait("!document.getElementById('tip').hidden")
	v.Screenshot("tip")
	tip := pagetest.Evaluate[string](v, "document.getElementById('tip').innerText")
	for _, want := range []string{"rack3 → rack5", "mean", "Gbit/s", "samples", "trimmed", "tags"} {
		if !strings.Contains(tip, want) {
			t.Errorf("tooltip does not say %q:\n%s", want, tip)
		}
	}
	v.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 5, 5))
	v.Click("#signals button:nth-child(3)")
	v.Click("#levels label:nth-of-type(3)")
	v.Click("#legend li:nth-child(1) button")
	got := pagetest.Evaluate[map[string]any](v, "csigscope.current()")
	if got["signal"] != "max_delay" || got["level"] != "device" || got["highlight"] == float64(-1) {
		t.Errorf("after clicks on signal, level and legend: %v", got)
	}
	v.Screenshot("highlight")
	v.Do(chromedp.Focus(chromedp.CSS("#mode")), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown))
	if spoken := pagetest.Evaluate[string](v, "document.getElementById('spoken').textContent"); !strings.HasPrefix(spoken, "rack2 → rack1") {
		t.Errorf("keyboard announces %q, want the cell rack2 → rack1", spoken)
	}
	pagetest.Evaluate[chromedp.Void](v, "document.getElementById('timeline').scrollIntoView()")
	at := pagetest.Evaluate[[]float64](v, "(({right, top}) => [right - 12, top + 5])(document.getElementById('timeline').getBoundingClientRect())")
	v.Do(chromedp.MouseClickXY(at[0], at[1]))
	if got := pagetest.Evaluate[float64](v, "csigscope.current().window"); got != 29 {
		t.Errorf("a click at the end of the time heatmap chose window %v, want 29", got)
	}
}

// TestLivePage opens the served page, whose policy forbids what a report may do.
func TestLivePage(t *testing.T) {
	api := query.NewHandler(query.HandlerConfig{Reader: querytest.Fabric(8, 20), Options: query.Options{Fabric: "live"}})
	server := httptest.NewServer(page.Handler(api))
	defer server.Close()
	v := pagetest.Visit(t, server.URL, "dark")
	v.SetWindow(2)
	v.CheckCells(v.Screenshot("first"), 8)
	v.Click("#signals button:nth-child(2)")
	v.Wait("csigscope.current().signal === 'min_abw_ratio'")
	v.Click("#levels label:nth-of-type(4)")
	v.Wait("csigscope.current().level === 'stage'")
	if got := pagetest.Evaluate[float64](v, "csigscope.current().window"); got != 2 {
		t.Errorf("another signal moved the time to window %v, want 2", got)
	}
	v.Screenshot("stage")
}

// TestEmptyStore holds that a page without data says so.
func TestEmptyStore(t *testing.T) {
	server := httptest.NewServer(page.Handler(query.NewHandler(query.HandlerConfig{Reader: &querytest.Memory{}})))
	defer server.Close()
	v := pagetest.Visit(t, server.URL, "light")
	if got := pagetest.Evaluate[string](v, "document.getElementById('banner').innerText"); !strings.HasPrefix(got, "Nothing is stored yet: ") || !strings.Contains(got, "Reload") {
		t.Errorf("page says %q, want that nothing is stored, and what to do", got)
	}
	v.Screenshot("empty")
}

// TestLargeMatrix draws 256 x 256 cells and holds the time of a frame: playing must
// stay smooth on an ordinary machine, so the bound is generous for a busy one.
func TestLargeMatrix(t *testing.T) {
	v := pagetest.Visit(t, report(t, large(256, 3)), "dark")
	took := pagetest.Evaluate[float64](v, `(() => {
		const took = [];
		for (let i = 0; i < 30; i++) {
			const start = performance.now();
			csigscope.setWindow(i %% 3);
			took.push(performance.now() - start);
		}
		return took.sort((a, b) => a - b)[15];
	})()`)
	t.Logf("a frame of 2 x 65536 cells takes %.1f ms (median)", took)
	if took > 150 {
		t.Errorf("a frame takes %.1f ms, want 33 ms and at most 150 on a busy machine", took)
	}
	v.SetWindow(1)
	picture := v.Screenshot("large")
	rects := pagetest.Evaluate[[]pagetest.Rect](v, "Array.from({length: 256}, (_, i) => csigscope.cellRect('right', i, 255 - i))")
	for i, want := range pagetest.Evaluate[[]*string](v, "Array.from({length: 256}, (_, i) => csigscope.cellColor('right', i, 255 - i))") {
		if got := pagetest.ColorAt(picture, rects[i]); want != nil && got != *want {
			t.Fatalf("cell %d,%d is %s, data asks for %s", i, 255-i, got, *want)
		}
	}
}

// large makes a bundle of every cell of size groups without going through rows.
func large(size, windows int) *query.Bundle {
	b := &query.Bundle{
		Version: query.Version, StepNS: 1e9, ResolutionNS: 1e9, MinObservations: 10, Levels: []string{"location"},
		Signals: []query.SignalInfo{{Name: "min_abw_ratio", Unit: "ratio", Direction: "min"}},
	}
	for i := range size {
		b.Groups = append(b.Groups, query.Group{ID: query.ID(i + 2), Name: fmt.Sprintf("rack%d", i+1), Level: "rack", Order: i})
		b.Locations = append(b.Locations, query.Location{
			ID: query.ID(i + 2), Name: fmt.Sprintf("leaf%d:up1", i+1), Set: i, DeviceIndex: i, StageIndex: i,
			Color: query.Color(fabric.Location{ID: 9, Name: fmt.Sprintf("leaf%d:up1", i+1), Device: fmt.Sprintf("leaf%d", i+1)}),
		})
	}
	cells := func(windows int) query.Cells {
		var c query.Cells
		m := &query.ModeColumns{}
		for i := range windows * size * size {
			w, src, dst := i/size/size, i/size%size, i%size
			heavy := uint64((i * 7919 / 31) % 40)
			c.Window, c.Src, c.Dst, c.Kind = append(c.Window, w), append(c.Src, src), append(c.Dst, dst), append(c.Kind, 1)
			c.Observations, c.Heavy = append(c.Observations, 100), append(c.Heavy, heavy)
			c.Untouched, c.Trimmed = append(c.Untouched, 0), append(c.Trimmed, 0)
			c.Mean = append(c.Mean, float64((i*31+w)%100)/100)
			c.Min, c.Max = append(c.Min, 0), append(c.Max, 1)
			m.Mode, m.ModeCount = append(m.Mode, (src+w)%size), append(m.ModeCount, heavy)
			m.RunnerUp, m.RunnerUpCount = append(m.RunnerUp, -1), append(m.RunnerUpCount, 0)
		}
		c.Modes = map[string]*query.ModeColumns{"location": m}
		return c
	}
	data := query.SignalData{Cells: cells(windows), Total: cells(1)}
	for i, heavy := range data.Cells.Heavy {
		data.Sum.Observations += data.Cells.Observations[i]
		data.Sum.Heavy += heavy
	}
	for w := range windows {
		b.Windows = append(b.Windows, query.NS(querytest.Start.Add(time.Duration(w)*time.Second).UnixNano()))
		for l := range size {
			data.Locations.Window = append(data.Locations.Window, w)
			data.Locations.Location = append(data.Locations.Location, l)
			data.Locations.Observations = append(data.Locations.Observations, 1000)
			data.Locations.Heavy = append(data.Locations.Heavy, uint64(l))
		}
	}
	b.Data = []query.SignalData{data}
	return b
}
