package page_test

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/dashboards/page"
	"github.com/csigscope/csigscope/dashboards/page/pagetest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// served returns the page with the whole API over a reader and the live windows in memory.
func served(t *testing.T, r query.Reader, memory *table.Memory) http.Handler {
	t.Helper()
	return configured(t, api.Config{Reader: r, Memory: memory, Fabric: "example pod"})
}

func configured(t *testing.T, c api.Config) http.Handler {
	t.Helper()
	a, err := api.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return page.Handler(a)
}

// cellAt returns a reader's 1 s windows of a cell by window number.
func cellAt(t *testing.T, r query.Reader, s csig.Signal, src, dst aggregate.GroupID) map[int]aggregate.CellWindow {
	t.Helper()
	extent, err := r.Extent(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	rows, err := r.CellWindows(context.Background(), query.Question{
		Signal: s, From: extent.First, To: extent.Last, Step: time.Second, Resolution: time.Second, Src: &src, Dst: &dst,
	})
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]aggregate.CellWindow{}
	for _, row := range rows {
		out[int(time.Duration(row.Start-extent.First.UnixNano())/time.Second)] = row
	}
	return out
}

// TestFlowsOfSeconds checks that the page says of flows and ports that they are those of whole seconds, if it shows
// another range.
func TestFlowsOfSeconds(t *testing.T) {
	memory := querytest.Fabric(4, 10)
	memory.Resolution = 10 * time.Millisecond
	v := pagetest.Visit(t, serve(t, memory)+"#step=10ms&from=2026-01-20T09:00:02Z&to=2026-01-20T09:00:04.5Z&src=rack1&dst=rack2", "dark")
	for window := -1; window < 1; window++ {
		v.SetWindow(window)
		v.Says("detail-flows-note", "in whole seconds")
		v.Says("detail-ports-note", "in whole seconds")
	}
	v.Open(strings.Replace(pagetest.Evaluate[string](v, "location.href"), ".5Z", "Z", 1))
	v.SetWindow(-1)
	v.Says("detail-flows-note", "")
}

// TestMeanOfOneWindow checks that a cell's chart shows the mean of a window between windows without data.
func TestMeanOfOneWindow(t *testing.T) {
	memory := querytest.Fabric(4, 10)
	for i := range memory.Rows {
		memory.Rows[i].Heavy, memory.Rows[i].HeavySum = 0, 0 // whose bar would cover the mean
	}
	v := pagetest.Visit(t, serve(t, memory)+"#signal=min_abw&from=2026-01-16T00:00:00Z&to=2026-01-24T00:00:00Z&src=rack1&dst=rack2", "dark")
	v.Wait("csigscope.current().series")
	points := pagetest.Evaluate[int](v, `(() => {
		const plot = document.querySelector('#detail-chart canvas'), over = document.querySelector('#detail-chart .u-over');
		const [box, inner] = [plot, over].map((e) => e.getBoundingClientRect());
		const { data } = plot.getContext('2d').getImageData(...[inner.left - box.left, inner.top - box.top, inner.width, inner.height].map(Math.round));
		let n = 0;
		for (let i = 0; i < data.length; i += 4) n += data[i] > 235 && data[i + 1] > 235 && data[i + 2] > 235 && data[i + 3] > 200;
		return n;
	})()`)
	if points == 0 {
		t.Error("the only mean is not drawn")
	}
}

