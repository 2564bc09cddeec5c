package page_test

import (
	"context"
	"fmt"
	"image"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/dashboards/page/pagetest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

const (
	liveRacks  = 8
	liveSignal = csig.MaxDelay
)

// stored returns a store's data for the seconds before now, with the names of live blocks.
func stored(t *testing.T, racks int) *querytest.Memory {
	t.Helper()
	names := tabletest.Names{Racks: racks}
	groups, err := names.Groups(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	locations, err := names.Locations(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	m := &querytest.Memory{Resolution: time.Second, GroupRows: groups, LocationRows: locations}
	begin := time.Now().Truncate(time.Second).Add(-20 * time.Second)
	for w := range 20 {
		for cell := range liveRacks * liveRacks { // of the first racks only
			m.Rows = append(m.Rows, querytest.Row{
				Window: begin.Add(time.Duration(w) * time.Second).UnixNano(), Signal: csig.MaxDelay, Kind: decode.Tag,
				Src: aggregate.GroupID(tabletest.FirstGroup + cell/liveRacks), Dst: aggregate.GroupID(tabletest.FirstGroup + cell%liveRacks),
				Location: tabletest.FirstLocation, Sums: aggregate.Sums{
					Observations: 100, Measured: 100, Sum: 1e6, Min: 1e3, Max: 9e5, Heavy: uint64(cell % 7), HeavySum: 1e5,
				},
			})
		}
	}
	return m
}

// feed writes windows to memory as they close.
type feed struct {
	*table.Memory
	random *rand.Rand
	racks  int
}

func newFeed(racks int) feed {
	return feed{table.NewMemory(table.MemoryOptions{}), rand.New(rand.NewPCG(1, 2)), racks}
}

// close writes the window that has just ended and returns its cells.
func (f feed) close(t *testing.T) []aggregate.CellStats {
	t.Helper()
	return f.tell(t, tabletest.Block(f.random, 1, time.Now().Truncate(time.Second).Add(-time.Second), f.racks*f.racks, liveSignal))
}

// correct adds late rows of a few cells to the newest window.
func (f feed) correct(t *testing.T) []aggregate.CellStats {
	t.Helper()
	return f.tell(t, tabletest.Block(f.random, 2, f.State().Newest().Start, 7, liveSignal))
}

func (f feed) tell(t *testing.T, b *aggregate.Block) []aggregate.CellStats {
	t.Helper()
	if err := f.WriteBlock(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	f.Publish()
	return f.State().Newest().Cells(liveSignal)
}

// cellIs returns a JavaScript condition: the page shows one of these cells correctly, a congested
// one if there is any.
func cellIs(cells []aggregate.CellStats) string {
	c := &cells[9]
	for i := range cells {
		if cells[i].State == aggregate.Congested {
			c = &cells[i]
			break
		}
	}
	src, dst := int(c.Src-tabletest.FirstGroup), int(c.Dst-tabletest.FirstGroup)
	return fmt.Sprintf("csigscope.cell(%d, %d).observations === %d && csigscope.cell(%[1]d, %[2]d).heavy === %[4]d", src, dst, c.Observations, c.Heavy)
}

// TestLive checks that the newest window appears as soon as it has closed, and that silence and a
// lost connection are shown.
func TestLive(t *testing.T) {
	f := newFeed(liveRacks)
	f.close(t)
	server := httptest.NewServer(served(t, stored(t, liveRacks), f.Memory))
	defer server.Close()
	v := pagetest.Visit(t, server.URL+"/#signal=max_delay&live=1", "dark")
	v.Import("Live", "live.js")
	v.Wait("!csigscope.current().waiting && Live.moment() !== null")
	for range 2 {
		time.Sleep(time.Second) // wait for the next 1 s window
		cells := f.close(t)
		start := time.Now()
		v.Wait(cellIs(cells))
		t.Logf("a window is drawn %v after it was closed", time.Since(start).Round(time.Millisecond))
		v.Wait("document.getElementById('age').textContent.startsWith('live')") // the first windows may be old
		checkLive(t, v, cells)
		cells = f.correct(t)
		v.Wait(fmt.Sprintf("csigscope.cell(0, 0).observations === %d", cells[0].Observations))
		checkLive(t, v, cells)
	}
	picture := f.picture(t, v)
	v.CheckCells(picture, liveRacks)
	heard := v.Cell("right", 1, 2)
	painted := pagetest.ColorAt(picture, heard)

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx) }) // adds windows without rows by the clock
	v.Wait("csigscope.current().stale")
	cancel()
	running.Wait()
	if n := len(f.State().Windows); n < 6 {
		t.Errorf("%d windows: none followed by the clock", n)
	}
	if got := pagetest.Evaluate[string](v, "document.getElementById('age').textContent"); !strings.HasPrefix(got, "stale: nothing new for") {
		t.Errorf("after silence the page says %q", got)
	}
	v.Press("w", "w") // the whole range, and back to the newest window
	v.Wait("csigscope.current().window === Live.NOW")
	v.Press(kb.ArrowRight)
	v.Wait("csigscope.current().window === Live.NOW")
	v.Wait("document.querySelector('#states .end').textContent.endsWith(', the last window:') && document.getElementById('when').textContent.startsWith('last window: ')")
	v.Wait("document.getElementById('map-note').textContent.includes(document.getElementById('map-scale').hidden ? 'not known now: nothing new has come' : ', the last window')")
	if got := pagetest.ColorAt(v.Screenshot("stale"), heard); got == painted {
		t.Errorf("a cell is still %s after nothing was heard", got)
	}
	f.close(t)
	v.Wait("!csigscope.current().stale && document.querySelector('#states .end').textContent === 'now:'")

	v.Excuse("Failed to load resource") // the browser's message about a stopped server
	server.CloseClientConnections()
	server.Close()
	v.Wait("csigscope.current().stale && document.getElementById('age').textContent.startsWith('no connection')")
}

// TestLiveAfterOutage: once the stream is back, the page asks for everything else at once, and no longer says that the
// server does not answer.
func TestLiveAfterOutage(t *testing.T) {
	f := newFeed(liveRacks)
	f.close(t)
	next := served(t, stored(t, liveRacks), f.Memory)
	var away atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			panic(http.ErrAbortHandler) // closes the connection, as if the server were away
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	v := pagetest.Visit(t, server.URL+"/#signal=max_delay&live=1", "dark")
	v.Excuse("Failed to load resource")
	v.Import("Live", "live.js")
	v.Import("Stream", "stream.js")
	v.Wait("Live.moment() !== null")
	pagetest.Evaluate[int](v, "Stream.MOST = Stream.FIRST")
	away.Store(true)
	server.CloseClientConnections()
	v.Says("banner", "The server does not answer: the numbers on this page may be old.")
	pagetest.Evaluate[chromedp.Void](v, "(() => { const now = performance.now(); performance.now = () => now; })()") // no request is due by the clock
	away.Store(false)
	v.Says("banner", "")
}

// TestLiveSetBack: once the server's clock was set back, the page waits, and then shows the windows of its new
// time.
func TestLiveSetBack(t *testing.T) {
	var back atomic.Int64
	now := func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }
	f := newFeed(liveRacks)
	f.Memory = table.NewMemory(table.MemoryOptions{Now: now})
	f.close(t)
	server := httptest.NewServer(served(t, stored(t, liveRacks), f.Memory))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	v := pagetest.Visit(t, server.URL+"/#signal=max_delay&live=1", "dark")
	v.Import("Live", "live.js")
	v.Wait("!csigscope.current().waiting && Live.moment() !== null")
	back.Store(int64(2 * time.Hour))
	f.Publish()
	v.Wait("Live.moment() === null")
	cells := f.tell(t, tabletest.Block(f.random, 1, now().Truncate(time.Second).Add(-time.Second), liveRacks*liveRacks, liveSignal))
	v.Wait("Live.moment() !== null")
	v.Wait(cellIs(cells))
}

