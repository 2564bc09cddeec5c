package main

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture/livetest"
)

// apart is how much two numbers differ.
func apart(a, b uint64) uint64 { return max(a, b) - min(a, b) }

// collectTapRows: what taps took in before and after a kill is what is stored, but
// for windows that were open at the kill, as schema verify checks for whole runs, also of a configuration that went before; and what they
// found, each packet of senders that may not send, is as much.
func collectTapRows(t *testing.T, env []string) {
	dir := t.TempDir()
	section := "collect:\n  taps:\n  - {interface: " + livetest.TapEnd + ", name: leaf}\nfindings: {senders: [192.0.2.0/24]}\n"
	table := "csig:\n  tables:\n  - {format: compact, profile: ietf01, signal: type_5, unit: ns, aggregation: max, quantum: 7us, heavy: 20us}\n"
	store := filepath.Join(dir, "store")
	config, dsn := writeFile(t, filepath.Join(dir, "config.yaml"), section), "embedded:"+store
	start := func() *collecting {
		return runUntil(t, env, "collecting", "collect", "--config", config, "--store", dsn, "--checkpoint", "300ms")
	}
	c := start()
	stop := traffic(t, 2000)
	c.waitCheckpoints(store, 3)
	writeFile(t, config, section+table)
	if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	c.waitLog("msg=reloaded", 1)
	kept := c.kept(store)
	c = start()
	again := time.Now()
	c.waitCheckpoints(store, 3)
	times := stop()
	c.end(syscall.SIGTERM)
	sent, beside := uint64(len(times)), outside(times, kept.UnixNano(), again.UnixNano())
	mustRun(t, env, "schema", "verify", "--store", dsn)
	// A process that has nothing to take in goes on from the last checkpoint, and tells
	// the same rows again.
	start().end(syscall.SIGTERM)
	out := mustRun(t, env, "schema", "verify", "--store", dsn)
	taps := decodeJSON[[]struct {
		Tap, Place, Link, Frames                      string
		Packets, Observations, Stored, Late, Overflow uint64
		Tags, Reflections                             uint64
	}](t, mustRun(t, env, "query", "taps", "--store", dsn, "-o", "json"))
	got := stored(t, env, dsn)
	if len(taps) != 1 || got == 0 {
		t.Fatalf("%d observations stored, taps %+v", got, taps)
	}
	if tap := taps[0]; tap.Tap != "leaf" || tap.Place != "receiver" || tap.Stored+tap.Overflow != tap.Observations || tap.Tags != tap.Observations || apart(tap.Observations, got) > sent-beside || tap.Packets > sent {
		t.Errorf("%d observations stored of %d packets sent, the tap has %+v\n%s", got, sent, tap, out)
	}
	found := uint64(0)
	for _, f := range storedFindingsOf(t, env, dsn) {
		if found += f.Count; f.Kind != "unauthorised-sender" || f.First > f.Last {
			t.Errorf("found %+v", f)
		}
	}
	if apart(found, got) > sent-beside {
		t.Errorf("%d observations stored, %d found to be of others than the senders", got, found)
	}
	if dropped := droppedBy(t, env, dsn); got+dropped > sent || got+dropped < beside {
		t.Errorf("%d observations stored of %d packets sent, %d of them not around the kill; the kernel dropped %d", got, sent, beside, dropped)
	}
}
