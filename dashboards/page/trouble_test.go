package page_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

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

// TestLinkAfterTrouble checks that an address whose data could not be loaded stays, and that the page asks for all of it
// again.
func TestLinkAfterTrouble(t *testing.T) {
	var trouble atomic.Bool
	next := served(t, querytest.Fabric(4, 10), nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if trouble.Load() && r.URL.Path == "/api/v1/bundle" {
			problem(http.StatusServiceUnavailable, "the store is slow or away")(w, r)
			return
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	v := pagetest.Visit(t, server.URL+"/#signal=min_abw_ratio", "dark")
	v.Excuse("Failed to load resource")
	v.Import("Address", "address.js")
	v.Import("App", "app.js")
	trouble.Store(true)
	const link = "#signal=max_delay&level=device&t=2026-01-20T09:00:03Z&at=leaf1"
	pagetest.Evaluate[chromedp.Void](v, "location.hash = %q, undefined", link)
	v.Says("banner", "the store is slow or away")
	v.Wait("document.querySelector('#signals [aria-selected=true]').dataset.signal === 'max_delay'")
	pagetest.Evaluate[chromedp.Void](v, "App.drawAll(), Address.flush()")
	if got := pagetest.Evaluate[string](v, "csigscope.current().signal + location.hash"); got != "min_abw_ratio"+link {
		t.Errorf("after a failure the page shows %s", got)
	}
	trouble.Store(false)
	v.Click("#reload")
	v.Wait("csigscope.current().signal === 'max_delay' && csigscope.current().level === 'device'")
	if got := pagetest.Evaluate[string](v, "csigscope.current().window + App.model.locations[csigscope.current().highlight]?.name"); got != "3leaf1" {
		t.Errorf("the page shows window and location %s, want 3leaf1", got)
	}
	v.Wait("location.hash.includes('signal=max_delay&level=device') && location.hash.includes('t=2026-01-20T09%3A00%3A03Z') && location.hash.includes('at=leaf1')")
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

// TestNewestActionWins checks that an action while an earlier one loads decides what the page shows, and that the
// refresh of a live page does not replace any.
func TestNewestActionWins(t *testing.T) {
	next := served(t, podded(16, 10), nil)
	var held atomic.Pointer[chan struct{}] // keeps bundles back until it is closed
	asked := make(chan string, 10)         // their signals and levels
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hold := held.Load(); hold != nil && r.URL.Path == "/api/v1/bundle" {
			asked <- r.FormValue("signal") + " " + r.FormValue("level")
			select {
			case <-*hold:
			case <-r.Context().Done():
			}
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	const (
		live, delay, device = "#follow", "#signals [data-signal=max_delay]", "#levels label:nth-of-type(3)"
		ratio, statement    = "#signals [data-signal=min_abw_ratio]", "#verdict-list li:nth-child(1) button"
		refresh, back       = "Source.refresh(true)", "history.back()"
		fold, press         = "document.getElementById('fold').click()", "App.press({ row: 0, column: 0 })"
		legend              = "#legend li:nth-child(2) button"
		first               = "min_abw_ratio location"
	)
	for name, test := range map[string]struct {
		actions []string // selectors to click, or scripts
		asked   []string // bundle that each action requests, "" for none
		want    string   // signal, level, live, pressed statements, zoom
	}{
		"live off again":             {[]string{live, live}, []string{first, first}, "min_abw_ratio location false 0 false"},
		"back from live":             {[]string{"location.hash = '#live=1'", back}, []string{first, first}, "min_abw_ratio location false 0 false"},
		"live":                       {[]string{live, refresh}, []string{first, ""}, "min_abw_ratio location true 0 false"},
		"signal, then a refresh":     {[]string{delay, refresh}, []string{"max_delay location", ""}, "max_delay location false 0 false"},
		"signal and level":           {[]string{delay, device}, []string{"max_delay location", "max_delay location,device"}, "max_delay device false 0 false"},
		"signal and back":            {[]string{delay, ratio}, []string{"max_delay location", first}, "min_abw_ratio location false 0 false"},
		"statement":                  {[]string{statement}, []string{"min_abw location"}, "min_abw location false 1 true"},
		"statement off again":        {[]string{statement, statement}, []string{"min_abw location", ""}, "min_abw location false 0 false"},
		"statement on again":         {[]string{statement, statement, statement}, []string{"min_abw location", "", ""}, "min_abw location false 1 true"},
		"statement of other signals": {[]string{statement, delay}, []string{"min_abw location", "max_delay location"}, "max_delay location false 1 true"},
		"statement, then a location": {[]string{statement, legend}, []string{"min_abw location", ""}, "min_abw location false 0 false"},
		"statement, then a cell":     {[]string{fold, statement, press}, []string{"", "min_abw location", ""}, "min_abw location false 0 true"},
	} {
		t.Run(name, func(t *testing.T) {
			v := pagetest.Visit(t, server.URL+"/#signal=min_abw_ratio", "dark")
			v.Import("Source", "source.js")
			v.Import("Live", "live.js")
			v.Import("App", "app.js")
			hold := make(chan struct{})
			held.Store(&hold)
			defer held.Store(nil)
			for i, action := range test.actions {
				if action[0] == '#' {
					v.Click(action)
				} else {
					pagetest.Evaluate[chromedp.Void](v, "%s, undefined", action)
				}
				if test.asked[i] == "" {
					continue
				}
				select {
				case got := <-asked:
					if got != test.asked[i] {
						t.Errorf("%s: the page asks for %s, want %s", action, got, test.asked[i])
					}
				case <-time.After(2 * time.Minute):
					t.Fatalf("%s: the page does not ask for %s", action, test.asked[i])
				}
			}
			held.Store(nil)
			close(hold)
			v.Wait("document.getElementById('busy').textContent === '' && !csigscope.current().waiting")
			got := pagetest.Evaluate[string](v, `(({ signal, level }) => [
				signal, level, Live.on(), document.querySelectorAll("#verdict-list [aria-pressed=true]").length, !document.getElementById("widen").hidden,
			].join(" "))(csigscope.current())`)
			if got != test.want {
				t.Errorf("the page shows %s, want %s", got, test.want)
			}
			v.Wait("document.getElementById('follow').checked === Live.on() && location.hash.includes('live=1') === Live.on()")
		})
	}
}

// problem returns an error in the API's format.
func problem(code int, detail string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"detail": "` + detail + `"}`))
	}
}