// TestCellDetail selects a congested cell and compares its details with the reader's data: facts,
// timeline, flows and findings.
func TestCellDetail(t *testing.T) {
	memory := querytest.Fabric(16, 30)
	src, dst := memory.GroupRows[3].ID, memory.GroupRows[4].ID // rack4 to rack5, the incast
	want := cellAt(t, memory, csig.MaxDelay, src, dst)
	at := want[22].Mode
	if at == aggregate.NoLocation {
		t.Fatal("the cell is not congested in window 22")
	}
	memory.FlowRows = []querytest.Flow{
		{Window: querytest.Start.Add(22 * time.Second), Signal: csig.MaxDelay, FlowTotal: query.FlowTotal{
			Flow:     store.Flow{Src: netip.MustParseAddr("10.0.3.1"), Dst: netip.MustParseAddr("fd00::5"), SrcPort: 4791, DstPort: 7, Proto: 17},
			SrcGroup: src, DstGroup: dst, Kind: decode.Tag, Observations: 10, Heavy: 10, Location: at, LocationHeavy: 9, Windows: 1,
		}},
		{Window: querytest.Start.Add(22 * time.Second), Signal: csig.MaxDelay, FlowTotal: query.FlowTotal{
			SrcGroup: src, DstGroup: dst, Kind: decode.Tag, Observations: 30, Heavy: 2, Location: at, LocationHeavy: 2, Windows: 1,
		}},
		{Window: querytest.Start.Add(3 * time.Second), Signal: csig.MaxDelay, FlowTotal: query.FlowTotal{
			Flow: store.Flow{Src: netip.MustParseAddr("10.9.9.9"), Dst: netip.MustParseAddr("10.9.9.8")}, SrcGroup: src, DstGroup: dst, Kind: decode.Tag, Observations: 4,
		}},
	}
	var device string
	for i := range memory.LocationRows {
		if location := &memory.LocationRows[i]; location.ID == at {
			device = location.Device
			location.Candidates, location.CandidateCount = []string{device + ":down1", device + ":down2"}, 3 // one of them has no name
		}
	}
	finding := query.FindingRow{
		Kind: "stuck-port", ID: 7, Severity: "warning", From: querytest.Start.UnixNano(), To: querytest.Start.Add(time.Minute).UnixNano(), Count: 12,
		Device: device, Evidence: "<b>always the same</b>",
	}
	elsewhere := finding
	elsewhere.Device, elsewhere.Evidence = "leaf99", "of no interest here"
	untimed := finding
	untimed.Kind, untimed.From, untimed.To = "orphan-tag", 0, 0
	memory.FindingRows = []query.FindingRow{finding, elsewhere, untimed}
	server := httptest.NewServer(served(t, memory, nil))
	defer server.Close()
	v := pagetest.Visit(t, server.URL+"/#signal=max_delay&step=1s", "dark")
	v.SetWindow(22)
	v.Do(chromedp.Focus(chromedp.CSS("#mode")))
	v.Press(kb.ArrowDown, kb.ArrowDown, kb.ArrowDown, kb.ArrowDown, kb.ArrowRight, kb.ArrowRight, kb.ArrowRight, kb.ArrowRight, kb.Enter, kb.Escape)
	v.Wait("csigscope.current().series && ['flows', 'findings'].every((list) => document.getElementById('detail-' + list).textContent !== '\u2026')")
	checkDetail(t, v, memory, want[22], device)
	checkPorts(t, v, memory, want[22])
	checkSeries(t, v, want)
	v.Resize(1400, 1250)
	v.Wait("innerHeight === 1250")
	v.Screenshot("chosen")

	v.Open(server.URL + "/#" + fragment(t, v, "src").Encode())
	v.Wait("csigscope.current().series && document.getElementById('detail-findings').innerText.includes('stuck-port')")
	pagetest.Evaluate[chromedp.Void](v, "document.getElementById('detail').scrollIntoView()")
	over := pagetest.Evaluate[pagetest.Rect](v, "(({x, y, width, height}) => ({x, y, width, height}))(document.querySelector('#detail-chart .u-over').getBoundingClientRect())")
	x, y := over.X+over.Width-1, over.Y+10
	v.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y), chromedp.MouseClickXY(x, y))
	v.Wait("csigscope.current().window === 29")
	v.SetWindow(-1)
	v.Wait("document.getElementById('detail-places').innerText.includes('runner-up')")
	v.Click("#detail-close")
	v.Wait("document.getElementById('detail').hidden && csigscope.current().chosen === null")
}