// picture returns a screenshot that shows a recent window.
func (f feed) picture(t *testing.T, v *pagetest.Visitor) image.Image {
	t.Helper()
	for range 20 {
		time.Sleep(time.Second)
		v.Wait(cellIs(f.close(t)))
		picture := v.Screenshot("live")
		if !pagetest.Evaluate[bool](v, "csigscope.current().stale") {
			return picture
		}
	}
	t.Fatal("no picture is taken before a window is old")
	return nil
}

// TestLiveBeforeStore checks that the page waits if windows close before anything is stored, and
// then shows them, whether its address names the signal, or live, or the user ticks it.
func TestLiveBeforeStore(t *testing.T) {
	for _, fragment := range []string{"#signal=max_delay&live=1", "#live=1", ""} {
		t.Run(fragment, func(t *testing.T) {
			f, empty := newFeed(liveRacks), &querytest.Memory{}
			var store atomic.Pointer[http.Handler]
			use := func(m *querytest.Memory) {
				h := served(t, m, f.Memory)
				store.Store(&h)
			}
			use(empty)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*store.Load()).ServeHTTP(w, r) }))
			t.Cleanup(server.Close)
			t.Cleanup(server.CloseClientConnections)
			v := pagetest.Visit(t, server.URL+"/"+fragment, "dark")
			v.Import("Live", "live.js")
			v.Import("App", "app.js")
			if fragment == "" {
				v.Says("banner", "No tag or reflection has come yet. Tick live to see the first window.")
				v.Click("#follow")
			}
			v.Says("banner", "No tag or reflection has come yet.")
			f.close(t)
			v.Wait("Live.moment() !== null")
			v.Says("banner", "Nothing is stored yet: the first rows are on their way.")
			use(stored(t, liveRacks))
			v.Wait("App.model && !csigscope.current().waiting && csigscope.current().window === Live.NOW")
			v.Says("banner", "")
			cells := f.close(t)
			v.Wait(cellIs(cells))
			checkLive(t, v, cells)
		})
	}
}

