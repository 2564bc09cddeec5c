package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/dashboards/page/pagetest"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

// watchedEvent is one line of query watch.
type watchedEvent struct {
	Event string
	Data  struct {
		From   string
		Window string `json:"window_start"`
		Final  bool
		About  struct{ Final bool }
		Cells  []answeredCell
	}
}

// collectFeed: windows that close while packets arrive reach watchers as they are stored.
// SIGTERM does not wait for watchers.
func collectFeed(t *testing.T, env []string) {
	dsn := newStore(t, env, filepath.Join(t.TempDir(), "store"))
	const address = "127.0.0.1:9465"
	c := runUntil(t, env, "collecting", "collect", "--interface", livetest.TapEnd, "--store", dsn, "--api-listen", address)
	if page, err := http.Get("http://" + address + "/"); err != nil || page.StatusCode != http.StatusOK {
		t.Errorf("the page: %+v, %v", page, err)
	} else {
		page.Body.Close()
	}
	for missing := false; !missing; { // a tap that never saw anything
		health, err := http.Get("http://" + address + "/api/v1/health")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(health.Body)
		health.Body.Close()
		missing = err == nil && strings.Contains(string(text), `"missing_producers":["`+livetest.TapEnd+`"]`)
	}
	stop := traffic(t, 500)
	server := "--server=http://" + address
	seen, early := map[string]queriedTotals{}, map[string]bool{}
	lines := mustRun(t, env, "query", "watch", server, "--signal", "min_abw_ratio", "--count", "10", "-o", "ndjson")
	for line := range strings.Lines(lines) {
		e := decodeJSON[watchedEvent](t, line)
		window := e.Data.From + e.Data.Window
		if !e.Data.Final && !e.Data.About.Final {
			early[window] = true
			continue
		}
		for _, c := range e.Data.Cells {
			seen[window] = totalsOf(&c) // the last event of each window
		}
	}
	if len(early) < 3 {
		t.Errorf("%d windows were seen before they were final", len(early))
	}
	logFreshness(t, address)
	if now := answeredCells(t, mustRun(t, env, "query", "cells", server, "-o", "json")); len(now) != 1 || now[0].Observations == 0 {
		t.Errorf("the last window: %+v", now)
	}
	for durable := false; !durable; {
		for _, m := range decodeJSON[struct{ Timeline []struct{ Durable bool } }](t, mustRun(t, env, "query", "timeline", server, "-o", "json")).Timeline {
			durable = durable || m.Durable
		}
	}
	runUntil(t, env, "DURABLE", "query", "watch", server).end(syscall.SIGTERM)
	stop()
	c.end(syscall.SIGTERM)
	keepEngine(t, env, dsn)
	type listed struct {
		Name      string
		Forgotten bool
	}
	producers := func(args ...string) []listed {
		t.Helper()
		return decodeJSON[[]listed](t, mustRun(t, env, append([]string{"query", "forget", "--store", dsn, "-o", "json"}, args...)...))
	}
	for i, args := range [][]string{nil, {livetest.TapEnd}, nil} {
		if list := producers(args...); len(list) != 1 || list[0].Name != livetest.TapEnd || list[0].Forgotten != (i > 0) {
			t.Errorf("forget %v: producers %+v", args, list)
		}
	}
	if r := runBinary(t, env, "query", "forget", "--store", dsn, "nobody"); r.code != exitFailed || !strings.Contains(r.stderr, "no live producer has this name") {
		t.Errorf("forget nobody: exit code %d, %s", r.code, r.stderr)
	}
	same := 0
	for _, c := range answeredWindows(t, mustRun(t, env, "query", "windows", "--store", dsn, "-o", "json")) {
		if got, ok := seen[c.From]; ok {
			same++
			if want := totalsOf(&c); got != want {
				t.Errorf("window %s was watched as %+v, and is stored as %+v", c.From, got, want)
			}
		}
	}
	if same < 3 || same != len(seen) {
		t.Errorf("%d windows watched, %d of them stored", len(seen), same)
	}
	for args, want := range map[string]string{
		"query cells --server=127.0.0.1:9465":              "expected a URL",
		"query cells --store none " + server:               "leave out one of them",
		"collect --interface lo --api-listen 0.0.0.0:9465": "there is no TLS certificate",
	} {
		r := runBinary(t, env, strings.Fields(args)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit code %d, want %d and %q: %s", args, r.code, exitUsage, want, r.stderr)
		}
	}
}