// checkDetail compares the cell's details with a row of the reader.
func checkDetail(t *testing.T, v *pagetest.Visitor, memory *querytest.Memory, row aggregate.CellWindow, device string) {
	t.Helper()
	v.Import("Format", "format.js")
	var name string
	for _, location := range memory.LocationRows {
		if location.ID == row.Mode {
			name = location.Name
		}
	}
	text := func(id string) string {
		return pagetest.Evaluate[string](v, "document.getElementById(%q).innerText.replaceAll('\u202f', '')", id)
	}
	share := func(n, of uint64) string {
		return pagetest.Evaluate[string](v, "Format.share(%d / %d)", n, of)
	}
	for id, wants := range map[string][]string{
		"detail-title":    {"rack4 → rack5"},
		"detail-facts":    {"congested", pagetest.Evaluate[string](v, "Format.quantity(%v, 'ns')", row.MeanValue()), share(row.Heavy, row.Observations)},
		"detail-places":   {name + " mode", share(row.ModeCount, row.Heavy)},
		"detail-flows":    {"10.0.3.1:4791 → [fd00::5]:7", "heavy observations: 10, at " + name, "everything else in these windows, also of named flows", "observations: 30, heavy: 2, at " + name},
		"detail-findings": {"stuck-port (warning)", "12 times", device + ", <b>always the same</b>", "orphan-tag", device + ", at an unknown time, <b>"},
	} {
		for _, want := range wants {
			if got := text(id); !strings.Contains(got, want) {
				t.Errorf("%s does not say %q:\n%s", id, want, got)
			}
		}
	}
	if all := text("detail-flows") + text("detail-findings"); strings.Contains(all, "10.9.9.9") || strings.Contains(all, "of no interest") {
		t.Errorf("records of another time or place are shown:\n%s", all)
	}
}

// checkPorts compares the listed ports and their probabilities with a row.
func checkPorts(t *testing.T, v *pagetest.Visitor, memory *querytest.Memory, row aggregate.CellWindow) {
	t.Helper()
	locations := map[aggregate.LocationID]fabric.Location{}
	for _, location := range memory.LocationRows {
		locations[location.ID] = location
	}
	list := row.Candidates(func(id aggregate.LocationID) ([]string, int) {
		return locations[id].Candidates, locations[id].CandidateCount
	})
	if len(list) < 2 {
		t.Fatalf("the ports that may be the bottleneck are %v", list)
	}
	v.Wait("document.getElementById('detail-ports').children.length > 1")
	var want []string
	rest := 1.0
	for _, c := range list {
		want = append(want, c.Port+pagetest.Evaluate[string](v, "Format.share(%v)", c.Probability))
		rest -= c.Probability
	}
	want = append(want, "ports that are not listed"+pagetest.Evaluate[string](v, "Format.share(%v)", rest))
	got := pagetest.Evaluate[[]string](v, "[...document.getElementById('detail-ports').children].map((e) => e.textContent)")
	if !slices.Equal(got, want) {
		t.Errorf("ports %q, want %q", got, want)
	}
}

// checkSeries compares the timeline's numbers with the reader's.
func checkSeries(t *testing.T, v *pagetest.Visitor, want map[int]aggregate.CellWindow) {
	t.Helper()
	got := pagetest.Evaluate[[][]*float64](v, "csigscope.series()")
	if len(got) != 5 || len(got[0]) != 30 {
		t.Fatalf("the timeline has %d columns", len(got))
	}
	for w := range 30 {
		row, heard := want[w]
		for column, value := range map[int]float64{1: row.MinValue(), 2: row.MaxValue(), 3: row.MeanValue(), 4: float64(row.Heavy) / float64(row.Observations)} {
			drawn := got[column][w]
			if (drawn != nil) != heard {
				t.Fatalf("window %d, column %d: drawn %t, heard %t", w, column, drawn != nil, heard)
			}
			if heard && math.Abs(*drawn-value) > 5e-6*math.Abs(value) {
				t.Errorf("window %d, column %d: %g is drawn, want %g", w, column, *drawn, value)
			}
		}
	}
}