// TestLiveAfterTrouble: a page whose server could not say where windows come from asks again, and then follows its stream.
func TestLiveAfterTrouble(t *testing.T) {
	f := newFeed(liveRacks)
	f.close(t)
	next := served(t, &querytest.Memory{}, f.Memory)
	var fails atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/health" && fails.Add(-1) >= 0 {
			problem(http.StatusServiceUnavailable, "no")(w, r)
			return
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	v := pagetest.Visit(t, server.URL, "dark")
	v.Excuse("Failed to load resource")
	v.Import("Live", "live.js")
	v.Says("banner", "Nothing is stored yet: the first rows are on their way. Tick live to see the first window.")
	fails.Store(2)
	v.Click("#follow")
	v.Wait("Live.streamed() && Live.moment() !== null")
}

// TestLiveAgain: a late failure of the first start does not make a page that was started again follow the store.
func TestLiveAgain(t *testing.T) {
	f := newFeed(liveRacks)
	f.close(t)
	next := served(t, querytest.Fabric(4, 10), f.Memory)
	starts := make(chan chan struct{}, 10) // each is answered once its channel is closed
	var failed atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/health" {
			answer := make(chan struct{})
			starts <- answer
			<-answer
			if !failed.Swap(true) {
				problem(http.StatusServiceUnavailable, "no")(w, r)
				return
			}
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	v := pagetest.Visit(t, server.URL, "dark")
	v.Excuse("Failed to load resource")
	v.Import("Live", "live.js")
	v.Click("#follow")
	first := <-starts
	v.Click("#follow")
	v.Click("#follow")
	second := <-starts
	close(first)
	v.Wait("performance.getEntriesByType('resource').some((e) => e.name.includes('health'))")
	close(second)
	v.Wait("Live.streamed()")
	v.Wait(fmt.Sprintf("Live.moment() === %dn", f.State().Newest().Start.UnixNano()))
}

// checkLive compares every cell on the page with the window in memory.
func checkLive(t *testing.T, v *pagetest.Visitor, cells []aggregate.CellStats) {
	t.Helper()
	type shown struct {
		State        string
		Observations uint64
		Heavy        uint64
		Mode         *struct{ Location struct{ Name string } }
	}
	all := pagetest.Evaluate[[]shown](v, "Array.from({length: %d}, (_, i) => csigscope.cell(Math.floor(i / %d), i %% %[2]d))", liveRacks*liveRacks, liveRacks)
	for i := range cells {
		c := &cells[i]
		got := all[int(c.Src-tabletest.FirstGroup)*liveRacks+int(c.Dst-tabletest.FirstGroup)]
		if got.Observations != c.Observations || got.Heavy != c.Heavy || (got.Mode != nil) != (c.ModeCount > 0) {
			t.Errorf("cell %d is %+v on the page, %+v in memory", i, got, *c)
		}
	}
}

// TestLiveLarge measures the delay until windows of 256 x 256 cells are drawn, for make bench-page.
func TestLiveLarge(t *testing.T) {
	if os.Getenv("CSIGSCOPE_TEST_PAGE_WINDOWS") == "" {
		t.Skip("measures for people: make bench-page")
	}
	f := newFeed(256)
	f.close(t)
	server := httptest.NewServer(served(t, stored(t, 256), f.Memory))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	v := pagetest.Visit(t, server.URL+"/#signal=max_delay&live=1", "dark")
	v.Wait("!csigscope.current().waiting")
	for range 5 {
		time.Sleep(time.Second)
		b := tabletest.Block(f.random, 1, time.Now().Truncate(time.Second).Add(-time.Second), f.racks*f.racks, liveSignal)
		start := time.Now()
		cells := f.tell(t, b)
		counted := time.Since(start)
		v.Wait(cellIs(cells))
		t.Logf("a window of 65536 cells is counted in %v and drawn in %v", counted.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
	}
}

// TestLiveFromStore checks that the page polls a server without windows in memory, and that it does
// not present old data as new.
func TestLiveFromStore(t *testing.T) {
	memory := stored(t, liveRacks)
	server := httptest.NewServer(served(t, memory, nil))
	defer server.Close()
	v := pagetest.Visit(t, server.URL+"/#signal=max_delay&live=1", "light")
	v.Wait("document.getElementById('age').textContent === 'live'")
	v.Click("#follow")
	v.Wait("document.getElementById('age').hidden")

	old := httptest.NewServer(served(t, querytest.Fabric(8, 20), nil))
	defer old.Close()
	v = pagetest.Visit(t, old.URL+"/#live=1", "light")
	v.Wait("csigscope.current().stale && document.getElementById('age').textContent.startsWith('stale: nothing new for')")
}
