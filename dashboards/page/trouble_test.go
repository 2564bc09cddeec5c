package page_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/dashboards/page/pagetest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestTrouble checks that server errors are shown in the server's words, with the previous data,
// until the server answers again.
func TestTrouble(t *testing.T) {
	var trouble atomic.Pointer[http.HandlerFunc]
	one := stored(t, 1) // a group that talks to itself, whose name is in no fabric file
	one.Rows = slices.DeleteFunc(one.Rows, func(r querytest.Row) bool { return r.Src != tabletest.FirstGroup || r.Dst != tabletest.FirstGroup })
	one.Rows = append(one.Rows, querytest.Row{
		Window: one.Rows[0].Window, Signal: csig.MaxDelay, Kind: decode.Tag, Src: tabletest.FirstGroup, Dst: tabletest.FirstGroup,
		Location: tabletest.FirstLocation, Sums: aggregate.Sums{Observations: 100, Measured: 100, Sum: 3e6, Min: 1e3, Max: 9e5, Heavy: 50, HeavySum: 3e6},
	})
	one.GroupRows[0].Name = "2001:db8:1:2::/64"
	next := served(t, one, nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := trouble.Load(); f != nil && r.URL.Path == "/api/v1/bundle" {
			(*f)(w, r)
			return
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	v := pagetest.Visit(t, server.URL+"/#signal=type_9", "light")
	v.Excuse("Failed to load resource") // the browser's message about each error status
	v.Screenshot("one-group")
	drawn := v.Colors("left", 1)
	if signal := pagetest.Evaluate[string](v, "csigscope.current().signal"); signal != "max_delay" || drawn[0] == nil {
		t.Fatalf("of one group and a signal without data, %s is shown, %v", signal, drawn)
	}
	v.Says("time-high", "25 %") // 50 of the 200 in its first window are heavy
	v.Says("map-high", "1 cell")
	for want, answer := range map[string]http.HandlerFunc{
		"more than 100 requests a second: ask less often": problem(http.StatusTooManyRequests, "more than 100 requests a second: ask less often"),
		"the answer took too long: take a shorter range":  problem(http.StatusGatewayTimeout, "the answer took too long: take a shorter range"),
		"The server answered 502.": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<h1>Bad gateway</h1>", http.StatusBadGateway)
		},
		"The server does not answer: the numbers on this page may be old.": func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		},
	} {
		trouble.Store(&answer)
		v.Click("#reload")
		v.Says("banner", want)
		v.Wait("!document.getElementById('banner').hidden")
		if now := v.Colors("left", 1); now[0] == nil || *now[0] != *drawn[0] {
			t.Errorf("%s: what was drawn has changed", want)
		}
	}
	trouble.Store(nil)
	v.Click("#reload")
	v.Wait("document.getElementById('banner').hidden")
}

// TestVerdictAgain: the page asks again for a verdict that has failed, and with each reload, since rows of the
// range may have come since. Another signal of the same range has the same verdict.
func TestVerdictAgain(t *testing.T) {
	var asked atomic.Int64
	next := served(t, querytest.Fabric(4, 10), nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/verdict" {
			switch asked.Add(1) {
			case 1:
				problem(http.StatusServiceUnavailable, "the store is slow or away")(w, r)
				return
			case 3:
				problem(http.StatusServiceUnavailable, "it is away again")(w, r)
				return
			}
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	v := pagetest.Enter(t, server.URL+"/#signal=max_delay", "dark", "Failed to load resource")
	v.Wait(pagetest.Drawn)
	v.Says("verdict-text", "No verdict: the store is slow or away")
	v.Click("#reload")
	v.Wait("document.querySelector('#verdict-list button') !== null")
	pagetest.Evaluate[chromedp.Void](v, "csigscope.setSignal('min_abw')")
	v.Wait("csigscope.current().signal === 'min_abw'")
	pagetest.Evaluate[chromedp.Void](v, "csigscope.setLevel('device')")
	v.Wait("csigscope.current().level === 'device'")
	if n := asked.Load(); n != 2 {
		t.Errorf("%d verdicts after a change of the signal and the level, want 2", n)
	}
	v.Click("#reload")
	v.Says("verdict-text", "No verdict: it is away again")
	v.Click("#reload")
	v.Wait("document.querySelector('#verdict-list button') !== null")
	if n := asked.Load(); n != 4 {
		t.Errorf("%d verdicts, want 4", n)
	}
}

// TestSilenceIsNotHealth checks that a window that cannot be loaded, and a range without data, are not
// shown as free of congestion.
func TestSilenceIsNotHealth(t *testing.T) {
	next := served(t, querytest.Fabric(4, 10), nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/frames" {
			problem(http.StatusServiceUnavailable, "no")(w, r)
			return
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	v := pagetest.Visit(t, server.URL+"/", "dark")
	v.Excuse("Failed to load resource")
	pagetest.Evaluate[bool](v, "csigscope.setWindow(5), true")
	v.Says("banner", "no")
	v.Says("map-note", "not known: the window is not loaded")
	v.Open(server.URL + "/#from=2020-01-01T00:00:00Z&to=2020-01-01T01:00:00Z")
	v.Says("map-note", "no data at the end of the range")
	v.Says("legend", "No data in this range.")
}

// problem returns an error in the API's format.
func problem(code int, detail string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"detail": "` + detail + `"}`))
	}
}
