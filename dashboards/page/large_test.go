package page_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/dashboards/page"
	"github.com/csigscope/csigscope/dashboards/page/pagetest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// wide is a reader with data in every window and every cell of size x size groups.
type wide struct {
	*querytest.Memory
	size, windows int
}

func (r wide) Extent(context.Context) (query.Extent, error) {
	return query.Extent{
		First: querytest.Start, Last: querytest.Start.Add(time.Duration(r.windows) * time.Second), Observations: 1,
		Signals: []csig.Signal{csig.MinABWRatio}, Resolutions: []time.Duration{time.Second},
	}, nil
}

func (r wide) Signals(context.Context, query.Question) ([]csig.Signal, error) {
	return []csig.Signal{csig.MinABWRatio}, nil
}

func (r wide) Groups(context.Context) ([]fabric.Group, error) {
	var out []fabric.Group
	for i := range r.size {
		out = append(out, fabric.Group{ID: aggregate.GroupID(1<<60 + i), Name: fmt.Sprintf("rack%d", i+1), Level: "rack", Order: i})
	}
	return out, nil
}

func (r wide) location(i int) aggregate.LocationID { return aggregate.LocationID(1<<61 + i%r.size) }

func (r wide) Locations(context.Context) ([]fabric.Location, error) {
	var out []fabric.Location
	for i := range r.size {
		id := r.location(i)
		out = append(out, fabric.Location{
			ID: id, Name: fmt.Sprintf("leaf%d:up1", i+1), Kind: "port", Device: fmt.Sprintf("leaf%d", i+1), Stage: "leaf",
			Orientation: "up", Set: id, DeviceLoc: id, StageLoc: id,
		})
	}
	return out, nil
}

// window adds the cells of a window: a wave of load that moves across the matrix.
func (r wide) window(out []aggregate.CellWindow, w int, at int64) []aggregate.CellWindow {
	out = slices.Grow(out, r.size*r.size)
	for src := range r.size {
		for dst := range r.size {
			load := (src*3 + dst*5 + w*7) % 1000
			heavy := uint64(max(0, load-700))
			n := uint64(1000 + load)
			row := aggregate.CellWindow{Start: at, CellStats: aggregate.CellStats{
				Src: aggregate.GroupID(1<<60 + src), Dst: aggregate.GroupID(1<<60 + dst), Signal: csig.MinABWRatio, Kind: decode.Tag,
				Observations: n, Heavy: heavy, Measured: n, Sum: n * uint64(1000-load) * 1000, Max: 1e6,
			}}
			if heavy > 0 {
				row.Mode, row.ModeCount = r.location(src+w), heavy
			}
			out = append(out, row)
		}
	}
	return out
}

func (r wide) Cells(context.Context, query.Question) ([]aggregate.CellStats, error) {
	var out []aggregate.CellStats
	for _, c := range r.window(nil, 0, 0) {
		out = append(out, c.CellStats)
	}
	return out, nil
}

func (r wide) CellWindows(_ context.Context, q query.Question) ([]aggregate.CellWindow, error) {
	out := make([]aggregate.CellWindow, 0, r.size*r.size*int(q.To.Sub(q.From)/q.Step))
	for at := q.From; at.Before(q.To); at = at.Add(q.Step) {
		out = r.window(out, int(at.Sub(querytest.Start)/time.Second), at.UnixNano())
	}
	return out, nil
}

func (r wide) LocationWindows(_ context.Context, q query.Question) ([]aggregate.LocationWindow, error) {
	var out []aggregate.LocationWindow
	for w := range r.windows {
		at := querytest.Start.Add(time.Duration(w) * time.Second).UnixNano()
		for l := range r.size {
			out = append(out, aggregate.LocationWindow{Start: at, LocationStats: aggregate.LocationStats{
				Location: r.location(l), Observations: 1000, Heavy: uint64((l + w) % 100),
			}})
		}
	}
	return out, nil
}

// scrub drags the scrubber over all windows, one at a time and each drawn. It returns the windows
// per second, the slowest of 100, and the number of windows kept in memory.
const scrub = `(async () => {
	const scrubber = document.getElementById("scrubber");
	const frame = () => new Promise(requestAnimationFrame);
	const all = Number(scrubber.max) + 1;
	const took = [];
	const start = performance.now();
	for (let i = 0; i < all; i++) {
		const begin = performance.now();
		scrubber.value = i;
		scrubber.dispatchEvent(new Event("input"));
		do await frame(); while (csigscope.current().waiting);
		took.push(performance.now() - begin);
	}
	const seconds = (performance.now() - start) / 1000;
	took.sort((a, b) => a - b);
	window.scrubbed = {Rate: all / seconds, Slow: took[Math.floor(all * 0.99)], Kept: csigscope.current().kept};
})(), undefined`

// TestScrub drags the scrubber over windows of 256 x 256 cells, which are fetched on the way, and
// back over cached windows. CSIGSCOPE_TEST_PAGE_WINDOWS=600 measures the speed and requires 30
// windows a second; otherwise the speed is not checked.
func TestScrub(t *testing.T) {
	windows, least := 9, 0.0
	if n, err := strconv.Atoi(os.Getenv("CSIGSCOPE_TEST_PAGE_WINDOWS")); err == nil {
		windows, least = n, 30
	}
	r := wide{&querytest.Memory{}, 256, windows}
	api := query.NewHandler(query.HandlerConfig{Reader: r})
	server := httptest.NewServer(page.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/verdict" { // covers all windows and is not measured here
			_, _ = io.WriteString(w, `{"kind": "healthy"}`)
			return
		}
		api.ServeHTTP(w, r)
	})))
	defer server.Close()
	v := pagetest.Visit(t, server.URL+"/#step=1s", "dark")
	for _, pass := range []string{"from the server", "once more"} {
		pagetest.Evaluate[chromedp.Void](v, scrub)
		v.WaitFor("window.scrubbed", 2*time.Minute)
		got := pagetest.Evaluate[struct{ Rate, Slow, Kept float64 }](v, "(() => { const s = window.scrubbed; window.scrubbed = undefined; return s; })()")
		t.Logf("%d windows of 2 x 65536 cells %s: %.0f a second, 99 %% within %.0f ms, %.0f MB kept", windows, pass, got.Rate, got.Slow, got.Kept/1e6)
		if got.Rate < least {
			t.Errorf("%.1f windows a second %s, want %g", got.Rate, pass, least)
		}
		if got.Kept > 481<<20 {
			t.Errorf("%.0f MB of frames are kept, want at most 480 MiB", got.Kept/1e6)
		}
	}
	last := r.window(nil, windows-1, 0)
	got := pagetest.Evaluate[[]float64](v, "Array.from({length: 256}, (_, i) => csigscope.cell(i, 255 - i).mean)")
	for i, mean := range got {
		if want := last[i*256+255-i].MeanValue(); math.Abs(mean-want) > 1e-6 {
			t.Fatalf("cell %d of the last window has the mean %g, want %g", i, mean, want)
		}
	}
	v.Screenshot("scrubbed")
}
