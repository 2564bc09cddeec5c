package page_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/dashboards/page/pagetest"
	"github.com/csigscope/csigscope/decode/csig"
)

// link is a port's half of a link on the map.
type link struct {
	Cells int
	Color string
	X, Y  float64 // position in the viewport
}

func mapLink(v *pagetest.Visitor, port string) link {
	return pagetest.Evaluate[link](v, "csigscope.link(%q)", port)
}

// TestFabricMap compares the map with the modes of the cells.
func TestFabricMap(t *testing.T) {
	memory := querytest.Fabric(16, 30)
	v := pagetest.Visit(t, serve(t, memory), "dark")
	v.Import("App", "app.js")
	v.Resize(1400, 1500)
	v.Wait("innerHeight === 1500")
	const window = 22
	v.SetWindow(window)
	begin := querytest.Start.Add(window * time.Second)
	rows, err := memory.CellWindows(t.Context(), query.Question{Signal: csig.MinABW, From: begin, To: begin.Add(time.Second), Step: time.Second, Resolution: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	want := map[aggregate.LocationID]int{}
	for _, r := range rows {
		if r.Samples >= aggregate.MinObservations {
			want[r.Mode]++
		}
	}
	picture := v.Screenshot("map")
	colors := map[int]string{}
	for _, l := range memory.LocationRows {
		if l.Kind != "port" {
			continue
		}
		got := mapLink(v, l.Name)
		if got.Cells != want[l.ID] {
			t.Errorf("%s is the mode of %d cells on the map, of %d in the data", l.Name, got.Cells, want[l.ID])
		}
		if got.Cells == 4 { // the widest, drawn above all others
			if painted := pagetest.ColorAt(picture, pagetest.Rect{X: got.X, Y: got.Y}); painted != got.Color {
				t.Errorf("the link of %s is %s, want %s", l.Name, painted, got.Color)
			}
		}
		colors[got.Cells] = got.Color
	}
	if len(colors) < 3 || colors[1] == colors[4] {
		t.Errorf("links of different counts are drawn in %v", colors)
	}
	if joined := pagetest.Evaluate[[]int](v, "csigscope.links()"); joined[0] != 128 || joined[1] != 128 {
		t.Errorf("%d of %d ports have another end, want all of 128", joined[1], joined[0])
	}
	at := mapLink(v, "spine3:down5")
	v.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at.X, at.Y))
	v.Wait("document.getElementById('tip').innerText.includes('leaf5:up3')")
	v.Do(chromedp.MouseClickXY(at.X, at.Y))
	if got := pagetest.Evaluate[string](v, "App.model.locations[csigscope.current().highlight].name"); got != "spine3:down5" {
		t.Errorf("a click on a link marks %s", got)
	}
	v.Press(kb.Escape)
	v.Wait("csigscope.current().highlight === -1")
	checkDevice(v, t)
	v.Click("#levels label:nth-of-type(2)")
	v.Wait("csigscope.current().level === 'set'")
	v.SetWindow(window)
	for _, l := range memory.LocationRows {
		if l.Kind == "port" && mapLink(v, l.Name).Cells != want[l.ID] {
			t.Errorf("at the level set %s is the mode of %d cells on the map, of %d in the data", l.Name, mapLink(v, l.Name).Cells, want[l.ID])
		}
	}
	pagetest.Evaluate[chromedp.Void](v, "scrollTo(0, 0)")
	x, y := v.Cell("right", 3, 4).Middle()
	v.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y))
	v.Wait("!document.getElementById('tip').hidden")
	if tip := pagetest.Evaluate[string](v, "document.getElementById('tip').innerText"); strings.Contains(tip, "one of") || !strings.Contains(tip, " ports; press the cell for those named") {
		t.Errorf("at the level set a cell has ports that no tag names:\n%s", tip)
	}
	v.Click("#levels label:nth-of-type(3)")
	v.Wait("csigscope.current().level === 'device'")
	v.SetWindow(window)
	v.Do(chromedp.Focus(chromedp.CSS("#map")))
	v.Press(kb.ArrowRight, kb.Enter)
	if got := pagetest.Evaluate[string](v, "document.getElementById('spoken').textContent + ' / ' + App.model.locations[csigscope.current().highlight].name"); got[:6] != "leaf4:" || got[len(got)-8:] != " / leaf4" {
		t.Errorf("from the keyboard: %q", got)
	}
}

