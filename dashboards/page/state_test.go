package page_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/dashboards/page/pagetest"
	"github.com/csigscope/csigscope/decode/csig"
)

// fragment returns the state in the page's address, once it has the key.
func fragment(t *testing.T, v *pagetest.Visitor, key string) url.Values {
	t.Helper()
	v.Wait("location.hash.includes('" + key + "=')")
	values, err := url.ParseQuery(strings.TrimPrefix(pagetest.Evaluate[string](v, "location.hash"), "#"))
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// TestThresholds checks that the page shows and draws its server's thresholds exactly.
func TestThresholds(t *testing.T) {
	server := httptest.NewServer(configured(t, api.Config{Reader: querytest.Fabric(4, 10), Thresholds: aggregate.Thresholds{Onset: 0.5, Clear: 0.0004}}))
	t.Cleanup(server.Close)
	v := pagetest.Visit(t, server.URL+"/#signal=max_delay&src=rack1&dst=rack2", "dark")
	const says = "congested from 50 % heavy until below 0.04 %"
	v.Says("congested-note", says)
	v.Says("congested-word", "from a window with at least 50 % heavy observations until one with less than 0.04 %. Here these are windows of 1 s; in the verdict windows of 1 s, or of 1 min if the range is longer than an hour")
	v.Says("detail-lines", "Left axis: the mean. Right axis: the heavy share, with lines at 50 % (congested from) and 0.04 % (until below).")
	v.Wait("csigscope.current().series")
	// The parts of the plot's width that have the line color, at two heavy shares.
	red := pagetest.Evaluate[[]float64](v, `(() => {
		const plot = document.querySelector('#detail-chart canvas'), over = document.querySelector('#detail-chart .u-over');
		const [box, inner] = [plot, over].map((e) => e.getBoundingClientRect());
		const [left, top, width, height] = [inner.left - box.left, inner.top - box.top, inner.width, inner.height].map(Math.round);
		const {data} = plot.getContext('2d').getImageData(left, top, width, height);
		return [0.5, 0.75].map((share) => {
			let n = 0;
			const begin = 4 * width * (Math.round(height * (1 - share)) - 1);
			for (let i = begin; i < begin + 3 * 4 * width; i += 4) n += data[i] > 240 && data[i + 1] < 120;
			return n / width;
		});
	})()`)
	if red[0] < 0.9 || red[1] > 0.1 {
		t.Errorf("a line is drawn along %.2f of the plot at the onset, and %.2f of it above", red[0], red[1])
	}
}

// TestSteps checks that the page offers only windows that the store's rows can be merged into.
func TestSteps(t *testing.T) {
	server := httptest.NewServer(configured(t, api.Config{Reader: querytest.Fabric(4, 10)})) // rows of 1 s
	t.Cleanup(server.Close)
	v := pagetest.Visit(t, server.URL, "dark")
	got := pagetest.Evaluate[[]string](v, "[...document.querySelectorAll('#step option')].filter((o) => !o.disabled).map((o) => o.text)")
	if want := []string{"automatic", "1 s", "10 s", "1 min", "10 min", "1 h"}; !slices.Equal(got, want) {
		t.Errorf("the page offers windows of %q, want %q", got, want)
	}
	v.Open(server.URL + "/#step=10ms")
	v.Says("banner", "No rows are stored for windows of 10 ms: the length of the windows is automatic.")
	v.Wait("document.getElementById('step').value === '' && !location.hash.includes('step')")
}

// TestStates checks that the page shows its server's states by name, explains them, and says what
// to do about cells that are not judged.
func TestStates(t *testing.T) {
	memory := querytest.Fabric(4, 10)
	for i := range memory.Rows {
		if r := &memory.Rows[i]; r.Signal == csig.MinABW && r.Src == memory.GroupRows[0].ID {
			r.Heavy, r.HeavySum, r.Unjudged = 0, 0, r.Observations
		}
	}
	v := pagetest.Visit(t, serve(t, memory)+"#signal=min_abw", "dark")
	index := map[aggregate.GroupID]int{}
	for i, g := range memory.GroupRows {
		index[g.ID] = i
	}
	extent, err := memory.Extent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows, err := memory.Cells(t.Context(), query.Question{Signal: csig.MinABW, From: extent.First, To: extent.Last, Step: extent.Last.Sub(extent.First)})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[aggregate.State]int{}
	for i := range rows {
		r := &rows[i]
		counts[r.State]++
		if got := pagetest.Evaluate[string](v, "csigscope.cell(%d, %d).state", index[r.Src], index[r.Dst]); got != r.State.String() {
			t.Errorf("%d to %d is %s, the server says %s", r.Src, r.Dst, got, r.State)
		}
	}
	if counts[aggregate.NotJudged] == 0 || counts[aggregate.Congested]+counts[aggregate.Brief] == 0 {
		t.Fatalf("the cells are %v", counts)
	}
	for state := range aggregate.NumStates {
		item := pagetest.Evaluate[[]string](v, "(({textContent, title}) => [textContent, title])(document.querySelector('#states .%s'))", state)
		word := strings.ReplaceAll(state.String(), "_", " ")
		if n := counts[state]; item[0] != fmt.Sprintf("%d %s", n, word) && state != aggregate.NoData || !strings.HasPrefix(item[1], word) {
			t.Errorf("%s is listed as %q, want %d, with the title %q", state, item[0], n, item[1])
		}
	}
	when := func() string {
		return pagetest.Evaluate[string](v, "document.querySelector('#states .end').textContent + ' ' + document.getElementById('congested-word').textContent")
	}
	if got := when(); !strings.HasPrefix(got, "at the end of the range: from a window with") || !strings.Contains(got, "Here these are windows of 1 s;") {
		t.Errorf("of the whole range, the states are %q", got)
	}
	v.SetWindow(2)
	if got := when(); !strings.HasPrefix(got, "at the end of the window: ") {
		t.Errorf("of a window, the states are %q", got)
	}
	v.Says("judge-note", "not judged: "+aggregate.HowToJudge(csig.MinABW)+".")
	v.Click("#signals button:nth-child(3)")
	v.Wait("csigscope.current().signal === 'max_delay'")
	v.Says("judge-note", "")
	v.Says("judge-word", aggregate.HowToJudge(csig.MaxDelay))
}

// TestAddressHoldsState leaves a page in a state and opens its address in another tab.
func TestAddressHoldsState(t *testing.T) {
	address := serve(t, querytest.Fabric(16, 30))
	v := pagetest.Visit(t, address, "dark")
	v.Click("#signals button:nth-child(3)")
	v.Wait("csigscope.current().signal === 'max_delay'")
	v.Click("#levels label:nth-of-type(3)")
	v.Wait("csigscope.current().level === 'device'")
	v.Click("#legend li:nth-child(2) button")
	v.Click("#theme") // dark
	v.Click("#theme") // light
	facts := func() string { return pagetest.Evaluate[string](v, "document.getElementById('facts').textContent") }
	if got := facts(); !strings.Contains(got, "2026-01-20 10:00:00 UTC+01:00") || !strings.Contains(got, "heavy, whole range") {
		t.Errorf("the header says %q", got)
	}
	v.Import("Format", "format.js")
	if got := pagetest.Evaluate[string](v, "Format.time(1784000000000000000n, 1e9, false, true)"); !strings.HasSuffix(got, " UTC+02:00") {
		t.Errorf("a time of July is %q", got)
	}
	v.Says("zone", "Show UTC")
	v.Click("#zone")
	v.Says("zone", "Show local time")
	if got := facts(); !strings.Contains(got, "2026-01-20 09:00:00 UTC") {
		t.Errorf("in UTC, the header says %q", got)
	}
	v.SetWindow(17)
	v.Do(chromedp.Focus(chromedp.CSS("#mode")))
	v.Press(kb.ArrowDown, kb.ArrowDown, kb.End, kb.Enter, kb.Escape)
	v.Wait("csigscope.current().series && !csigscope.current().waiting")
	state := pagetest.Evaluate[map[string]any](v, "csigscope.current()")
	if state["signal"] != "max_delay" || state["level"] != "device" || state["theme"] != "light" || state["window"] != 17.0 {
		t.Fatalf("the state is %v", state)
	}
	left := fragment(t, v, "src")
	for key, want := range map[string]string{
		"signal": "max_delay", "level": "device", "t": "2026-01-20T09:00:17Z", "src": "rack2", "dst": "rack16", "theme": "light", "utc": "1",
	} {
		if got := left.Get(key); got != want {
			t.Errorf("the address has %s=%q, want %q", key, got, want)
		}
	}
	v.Open(address + "#" + left.Encode())
	v.Wait("csigscope.current().series && !csigscope.current().waiting")
	again := pagetest.Evaluate[map[string]any](v, "csigscope.current()")
	for key, want := range state {
		if key != "chosen" && key != "kept" && again[key] != want {
			t.Errorf("%s is %v after the address was opened, was %v", key, again[key], want)
		}
	}
	if chosen, _ := again["chosen"].(map[string]any); chosen["src"] != 1.0 || chosen["dst"] != 15.0 {
		t.Errorf("the cell %v is chosen after the address was opened, want 1, 15", chosen)
	}
	v.CheckCells(v.Screenshot("again"), 16)
	// Unknown values are ignored, whatever they are.
	pagetest.Evaluate[chromedp.Void](v, "location.hash = '#signal=nonsense&level=toString&t=2026-99-99T00:00:00Z&src=<b>&dst=&at=%%00&theme=x&live=9&range=-1'")
	v.Wait("csigscope.current().level === 'location' && csigscope.current().window === -1 && csigscope.current().chosen === null")
}

// TestDetailClosesEarly checks that flows and findings are requested for the cell that was
// selected when their timer began, even if nothing was drawn since the cell was closed.
func TestDetailClosesEarly(t *testing.T) {
	v := pagetest.Visit(t, serve(t, querytest.Fabric(16, 30)), "dark")
	pagetest.Evaluate[chromedp.Void](v, `{
		window.held = [];
		const begin = window.setTimeout;
		window.setTimeout = (call, ms) => ms === 300 ? held.push(call) : begin(call, ms);
	}`)
	v.Do(chromedp.Focus(chromedp.CSS("#mode")))
	v.Press(kb.ArrowDown, kb.Enter)
	v.Wait("held.length && csigscope.current().series")
	closed := pagetest.Evaluate[bool](v, `{
		const draw = window.requestAnimationFrame;
		window.requestAnimationFrame = (call) => held.push(() => draw(call));
		for (let i = 0; i < 2; i++) document.getElementById("mode").dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
		window.requestAnimationFrame = draw;
		for (const call of held) call();
		csigscope.current().chosen === null;
	}`)
	if !closed {
		t.Fatal("Escape did not close the cell")
	}
	v.Wait(`document.getElementById("detail").hidden`)
}

// TestDetailOfAnotherCell checks that flows and findings of a cell are not shown below the name of the next one, however
// long the server takes for those.
func TestDetailOfAnotherCell(t *testing.T) {
	memory := querytest.Fabric(16, 30)
	next := served(t, memory, nil)
	var away atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			<-r.Context().Done()
			return
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	v := pagetest.Visit(t, server.URL+"#src=rack4&dst=rack5", "dark")
	v.Says("detail-flows", "No flow of this cell is stored in this range.")
	away.Store(true)
	v.Import("App", "app.js")
	pagetest.Evaluate[chromedp.Void](v, "App.choose({ src: 1, dst: 2 }), undefined")
	v.Wait("document.getElementById('detail-title').textContent.includes('rack2')")
	for _, list := range []string{"ports", "flows", "findings"} {
		if got := pagetest.Evaluate[string](v, "document.getElementById('detail-%s').textContent", list); got != "\u2026" {
			t.Errorf("%s of the next cell: %q, before the server has answered", list, got)
		}
	}
}

// TestAddressOfHistory checks that a link shows the range in which it was made, even after more was
// stored.
func TestAddressOfHistory(t *testing.T) {
	memory := querytest.Fabric(8, 20)
	address := serve(t, memory)
	v := pagetest.Visit(t, address+"#signal=max_delay&range=300", "dark")
	v.SetWindow(5)
	left := fragment(t, v, "from")
	if left.Get("from") != "2026-01-20T09:00:00Z" || left.Get("to") != "2026-01-20T09:00:20Z" || left.Has("range") {
		t.Errorf("the address holds %v, want the range of the data", left)
	}
	memory.Rows = append(memory.Rows, querytest.Fabric(8, 40).Rows...)
	v.Open(address + "#" + left.Encode())
	if got := pagetest.Evaluate[string](v, "document.getElementById('when').textContent"); !strings.Contains(got, "6 / 20") {
		t.Errorf("the link shows %q, want window 6 of 20", got)
	}
	v.Click("#reload")
	if got := pagetest.Evaluate[string](v, "document.getElementById('range').value"); got != "fixed" {
		t.Errorf("the range is %q, want that of the link", got)
	}
}

// TestEndOfTime: everything that the page asks for ends by the end of all times, where a step goes on, and so does its
// address.
func TestEndOfTime(t *testing.T) {
	memory := querytest.Fabric(4, 2)
	for _, row := range memory.Rows {
		row.Window = aggregate.EndOfTime - int64(time.Second)
		memory.Rows = append(memory.Rows, row)
	}
	v := pagetest.Visit(t, serve(t, memory), "dark")
	v.Import("App", "app.js")
	pagetest.Evaluate[chromedp.Void](v, "App.setWindow(App.model.windows.length - 1), App.choose({ src: 0, dst: 1 })")
	v.Wait("!csigscope.current().waiting && csigscope.current().series && document.getElementById('detail-flows').textContent.length > 1")
	if to := fragment(t, v, "to").Get("to"); to != "2106-01-01T00:00:00Z" {
		t.Errorf("the address holds the end %s", to)
	}
}

// TestKeyboard uses the page without a pointer.
func TestKeyboard(t *testing.T) {
	v := pagetest.Visit(t, serve(t, querytest.Fabric(16, 30)), "dark")
	spoken := func() string { return pagetest.Evaluate[string](v, "document.getElementById('spoken').textContent") }
	v.Do(chromedp.Focus(chromedp.CSS("#signals button[aria-selected=true]")))
	v.Press(kb.ArrowRight)
	v.Wait("csigscope.current().signal === 'min_abw_ratio'")
	if got := pagetest.Evaluate[string](v, "csigscope.current().signal + document.activeElement.dataset.signal"); got != "min_abw_ratiomin_abw_ratio" {
		t.Errorf("after an arrow on the tabs: signal and focus are %s", got)
	}
	v.Do(chromedp.Focus(chromedp.CSS("#mean")))
	v.Press(kb.ArrowDown)
	if got := pagetest.Evaluate[string](v, "getComputedStyle(document.getElementById('mean')).outlineStyle"); got != "solid" {
		t.Errorf("focus at the keyboard has the outline %s, want a visible one", got)
	}
	for _, step := range []struct{ key, want string }{
		{kb.PageDown, "rack11 → rack1:"},
		{kb.PageDown, "rack16 → rack1:"},
		{kb.End, "rack16 → rack16:"},
		{kb.Home, "rack16 → rack1:"},
		{kb.PageUp, "rack6 → rack1:"},
		{kb.ArrowLeft, "rack6 → rack1:"},
	} {
		v.Press(step.key)
		if got := spoken(); !strings.HasPrefix(got, step.want) {
			t.Errorf("announced %q, want %q", got, step.want)
		}
	}
	v.Do(chromedp.Focus(chromedp.CSS("#timeline")))
	v.Press(kb.ArrowRight, kb.ArrowRight, kb.ArrowDown)
	if got := spoken(); !strings.Contains(got, "heavy or not") || pagetest.Evaluate[float64](v, "csigscope.current().window") != 2 {
		t.Errorf("the time heatmap announced %q at window %v, want window 2", got, pagetest.Evaluate[float64](v, "csigscope.current().window"))
	}
	window := func(want float64, after string) {
		if got := pagetest.Evaluate[float64](v, "csigscope.current().window"); got != want {
			t.Errorf("after %s the page shows window %v, want %v", after, got, want)
		}
	}
	v.Press("w")
	window(-1, "w")
	v.Press("w")
	window(2, "a second w")
	for _, at := range []string{"#mode", "#timeline", "#map", "#scrubber", "#signals [aria-selected=true]", "#levels :checked"} {
		v.Do(chromedp.Focus(chromedp.CSS(at)))
		for _, playing := range []string{"Pause", "Play"} {
			v.Press(" ")
			if got := pagetest.Evaluate[string](v, "document.getElementById('play').ariaLabel"); got != playing {
				t.Errorf("after the space bar on %s, the button reads %s, want %s", at, got, playing)
			}
		}
	}
	v.SetWindow(2)
	pagetest.Evaluate[chromedp.Void](v, "scrollTo(0, 0)")
	x, y := v.Cell("left", 2, 4).Middle()
	v.Do(chromedp.MouseClickXY(x, y))
	v.Wait("csigscope.current().chosen !== null")
	v.Press(kb.Escape) // the pointer is over the cell
	v.Wait("csigscope.current().chosen === null && document.getElementById('tip').hidden")
	v.Do(chromedp.MouseClickXY(x, y))
	v.Wait("csigscope.current().chosen !== null")
	v.Do(chromedp.Focus(chromedp.CSS("#zone")))
	v.Press(kb.Escape)
	v.Wait("csigscope.current().chosen === null")
	v.Press("?")
	v.Wait("document.getElementById('keyhelp').open")
	if words := pagetest.Evaluate[string](v, "document.getElementById('keyhelp').innerText"); !strings.Contains(words, "untouched") || !strings.Contains(words, "fewer than 10") {
		t.Errorf("the help says %q", words)
	}
	if top := pagetest.Evaluate[float64](v, "document.getElementById('keyhelp').scrollTop"); top != 0 {
		t.Errorf("the help opens scrolled by %v pixels", top)
	}
	v.Screenshot("help")
	v.Press(kb.Escape)
	v.Wait("!document.getElementById('keyhelp').open")
}

// TestNarrowWindow checks that nothing is cut off on a phone.
func TestNarrowWindow(t *testing.T) {
	v := pagetest.Visit(t, serve(t, querytest.Fabric(16, 30)), "light")
	v.Resize(390, 3000)
	v.Wait("innerWidth === 390 && document.getElementById('mean').getBoundingClientRect().right <= 390")
	if got := pagetest.Evaluate[float64](v, "document.documentElement.scrollWidth"); got > 390 {
		t.Errorf("the page is %v pixels wide, the window 390", got)
	}
	v.SetWindow(22)
	v.CheckCells(v.Screenshot("narrow"), 16)
}
