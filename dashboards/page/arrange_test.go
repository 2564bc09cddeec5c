package page_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/dashboards/page/pagetest"
)

// podded returns the example fabric in pods of 12 racks.
func podded(racks, windows int) *querytest.Memory {
	memory := querytest.Fabric(racks, windows)
	for i := range memory.GroupRows {
		memory.GroupRows[i].Parent = fmt.Sprintf("pod%d", 1+i/12)
	}
	return memory
}

// axes returns the names of the matrices' sources and destinations.
func axes(v *pagetest.Visitor) (out struct{ Rows, Columns []string }) {
	v.Import("App", "app.js")
	return pagetest.Evaluate[struct{ Rows, Columns []string }](v, "({rows: App.axes.rows.map((r) => r.name), columns: App.axes.columns.map((c) => c.name)})")
}

// TestArrangement folds racks into pods, opens one pod, and shows only groups with heavy observations.
func TestArrangement(t *testing.T) {
	address := serve(t, podded(48, 6))
	v := pagetest.Visit(t, address, "dark")
	v.Click("#fold-label")
	if got := axes(v); strings.Join(got.Rows, " ") != "pod1 pod2 pod3 pod4" || len(got.Columns) != 4 {
		t.Errorf("folded, the axes are %v", got)
	}
	checkFolded(t, v)
	place := pagetest.Evaluate[pagetest.Rect](v, "(() => { const r = App.matrices[1].rect({row: 1, column: 0}), box = App.matrices[1].canvas.getBoundingClientRect(); return {...r, x: box.x + r.x, y: box.y + r.y}; })()")
	x, y := place.Middle()
	v.Do(chromedp.MouseClickXY(x, y))
	if got := axes(v); len(got.Rows) != 12 || got.Rows[0] != "rack13" || len(got.Columns) != 12 || got.Columns[0] != "rack1" {
		t.Errorf("a press on pod2 to pod1 shows %v", got)
	}
	v.Screenshot("pod")
	v.Click("#widen")
	v.Click("#congested + span")
	v.Do(chromedp.Focus(chromedp.CSS("#sort")))
	v.Press("w")
	v.Wait("document.getElementById('sort').value === 'worst' && App.view.worst")
	got := axes(v)
	loads := pagetest.Evaluate[[]float64](v, `App.axes.rows.map((row) => {
		const {state, share} = App.signal.frame(-1).cells("location");
		return App.axes.columns.reduce((sum, column) => {
			const at = row.members[0] * 48 + column.members[0];
			return sum + (state[at] > 1 && state[at] < 5 ? share[at] : 0);
		}, 0);
	})`)
	for i, load := range loads {
		if load == 0 || i > 0 && load > loads[i-1]+1e-6 {
			t.Errorf("row %s has the load %g after %v", got.Rows[i], load, loads[:i])
		}
	}
	left := fragment(t, v, "sort")
	v.Open(address + "#" + left.Encode())
	if again := axes(v); strings.Join(again.Rows, " ") != strings.Join(got.Rows, " ") {
		t.Errorf("the address shows the rows %v, were %v", again.Rows, got.Rows)
	}
}

// checkFolded compares a folded cell with the cells that it sums up.
func checkFolded(t *testing.T, v *pagetest.Visitor) {
	t.Helper()
	if got := pagetest.Evaluate[[]string](v, `(() => {
		const cells = App.signal.frame(-1).cells("location"), wrong = [];
		for (let row = 0; row < 4; row++) for (let column = 0; column < 4; column++) {
			const of = [];
			for (let s = 12 * row; s < 12 * row + 12; s++) for (let d = 12 * column; d < 12 * column + 12; d++) if (cells.state[48 * s + d]) of.push(48 * s + d);
			const share = of.reduce((sum, at) => sum + cells.share[at], 0) / of.length, at = 4 * row + column;
			const congested = of.some((i) => cells.state[i] === 3);
			if (Math.abs(App.cells.share[at] - share) > 1e-5 || (App.cells.state[at] === 3) !== congested) wrong.push(row + "," + column);
		}
		return wrong;
	})()`); len(got) > 0 {
		t.Errorf("folded cells differ from those that they are made of: %v", got)
	}
}

