package page_test

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/dashboards/page/pagetest"
)

// serve serves the page with a reader's data and returns its address.
func serve(t *testing.T, r query.Reader) string {
	t.Helper()
	server := httptest.NewServer(served(t, r, nil))
	t.Cleanup(server.Close)
	return server.URL + "/"
}

// TestPageDrawsItsData compares the pixels of every cell, in both matrices, in a window and over
// the whole range, with the colors computed from the data.
func TestPageDrawsItsData(t *testing.T) {
	url := serve(t, querytest.Fabric(16, 30))
	for _, theme := range []string{"dark", "light"} {
		t.Run(theme, func(t *testing.T) {
			v := pagetest.Visit(t, url, theme)
			for name, window := range map[string]int{"whole": -1, "early": 2, "late": 22} {
				v.SetWindow(window)
				v.CheckCells(v.Screenshot(name), 16)
			}
		})
	}
}

// TestPageSilence checks that a rack is drawn without data after its tap fell silent, and with data
// before.
func TestPageSilence(t *testing.T) {
	v := pagetest.Visit(t, serve(t, querytest.Fabric(16, 30)), "dark")
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

func TestPageReacts(t *testing.T) {
	v := pagetest.Visit(t, serve(t, querytest.Fabric(16, 30)), "light")
	v.SetWindow(22)
	x, y := v.Cell("right", 2, 4).Middle()
	v.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y))
	v.Wait("!document.getElementById('tip').hidden")
	v.Screenshot("tip")
	tip := pagetest.Evaluate[string](v, "document.getElementById('tip').innerText")
	for _, want := range []string{"rack3 → rack5", "mean", "Gbit/s", "observations", "samples", "trimmed", "tags"} {
		if !strings.Contains(tip, want) {
			t.Errorf("tooltip does not say %q:\n%s", want, tip)
		}
	}
	v.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 5, 5))
	v.Click("#signals button:nth-child(3)")
	v.Wait("csigscope.current().signal === 'max_delay'")
	v.Click("#levels label:nth-of-type(3)")
	v.Wait("csigscope.current().level === 'device'")
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

// TestTooltipFollows checks that a tooltip describes the window that is drawn, also after a reload.
func TestTooltipFollows(t *testing.T) {
	v := pagetest.Visit(t, serve(t, querytest.Fabric(16, 30)), "dark")
	v.Import("Source", "source.js")
	move := func(x, y float64) {
		t.Helper()
		v.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y))
		v.Wait("!document.getElementById('tip').hidden")
	}
	tip := func() string { return pagetest.Evaluate[string](v, "document.getElementById('tip').innerText") }
	move(v.Cell("right", 2, 4).Middle())
	whole := tip()
	v.SetWindow(22)
	late := tip()
	if late == whole {
		t.Errorf("in another window the tooltip still says:\n%s", late)
	}
	move(v.Cell("right", 2, 4).Middle())
	if want := tip(); late != want {
		t.Errorf("the tooltip says %q, after a move of the pointer %q", late, want)
	}
	pagetest.Evaluate[chromedp.Void](v, "Source.refresh(true)")
	v.SetWindow(-1)
	if got := tip(); got != whole {
		t.Errorf("after a reload the tooltip says %q, want %q", got, whole)
	}
}

// TestNamesFromRightToLeft checks that the source of a cell stands on the left of the arrow, whatever its script.
func TestNamesFromRightToLeft(t *testing.T) {
	memory := querytest.Fabric(4, 10)
	memory.GroupRows[0].Name, memory.GroupRows[1].Name = "\u05e8\u05e7\u05d0\u05d4", "\u0645\u062e\u0632\u0646"
	v := pagetest.Visit(t, serve(t, memory), "dark")
	x, y := v.Cell("left", 0, 1).Middle()
	v.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y), chromedp.MouseClickXY(x, y))
	v.Wait("!document.getElementById('detail').hidden")
	for _, heading := range []string{"#tip strong", "#detail-title"} {
		got := pagetest.Evaluate[[]float64](v, `(() => {
			const heading = document.querySelector(%q), range = document.createRange(), text = document.createTreeWalker(heading, NodeFilter.SHOW_TEXT);
			const lefts = [];
			while (text.nextNode()) {
				for (const name of [%q, %q]) {
					const from = text.currentNode.data.indexOf(name);
					if (from < 0) continue;
					range.setStart(text.currentNode, from);
					range.setEnd(text.currentNode, from + name.length);
					lefts.push(range.getBoundingClientRect().left);
				}
			}
			return lefts;
		})()`, heading, memory.GroupRows[0].Name, memory.GroupRows[1].Name)
		if len(got) != 2 || got[0] >= got[1] {
			t.Errorf("%s: the source and the destination begin at %v", heading, got)
		}
	}
}

// TestTimesOfDays checks that times have a date if the range is longer than a day.
func TestTimesOfDays(t *testing.T) {
	v := pagetest.Visit(t, serve(t, querytest.Fabric(4, 10))+"#utc=1&from=2026-01-19T00:00:00Z&to=2026-01-22T00:00:00Z", "dark")
	v.Import("App", "app.js")
	v.Do(chromedp.Focus(chromedp.CSS("#timeline")))
	v.Press(kb.End)
	v.Wait("!document.getElementById('tip').hidden")
	if got := pagetest.Evaluate[string](v, "document.querySelector('#tip strong').textContent"); !strings.Contains(got, " 2026-01-21 ") {
		t.Errorf("at the end of three days the tooltip is titled %q", got)
	}
	written := pagetest.Evaluate[[]string](v, `(() => {
		const g = App.timeline.context, text = g.fillText, out = [];
		g.constructor.prototype.fillText = function (t) { out.push(t); };
		App.relayout();
		App.drawAll();
		g.constructor.prototype.fillText = text;
		return out.filter((t) => /:\d\d$/.test(t));
	})()`)
	if len(written) < 2 || slices.ContainsFunc(written, func(at string) bool { return !strings.HasPrefix(at, "2026-01-") }) {
		t.Errorf("the time heatmap has the times %q", written)
	}
}

// TestPageKeepsTheTime checks that choosing another signal, level or length of windows keeps the time.
func TestPageKeepsTheTime(t *testing.T) {
	v := pagetest.Visit(t, serve(t, querytest.Fabric(8, 20)), "dark")
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
	pagetest.Evaluate[chromedp.Void](v, "document.getElementById('step').value = '10s', document.getElementById('step').dispatchEvent(new Event('change'))")
	v.Wait("document.getElementById('scrubber').max === '1'")
	if got := pagetest.Evaluate[float64](v, "csigscope.current().window"); got != 0 {
		t.Errorf("windows of 10 s moved the time to window %v, want 0, which contains it", got)
	}
}

// TestEmptyStore checks that a page without data says so.
func TestEmptyStore(t *testing.T) {
	v := pagetest.Visit(t, serve(t, &querytest.Memory{}), "light")
	if got := pagetest.Evaluate[string](v, "document.getElementById('banner').innerText"); !strings.HasPrefix(got, "Nothing is stored yet: ") || !strings.Contains(got, "reload the page") {
		t.Errorf("page says %q, want that nothing is stored, and what to do", got)
	}
	v.Screenshot("empty")
}

// TestLargeMatrix draws 256 x 256 cells and checks the frame time: playback must be smooth on an
// ordinary machine. The bound allows for a busy one.
func TestLargeMatrix(t *testing.T) {
	v := pagetest.Visit(t, serve(t, wide{&querytest.Memory{}, 256, 3}), "dark")
	for w := range 3 {
		v.SetWindow(w) // fetches it
	}
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
