package main

import (
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

// watchedCell is one line of query watch, or of query windows.
type watchedCell struct {
	queriedTotals
	Window string `json:"window_start"`
}

// collectFeed: windows that close while packets come reach who watches, as they are stored.
// SIGTERM does not wait for watchers.
func collectFeed(t *testing.T, env []string) {
	dsn := "embedded:" + filepath.Join(t.TempDir(), "store")
	const address = "127.0.0.1:9465"
	c := runUntil(t, env, "collecting", "collect", "--interface", livetest.TapEnd, "--store", dsn, "--api-listen", address)
	if page, err := http.Get("http://" + address + "/"); err != nil || page.StatusCode != http.StatusOK {
		t.Errorf("the page: %+v, %v", page, err)
	} else {
		page.Body.Close()
	}
	for missing := false; !missing; { // a tap that never spoke
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
	seen := map[string]watchedCell{}
	lines := mustRun(t, env, "query", "watch", server, "--signal", "min_abw_ratio", "--count", "3", "-o", "ndjson")
	for line := range strings.Lines(lines) {
		cell := decodeJSON[watchedCell](t, line)
		seen[cell.Window] = cell // the last word on each
	}
	if now := decodeJSON[[]queriedTotals](t, mustRun(t, env, "query", "cells", server, "-o", "json")); len(now) != 1 || now[0].Observations == 0 {
		t.Errorf("the last window: %+v", now)
	}
	for durable := false; !durable; {
		for _, m := range decodeJSON[[]struct{ Durable bool }](t, mustRun(t, env, "query", "timeline", server, "-o", "json")) {
			durable = durable || m.Durable
		}
	}
	runUntil(t, env, "WINDOW_START", "query", "watch", server)
	stop()
	begin := time.Now()
	c.end(syscall.SIGTERM)
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("ending beside a watcher took %s", took)
	}
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
	for _, want := range decodeJSON[[]watchedCell](t, mustRun(t, env, "query", "windows", "--store", dsn, "--resolution", "1s", "-o", "json")) {
		if got, ok := seen[want.Window]; ok {
			same++
			if got != want {
				t.Errorf("window %s was watched as %+v, and is stored as %+v", want.Window, got, want)
			}
		}
	}
	if same < 3 || same != len(seen) {
		t.Errorf("%d windows watched, %d of them stored", len(seen), same)
	}
	for args, want := range map[string]string{
		"query cells --server=127.0.0.1:9465":              "expected a URL",
		"query cells --step 2s " + server:                  "leave out one of them",
		"collect --interface lo --api-listen 0.0.0.0:9465": "there is no TLS certificate",
	} {
		r := runBinary(t, env, strings.Fields(args)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit code %d, want %d and %q: %s", args, r.code, exitUsage, want, r.stderr)
		}
	}
}

// TestCollectPage visits the page of a collector that wants TLS and a token, while packets
// come: it asks for the token, draws, shows each window as it closes with the numbers that are
// stored, asks again when the token is revoked while it watches, and goes on with another.
func TestCollectPage(t *testing.T) {
	env := engineEnv(t)
	if !livetest.InNamespace(t) {
		return
	}
	livetest.IP(t, "link", "set", "lo", "up")
	livetest.MakeLink(t)
	dir, server := t.TempDir(), edgetest.NewAuthority(t).Server()
	clients, dsn, address := filepath.Join(dir, "clients"), "embedded:"+filepath.Join(dir, "store"), freeAddress(t)
	edgetest.WriteTokens(t, clients, edgetest.TokenLine("noc", "read", "sesame", ""))
	config := writeFile(t, filepath.Join(dir, "config.yaml"), "api:\n  tls: {cert: "+server.Cert+", key: "+server.Key+"}\n  clients: "+clients+"\n")
	c := runUntil(t, env, "collecting", "collect", "--config", config, "--interface", livetest.TapEnd, "--store", dsn, "--api-listen", address)
	stop := traffic(t, 500)

	v := pagetest.Enter(t, "https://"+address+"/#signal=min_abw_ratio&live=1", "dark", "status of 401")
	const asks = "document.getElementById('token').open"
	v.Wait("document.getElementById('token')?.open && document.activeElement.id === 'token-text'")
	v.Press("open", kb.Enter)
	v.Says("token-wrong", "The server refused this token.")
	v.Press(kb.Backspace, "sesame", kb.Enter)
	v.Wait(pagetest.Drawn)
	note(v)
	v.Wait("Object.keys(noted).length >= 4")
	v.Says("age", "live")
	v.Screenshot("live")

	edgetest.WriteTokens(t, clients, edgetest.TokenLine("noc", "read", "changed", ""))
	v.Wait(asks)
	v.Says("token-wrong", "The server does not accept the token any more.")
	v.Press("changed", kb.Enter)
	v.Wait("!(" + asks + ")")
	before := len(pagetest.Evaluate[map[string]uint64](v, "noted"))
	v.Wait(fmt.Sprintf("Object.keys(noted).length >= %d", before+3))
	v.Says("age", "live")
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

// note keeps on the page how many observations its only cell has in each window that it shows.
func note(v *pagetest.Visitor) {
	pagetest.Evaluate[float64](v, `window.noted = {}, setInterval(() => {
		if (App.model()?.groups.length && App.frame() && !App.waiting() && Live.moment() !== null) noted[Live.moment()] = csigscope.cell(0, 0).observations;
	}, 20)`)
}

// checkNoted holds what the page has shown against the store. The newest window may be one that
// was about to be drawn. Windows were told of as they closed: what was late for one came after
// its time on the page, if the machine is that slow.
func checkNoted(t *testing.T, env []string, dsn string, noted map[string]uint64) {
	t.Helper()
	stored := map[string]uint64{}
	for _, w := range decodeJSON[[]watchedCell](t, mustRun(t, env, "query", "windows", "--store", dsn, "--signal", "min_abw_ratio", "--resolution", "1s", "-o", "json")) {
		start, err := time.Parse(time.RFC3339Nano, w.Window)
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