// TestZoom drags over cells; the page must show only these until Escape.
func TestZoom(t *testing.T) {
	v := pagetest.Visit(t, serve(t, querytest.Fabric(16, 6)), "light")
	drag := func(event input.DispatchMouseEventType, src, dst int) {
		x, y := v.Cell("left", src, dst).Middle()
		v.Do(chromedp.MouseEvent(event, x, y, chromedp.ButtonLeft, func(p *input.DispatchMouseEventParams) { p.Buttons = 1 }))
	}
	drag(input.DispatchMouseEventTypeMousePressed, 6, 2)
	drag(input.DispatchMouseEventTypeMouseMoved, 3, 4)
	drag(input.DispatchMouseEventTypeMouseReleased, 3, 4)
	if got := axes(v); strings.Join(got.Rows, " ") != "rack4 rack5 rack6 rack7" || strings.Join(got.Columns, " ") != "rack3 rack4 rack5" {
		t.Errorf("a drag shows %v", got)
	}
	v.Says("arrangement", "4 of 16 sources, 3 of 16 destinations")
	v.Do(chromedp.Focus(chromedp.CSS("#mean")))
	v.Press(kb.Escape, kb.Escape)
	if got := axes(v); len(got.Rows) != 16 || len(got.Columns) != 16 {
		t.Errorf("after Escape there are %d rows", len(got.Rows))
	}
}

// TestVerdict checks that each sentence selects its cells, and that a second press shows all cells
// again.
func TestVerdict(t *testing.T) {
	v := pagetest.Visit(t, serve(t, querytest.Fabric(16, 30)), "dark")
	lines := pagetest.Evaluate[[]string](v, "[...document.querySelectorAll('#verdict-list button')].map((b) => b.textContent)")
	if len(lines) == 0 || !strings.Contains(lines[0], "of heavy observations") {
		t.Fatalf("the verdict has the lines %q", lines)
	}
	if notes := pagetest.Evaluate[string](v, "document.getElementById('verdict-notes').textContent"); !strings.Contains(notes, " more places had heavy observations, but too few to count as congested") {
		t.Errorf("the verdict has the notes %q, want the further places", notes)
	}
	v.Click("#verdict-list li:nth-child(1) button")
	v.Import("App", "app.js")
	v.Wait("App.view.focus !== null && !csigscope.current().waiting")
	if got := pagetest.Evaluate[[]int](v, "[App.view.marked.length, App.view.marked.filter((c) => App.axes.at(c)).length, App.axes.rows.length]"); got[0] == 0 || got[1] != got[0] || got[2] == 16 {
		t.Errorf("%d cells are marked, %d of them shown, in %d rows", got[0], got[1], got[2])
	}
	v.Screenshot("statement")
	v.Click("#verdict-list li:nth-child(1) button")
	v.Wait("App.view.focus === null && App.view.highlight === -1 && App.axes.rows.length === 16")
	v.Click("#verdict-list li:nth-child(1) button")
	v.Wait("App.view.focus !== null")
	const all = "App.view.focus === null && !document.querySelector('#verdict-list [aria-pressed=true]')"
	v.Press(kb.Escape) // the focus is on the sentence
	v.Wait(all)
	v.Click("#verdict-list li:nth-child(1) button")
	v.Wait("App.view.focus !== null")
	pagetest.Evaluate[chromedp.Void](v, "document.getElementById('fold').click()")
	v.Wait(all)
}

// TestBandNames: pods that are narrower than their names are named as far as there is room, and never
// over each other.
func TestBandNames(t *testing.T) {
	v := pagetest.Visit(t, serve(t, podded(192, 2)), "dark")
	v.Import("App", "app.js")
	type band struct {
		Name                 string
		Begin, Length, Width float64
	}
	bands := pagetest.Evaluate[[]band](v, "(() => { const m = App.matrices[0]; return m.places(m.context, m.columns, m.left, m.width); })()")
	named, free := 0, 0.0
	for _, b := range bands {
		if b.Name == "" {
			continue
		}
		named++
		from := b.Begin + (b.Length-b.Width)/2
		if from < free {
			t.Errorf("%s begins at %g, and the name before it ends at %g", b.Name, from, free)
		}
		free = from + b.Width
	}
	if len(bands) != 16 || named < 6 || named == 16 {
		t.Errorf("%d of %d bands are named, want as many as there is room for: %+v", named, len(bands), bands)
	}
}