// checkDevice marks a device at the level location: the cells of its ports stand out, until Escape.
func checkDevice(v *pagetest.Visitor, t *testing.T) {
	t.Helper()
	v.Do(chromedp.Focus(chromedp.CSS("#map")))
	v.Press(kb.ArrowRight, kb.ArrowDown, kb.ArrowRight, kb.Enter)
	got := pagetest.Evaluate[[]string](v, `[...new Set(App.axes.project(App.frame.cells("location")).location)].filter((l) => App.lit().has(l)).map((l) => App.model.locations[l].device)`)
	if len(got) == 0 || strings.Trim(strings.Join(got, ""), "leaf3") != "" {
		t.Errorf("leaf3 marks the cells of locations of %q", got)
	}
	if pressed := pagetest.Evaluate[string](v, "[...document.querySelectorAll('#legend [aria-pressed=true]')].map((b) => b.innerText).join()"); !strings.Contains(pressed, "leaf3") {
		t.Errorf("leaf3 marks the entries %q of the list", pressed)
	}
	v.Press(kb.Escape)
	if got := pagetest.Evaluate[int](v, "csigscope.current().highlight"); got != -1 {
		t.Errorf("after Escape the location %d is marked", got)
	}
}

// TestLargeMap lays out a fabric of three stages and 336 switches with known peers.
func TestLargeMap(t *testing.T) {
	v := pagetest.Visit(t, serve(t, querytest.Fabric(2, 2)), "light")
	v.Import("FabricMap", "map.js")
	got := pagetest.Evaluate[struct {
		Ports, Joined, Outside int
		Stages                 []string
		Took                   float64
	}](v, `(() => {
		const locations = [];
		const port = (stage, device, orientation, n, peer) => locations.push({kind: "port", device, stage, orientation, peer,
			name: device + ":" + orientation + n, device_index: 0, rgb: [0, 0, 0]});
		for (let pod = 0; pod < 16; pod++) {
			for (let l = 0; l < 16; l++) for (let a = 0; a < 4; a++) {
				port("x-edge", "e" + pod + "-" + l, "up", a, "a" + pod + "-" + a);
				port("x-edge", "e" + pod + "-" + l, "down", a, "h" + pod + "-" + l + "-" + a);
				port("a-mid", "a" + pod + "-" + a, "down", l, "e" + pod + "-" + l);
			}
			for (let a = 0; a < 4; a++) for (let c = 0; c < 4; c++) {
				port("m-top", "c" + (4 * a + c), "down", pod, "a" + pod + "-" + a);
				port("a-mid", "a" + pod + "-" + a, "up", c, "c" + (4 * a + c));
			}
		}
		const map = new FabricMap(document.createElement("canvas"));
		const took = [];
		for (let i = 0; i < 3; i++) {
			const model = {locations};
			const start = performance.now();
			map.layout(model, 1400, 1, "light");
			map.draw({rows: [0], columns: {rows: 1, heavy: [3], modes: {location: {}}}, state: () => "congested", mode: () => 5}, "location", {});
			took.push(performance.now() - start);
		}
		const {ports, stages} = map.plan;
		return {
			took: Math.min(...took), ports: ports.length, joined: ports.filter((p) => p.mate && p.mate.mate === p).length,
			outside: ports.filter((p) => p.x < 0 || p.x > 1400 || p.endX < 0 || p.endX > 1400).length, stages: stages.map((s) => s.stage),
		};
	})()`)
	t.Logf("a map of %d ports takes %.0f ms", got.Ports, got.Took)
	if got.Ports != 3584 || got.Joined != 2560 || got.Outside != 0 {
		t.Errorf("%d ports, %d joined, %d outside, want 3584, 2560, 0", got.Ports, got.Joined, got.Outside)
	}
	if len(got.Stages) != 3 || got.Stages[0] != "m-top" || got.Stages[2] != "x-edge" {
		t.Errorf("the stages are %v from above, want m-top, a-mid, x-edge", got.Stages)
	}
	if got.Took > 2000 {
		t.Errorf("the map takes %.0f ms", got.Took)
	}
}