// collectFineFeed: 100 ms windows with heavy observations reach watchers before they are final,
// and then as they are stored. A reload cannot change their length.
func collectFineFeed(t *testing.T, env []string) {
	dir := t.TempDir()
	config, dsn, address := filepath.Join(dir, "config.yaml"), newStore(t, env, filepath.Join(dir, "store")), freeAddress(t)
	writeFile(t, config, "windows: {resolutions: [100ms, 1s, 1m]}\n")
	c := runUntil(t, env, "collecting", "collect", "--config", config, "--interface", livetest.TapEnd, "--store", dsn, "--api-listen", address)
	stop := taggedTraffic(t, 500, 0x99002085) // 5 % of the bandwidth is left
	early, seen := map[string]bool{}, map[string]queriedTotals{}
	lines := mustRun(t, env, "query", "watch", "--server", "http://"+address, "--resolution", "100ms", "--count", "60", "-o", "ndjson")
	for line := range strings.Lines(lines) {
		e := decodeJSON[watchedEvent](t, line)
		switch {
		case e.Event != "window" || len(e.Data.Cells) == 0:
		case e.Data.Final:
			seen[e.Data.Window] = totalsOf(&e.Data.Cells[0])
		default:
			early[e.Data.Window] = true
		}
	}
	writeFile(t, config, "windows: {resolutions: [50ms, 1s, 1m]}\n")
	if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	c.waitLog("--api-listen serves the windows below 1s", 1)
	stop()
	c.end(syscall.SIGTERM)
	if len(seen) == 0 {
		t.Fatal("no window was watched that is final")
	}
	from, to := slices.Min(slices.Collect(maps.Keys(seen))), slices.Max(slices.Collect(maps.Keys(seen)))
	same := 0
	for _, w := range answeredWindows(t, mustRun(t, env, "query", "windows", "--store", dsn, "--step", "100ms", "--from", from, "--to", to, "-o", "json")) {
		if got, ok := seen[w.From]; ok {
			same++
			if want := totalsOf(&w); got != want {
				t.Errorf("window %s was watched as %+v, and is stored as %+v", w.From, got, want)
			}
		}
	}
	if same < 10 || len(early) < 10 {
		t.Errorf("%d windows were watched before they were final, %d of %d final ones are stored", len(early), same, len(seen))
	}
}