// TestPhone: on a telephone a tap on a cell brings its story into view.
func TestPhone(t *testing.T) {
	v := pagetest.Visit(t, serve(t, querytest.Fabric(16, 6)), "light")
	v.Resize(390, 800)
	v.Wait("innerWidth === 390 && document.getElementById('mean').getBoundingClientRect().right <= 390")
	pagetest.Evaluate[chromedp.Void](v, "document.getElementById('mode').scrollIntoView({block: 'center'})")
	place := v.Cell("right", 3, 4)
	scrolled := pagetest.Evaluate[float64](v, "scrollY")
	x, y := place.Middle()
	v.Do(chromedp.MouseClickXY(x, y-scrolled))
	v.Wait("csigscope.current().chosen !== null && (({top}) => top > -2 && top < 400)(document.getElementById('detail').getBoundingClientRect())")
}

// TestWords checks that the page explains its terms with the text of the help.
func TestWords(t *testing.T) {
	v := pagetest.Visit(t, serve(t, querytest.Fabric(4, 4)), "light")
	for _, word := range []string{"heavy", "heavy share", "untouched", "trimmed", "not judged", "min ABW"} {
		at := pagetest.Evaluate[pagetest.Rect](v, "(({x, y, width, height}) => ({x, y, width, height}))(document.querySelector('[data-word=\"%s\"]').getBoundingClientRect())", word)
		x, y := at.Middle()
		v.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y))
		v.Wait(fmt.Sprintf("document.querySelector('[data-word=\"%s\"]').title.length > 10", word))
	}
	words := pagetest.Evaluate[[]string](v, "[...document.querySelectorAll('#words dt')].map((e) => e.textContent)")
	for _, want := range []string{"congested", "brief", "heavy share", "untouched", "trimmed", "locator", "epoch", "not judged"} {
		if !strings.Contains(" "+strings.Join(words, ", ")+",", " "+want+",") {
			t.Errorf("the help does not explain %q", want)
		}
	}
}

// TestPictures takes screenshots for review, in the folder CSIGSCOPE_TEST_SCREENSHOTS.
func TestPictures(t *testing.T) {
	if os.Getenv("CSIGSCOPE_TEST_SCREENSHOTS") == "" {
		t.Skip("takes pictures for people to look at")
	}
	for racks, windows := range map[int]int{16: 30, 96: 8, 256: 3} {
		address := serve(t, podded(racks, windows))
		for _, theme := range []string{"dark", "light"} {
			v := pagetest.Visit(t, address, theme)
			name := fmt.Sprintf("%d-%s", racks, theme)
			v.Screenshot(name)
			if theme == "dark" {
				v.See(emulation.SetEmulatedVisionDeficiencyTypeDeuteranopia)
				v.Screenshot(name + "-deuteranopia")
				v.See(emulation.SetEmulatedVisionDeficiencyTypeNone)
			}
			v.Click("#congested + span")
			v.Do(chromedp.Focus(chromedp.CSS("#sort")))
			v.Press("w")
			v.Screenshot(name + "-heavy-worst")
			if racks > 16 {
				v.Open(address + "#fold=1")
				v.Screenshot(name + "-folded")
			}
			v.Open(address)
			v.Resize(390, 1400)
			v.Wait("innerWidth === 390 && document.getElementById('mean').getBoundingClientRect().right <= 390")
			v.Screenshot(name + "-phone")
		}
	}
}

// TestLoading checks that the page says that it is loading until data arrives, and that a pressed
// tab is selected while its data loads.
func TestLoading(t *testing.T) {
	var held atomic.Pointer[chan struct{}]
	first := make(chan struct{})
	held.Store(&first)
	inner := served(t, querytest.Fabric(4, 4), nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/bundle" {
			<-*held.Load()
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	v := pagetest.Enter(t, server.URL+"/", "dark", "")
	v.Wait("document.getElementById('loading')?.offsetHeight > 0 && document.getElementById('main').hidden")
	close(first)
	v.Wait(pagetest.Drawn)
	if pagetest.Evaluate[bool](v, "document.getElementById('loading').offsetHeight > 0") {
		t.Error("the page says that it loads after it has drawn")
	}
	next := make(chan struct{})
	held.Store(&next)
	v.Click("#signals button:nth-child(3)")
	v.Wait("document.querySelector('#signals [aria-selected=true]').dataset.signal === 'max_delay' && csigscope.current().signal === 'min_abw'")
	v.Says("busy", "Loading max delay…")
	close(next)
	v.Wait("csigscope.current().signal === 'max_delay' && document.getElementById('busy').hidden && document.getElementById('main').ariaBusy === 'false'")
}
