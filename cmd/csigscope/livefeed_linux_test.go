package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture/livetest"
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
	runUntil(t, env, "WINDOW_START", "query", "watch", server)
	stop()
	begin := time.Now()
	c.end(syscall.SIGTERM)
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("ending beside a watcher took %s", took)
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