// collectSilence: soon after the only sender and its link die, no answer contains its numbers,
// health and metrics report it, and all of them recover when it is back.
func collectSilence(t *testing.T, env []string) {
	const address, operations = "127.0.0.1:9465", "127.0.0.1:9466"
	c := runUntil(t, env, "collecting", "collect", "--interface", livetest.TapEnd, "--store", newStore(t, env, filepath.Join(t.TempDir(), "store")),
		"--api-listen", address, "--metrics-listen", operations)
	type answer struct {
		Age      *float64 `json:"age_s"`
		Expected int      `json:"expected_producers"`
		Present  int      `json:"present_producers"`
		Cells    []map[string]any
		Total    int
		Cell     map[string]any
		Room     map[string]float64
		Costs    map[string]map[string]float64 `json:"cost-map"`
		Missing  []string                      `json:"missing_producers"`
		Down     []string                      `json:"down_producers"`
	}
	ask := func(path string) answer { return decodeJSON[answer](t, fetch(t, address+path)) }
	group := func(cell map[string]any) string { return fmt.Sprintf("src=%s&dst=%[2]s", cell["src"], cell["dst"]) }
	cells := func(state string) (found answer) {
		if !comes(func() bool {
			found = ask("/api/v1/cells?windows=10")
			return len(found.Cells) == 1 && (found.Cells[0]["state"] == "no_data") == (state == "no_data")
		}) {
			t.Fatalf("cells never come to %s: %v", state, found)
		}
		return found
	}
	for range 2 {
		stop := traffic(t, 500)
		if a := cells("data"); a.Present != 1 || a.Expected != 1 || a.Cells[0]["mean"] == nil || a.Cells[0]["present_producers"] != 1.0 {
			t.Errorf("while it sends: %v", a)
		}
		if !comes(func() bool { return len(ask("/alto/costmap/num-routingcost").Costs) == 1 }) {
			t.Error("no ALTO costs while it sends, which need ten samples")
		}
		stop()
		if !comes(func() bool { return len(ask("/api/v1/health").Missing) == 1 }) {
			t.Error("health does not name the tap of a sender that pauses")
		} else if a := ask("/api/v1/health"); len(a.Down) != 0 {
			t.Errorf("a tap with a link is down: %v", a)
		}
		livetest.IP(t, "link", "set", livetest.SendEnd, "down")
		a := cells("no_data")
		for _, name := range []string{"mean", "min", "max", "heavy_ratio", "mode", "present_producers"} {
			if v, is := a.Cells[0][name]; is {
				t.Errorf("a silent cell has %s %v", name, v)
			}
		}
		if a.Age == nil || *a.Age < 3 || a.Present != 0 || a.Expected != 1 || fmt.Sprint(a.Cells[0]["silent_producers"]) != "["+livetest.TapEnd+"]" {
			t.Errorf("silent: %v", a)
		}
		if a := ask("/api/v1/path?" + group(a.Cells[0])); a.Room != nil || a.Cell["state"] != "no_data" || a.Present != 0 {
			t.Errorf("path: %v", a)
		}
		if a := ask("/api/v1/locations?windows=60"); a.Total != 0 {
			t.Errorf("locations: %v", a)
		}
		if a := ask("/alto/costmap/num-routingcost"); len(a.Costs) != 0 {
			t.Errorf("ALTO: %v", a)
		}
		if a := ask("/api/v1/health"); len(a.Missing) != 1 || a.Missing[0] != livetest.TapEnd || !slices.Equal(a.Down, a.Missing) || a.Present != 0 {
			t.Errorf("health: %v", a)
		}
		c.waitSaid(operations+"/metrics", "csigscope_live_producers 0\n")
		lag := fmt.Sprintf("csigscope_watermark_lag_seconds{producer=%q} ", livetest.TapEnd)
		if !comes(func() bool {
			_, rest, _ := strings.Cut(fetch(t, operations+"/metrics"), lag)
			text, _, _ := strings.Cut(rest, "\n")
			behind, err := strconv.ParseFloat(text, 64)
			return err == nil && behind > 8
		}) {
			t.Error("the lag of a tap without a link does not grow")
		}
		livetest.IP(t, "link", "set", livetest.SendEnd, "up")
	}
	c.end(syscall.SIGTERM)
}

// logFreshness logs how soon after its end, and after its lateness of 2 s, a window reaches a
// watcher.
func logFreshness(t *testing.T, address string) {
	t.Helper()
	answer, err := http.Get("http://" + address + "/api/v1/watch?signal=min_abw_ratio")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	type event struct {
		End   time.Time `json:"window_end"`
		Final bool
	}
	var ended, final []time.Duration
	for lines := bufio.NewReader(answer.Body); len(final) < 10; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		text, ok := strings.CutPrefix(line, "data: ")
		if !ok || !strings.Contains(text, `"window_end"`) {
			continue
		}
		if e := decodeJSON[event](t, text); e.Final {
			final = append(final, time.Since(e.End)-2*time.Second)
		} else {
			ended = append(ended, time.Since(e.End))
		}
	}
	slices.Sort(ended)
	slices.Sort(final)
	t.Logf("windows reach a watcher %v to %v after their end, and as final ones %v to %v after their lateness; median %v and %v",
		ended[0], ended[len(ended)-1], final[0], final[len(final)-1], ended[len(ended)/2], final[len(final)/2])
}

