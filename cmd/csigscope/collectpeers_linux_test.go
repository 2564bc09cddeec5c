package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

// TestCollectPeers: a collector without a tap serves the windows of another collector of the
// same store, by name, and has stored none of their rows; the blocks that one counts as sent
// reached the other.
func TestCollectPeers(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	if !inNamespace(t) {
		return
	}
	livetest.IP(t, "link", "set", "lo", "up")
	livetest.MakeLink(t)
	dir := t.TempDir()
	dsn, tokens := newStore(t, env, filepath.Join(dir, "store")), filepath.Join(dir, "tokens")
	edgetest.WriteTokens(t, tokens, edgetest.TokenLine("a", "", "of-a", ""), edgetest.TokenLine("b", "", "of-b", ""))
	listen := map[string]string{"a": freeAddress(t), "b": freeAddress(t)}
	start := func(name, other string, args ...string) (c *collecting, api, ops string) {
		token := filepath.Join(dir, name+".token")
		if err := os.WriteFile(token, []byte("of-"+name), 0o600); err != nil {
			t.Fatal(err)
		}
		config := writeFile(t, filepath.Join(dir, name+".yaml"), "collect:\n  instance: "+name+"\n"+
			"  ingest: {listen: "+listen[name]+", tokens: "+tokens+", peers: ["+other+"]}\n"+
			"  peers: {collectors: [\"http://"+listen[other]+"\"], token_file: "+token+"}\n")
		api, ops = freeAddress(t), freeAddress(t)
		args = append([]string{"collect", "--config", config, "--store", dsn, "--api-listen", api, "--metrics-listen", ops}, args...)
		return runUntil(t, env, "collecting", args...), api, ops
	}
	a, apiA, opsA := start("a", "b", "--interface", livetest.TapEnd)
	b, apiB, opsB := start("b", "a")
	stop := traffic(t, 500)
	sendHeavy(t, 3)

	cells := func(api string) []answeredCell {
		return answeredCells(t, mustRun(t, env, "query", "cells", "--server", "http://"+api, "--windows", "60", "-o", "json"))
	}
	var got []answeredCell
	if !comes(func() bool { // with both names, which the store gets one after the other
		got = cells(apiB)
		return len(got) == 1 && got[0].Mode.Heavy > 0 && !strings.Contains(got[0].Mode.Location, "location ") && !strings.HasPrefix(got[0].Src, "group ")
	}) {
		t.Fatalf("collector b answers %+v\n%s", got, b.log())
	}
	if want := cells(apiA); got[0].Src != want[0].Src || got[0].Dst != want[0].Dst || got[0].Mode.Location != want[0].Mode.Location || !strings.HasSuffix(got[0].Src, "/24") {
		t.Errorf("b answers %+v, a %+v", got[0], want[0])
	}
	stop()
	b.waitSaid(opsB+"/metrics", `csigscope_peer_received_blocks_total{peer="a"}`)
	b.waitSaid(opsB+"/metrics", "csigscope_store_rows_total 0\n")
	a.waitSaid(opsA+"/metrics", `csigscope_peer_up{peer="http://`+listen["b"]+`"} 1`)

	// A peer that is down is logged once and delays nothing.
	b.end(syscall.SIGTERM)
	stop = traffic(t, 500)
	a.waitSaid(opsA+"/metrics", `csigscope_peer_up{peer="http://`+listen["b"]+`"} 0`)
	a.waitLog("peer does not take windows", 1)
	stop()
	a.end(syscall.SIGTERM)
	mustRun(t, env, "schema", "verify", "--store", dsn)
}
