package main

import (
	"fmt"
	"maps"
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
	"github.com/csigscope/csigscope/ingest/credential/credentialtest"
)

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
	dir, server := t.TempDir(), credentialtest.NewAuthority(t).Server()
	clients, dsn, address := filepath.Join(dir, "clients"), "embedded:"+filepath.Join(dir, "store"), freeAddress(t)
	credentialtest.WriteTokens(t, clients, credentialtest.TokenLine("noc", "read", "sesame", ""))
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

	credentialtest.WriteTokens(t, clients, credentialtest.TokenLine("noc", "read", "changed", ""))
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