// TestCollectPage visits the page of a collector that requires TLS and a token, while packets
// arrive: the page asks for the token, draws, shows each window as it closes with the stored
// numbers, asks again when the token is revoked during the watch, and continues with another.
func TestCollectPage(t *testing.T) {
	env := engineEnv(t)
	if !livetest.InNamespace(t) {
		return
	}
	livetest.IP(t, "link", "set", "lo", "up")
	livetest.MakeLink(t)
	dir, server := t.TempDir(), edgetest.NewAuthority(t).Server()
	clients, dsn, address := filepath.Join(dir, "clients"), newStore(t, env, filepath.Join(dir, "store")), freeAddress(t)
	edgetest.WriteTokens(t, clients, edgetest.TokenLine("noc", "read", "sesame", ""))
	config := writeFile(t, filepath.Join(dir, "config.yaml"), "api:\n  tls: {cert: "+server.Cert+", key: "+server.Key+"}\n  clients: "+clients+"\n")
	c := runUntil(t, env, "collecting", "collect", "--config", config, "--interface", livetest.TapEnd, "--store", dsn, "--api-listen", address)
	v := pagetest.Enter(t, "https://"+address+"/#signal=min_abw_ratio&live=1", "dark", "status of 401")
	stop := traffic(t, 500)
	const asks = "document.getElementById('token').open"
	v.Wait("document.getElementById('token')?.open && document.activeElement.id === 'token-text'")
	v.Press("open", kb.Enter)
	v.Says("token-wrong", "The server refused this token.")
	v.Press(kb.Backspace, "sesame", kb.Enter)
	v.Wait(pagetest.Drawn)
	note(v)
	v.Wait("Object.keys(noted).length >= 4")
	v.Says("age", "live, provisional")
	v.Screenshot("live")

	edgetest.WriteTokens(t, clients, edgetest.TokenLine("noc", "read", "changed", ""))
	v.Wait(asks)
	v.Says("token-wrong", "The server no longer accepts the token.")
	v.Press("changed", kb.Enter)
	v.Wait("!(" + asks + ")")
	before := len(pagetest.Evaluate[map[string]uint64](v, "noted"))
	v.Wait(fmt.Sprintf("Object.keys(noted).length >= %d", before+3))
	v.Says("age", "live, provisional")
	noted := pagetest.Evaluate[map[string]uint64](v, "noted")
	v.Leave()
	stop()
	c.end(syscall.SIGTERM)
	checkNoted(t, env, dsn, noted)
	for _, token := range []string{"sesame", "changed"} {
		if strings.Contains(c.log(), token) {
			t.Error("a token is in the log")
		}
	}
}

// note makes the page record the number of observations of its only cell in each window that it
// shows.
func note(v *pagetest.Visitor) {
	v.Import("App", "app.js")
	v.Import("Live", "live.js")
	pagetest.Evaluate[float64](v, `window.noted = {}, setInterval(() => {
		if (App.model?.groups.length && App.frame && !App.waiting && Live.moment() !== null) noted[Live.moment()] = csigscope.cell(0, 0).observations;
	}, 20)`)
}

// checkNoted compares the numbers on the page with the store. The newest window may not be
// drawn yet. Windows were sent as they closed: on a slow machine, late observations came after
// the window was shown.
func checkNoted(t *testing.T, env []string, dsn string, noted map[string]uint64) {
	t.Helper()
	stored := map[string]uint64{}
	for _, w := range answeredWindows(t, mustRun(t, env, "query", "windows", "--store", dsn, "--signal", "min_abw_ratio", "-o", "json")) {
		start, err := time.Parse(time.RFC3339Nano, w.From)
		if err != nil {
			t.Fatal(err)
		}
		stored[strconv.FormatInt(start.UnixNano(), 10)] += w.Observations
	}
	same := 0
	for _, window := range slices.Sorted(maps.Keys(noted))[:len(noted)-1] {
		switch got, want := noted[window], stored[window]; {
		case got > want:
			t.Errorf("window %s has %d observations on the page, %d in the store", window, got, want)
		case got == want && got > 0:
			same++
		}
	}
	if same < 3 {
		t.Errorf("%d windows are the same on the page %v and in the store %v", same, noted, stored)
	}
}
