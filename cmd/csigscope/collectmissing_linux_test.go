package main

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture/livetest"
)

// collectDrops stops collect while more comes than its ring holds: what the kernel dropped
// is in a gap of that time, coverage tells how much it was, and all that is stored adds up.
func collectDrops(t *testing.T, env []string) {
	dir := t.TempDir()
	dsn := "embedded:" + filepath.Join(dir, "store")
	config := writeFile(t, filepath.Join(dir, "config.yaml"), "collect:\n  taps:\n  - {interface: "+livetest.TapEnd+", name: leaf, blocks: 2, weight: 3}\n")
	begun, address := time.Now(), freeAddress(t)
	c := runUntil(t, env, "collecting", "collect", "--config", config, "--store", dsn, "--checkpoint", "200ms", "--ops-listen", address)
	signal := func(s syscall.Signal) {
		if err := c.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	s := livetest.NewSender(t, livetest.SendEnd)
	const sent = 40_000 // a ring of 2 MiB holds a third of them
	for range sent {
		s.Send(livetest.Tagged(livetest.Plain(1, 2, 100), 0x99002b85))
	}
	signal(syscall.SIGCONT)
	c.waitTaken(address, sent)
	c.end(syscall.SIGTERM)
	ended := time.Now()

	tap := askTaps(t, env, dsn)["leaf"]
	if tap.KernelDrops == 0 || tap.Packets+tap.KernelDrops != sent || tap.Stored != 3*tap.Packets {
		t.Errorf("of %d packets sent: %+v", sent, tap)
	}
	lost := uint64(0)
	earliest := begun.Add(-time.Second).Truncate(time.Second) // what the kernel counts may be a second old
	for _, w := range decodeJSON[[]struct {
		Window   time.Time `json:"window_start"`
		Lost     uint64
		GapShare float64 `json:"gap_share"`
	}](t, mustRun(t, env, "query", "coverage", "--store", dsn, "--resolution", "1s", "-o", "json",
		"--from", begun.Add(-10*time.Second).UTC().Format(time.RFC3339), "--to", ended.Add(10*time.Second).UTC().Format(time.RFC3339))) {
		lost += w.Lost
		if w.GapShare != 0 || w.Lost > 0 && (w.Window.Before(earliest) || w.Window.After(ended)) {
			t.Errorf("packets were dropped between %s and %s, coverage says %+v", begun, ended, w)
		}
	}
	// The part of a gap in each window is rounded down.
	if want := 3 * tap.KernelDrops; lost > want || lost+20 < want {
		t.Errorf("coverage is missing %d observations, the kernel dropped %d packets that stand for 3 each", lost, tap.KernelDrops)
	}
	if r := runBinary(t, env, "schema", "verify", "--store", dsn); r.code != 0 {
		t.Errorf("schema verify: exit code %d: %s%s\n%s", r.code, r.stdout, r.stderr, c.log())
	}
}
