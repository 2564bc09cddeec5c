package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
)

// hangingEngine makes an empty folder of a store whose engine accepts connections but does not
// answer, until letGo is called; the next command then starts the engine.
func hangingEngine(t *testing.T) (dir string, letGo func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "away") // short enough for a socket path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, "engine.sock"))
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				<-over
				conn.Close()
			}()
		}
	}()
	return dir, func() {
		listener.Close()
		close(over)
	}
}

// sendCounted sends packets, and waits until a collect that cannot store yet has them in a
// round.
func (c *collecting) sendCounted(address, rounds string, n int) {
	c.t.Helper()
	s := livetest.NewSender(c.t, livetest.SendEnd)
	for range n {
		s.Send(livetest.Tagged(livetest.Plain(1, 2, 100), 0x99002b85))
	}
	c.waitCounted(address, rounds, n)
}

// wholeStore checks that a store has all sent packets once for each of the taps, and that all
// totals are consistent.
func wholeStore(t *testing.T, env []string, dsn string, sent uint64, taps ...string) {
	t.Helper()
	keepEngine(t, env, dsn)
	if got, want := stored(t, env, dsn), sent*uint64(len(taps)); got != want {
		t.Errorf("%d observations are stored, want %d", got, want)
	}
	for _, name := range taps {
		if tap := askTaps(t, env, dsn)[name]; tap.Packets != sent || tap.Stored != sent {
			t.Errorf("%d packets were sent, tap %s has %+v", sent, name, tap)
		}
	}
	mustRun(t, env, "schema", "verify", "--store", dsn)
}

// collectAway starts collect while its engine hangs: it captures, accepts an exporter's
// windows, reports why it is not ready, and stores everything in a new schema when the engine
// answers.
func collectAway(t *testing.T, env []string) {
	const sent = 3000
	dir, letGo := hangingEngine(t)
	dsn, address, ingest, spool := "embedded:"+dir, freeAddress(t), freeAddress(t), t.TempDir()
	config := writeFile(t, filepath.Join(spool, "collect.yaml"), "collect:\n  ingest: {listen: "+ingest+", anonymous: host1}\n")
	c := runUntil(t, env, "collecting", "collect", "--config", config, "--interface", livetest.TapEnd, "--store", dsn, "--commit-interval", "200ms", "--metrics-listen", address)
	host := runUntil(t, env, "exporting from", "export", "--interface", livetest.TapEnd, "--collector", "http://"+ingest, "--spool", spool)
	c.waitSaid(address+"/readyz", "store: the store is not ready: the server has not answered yet")
	c.sendCounted(address, dir, sent)
	c.waitSaid(address+"/metrics", fmt.Sprintf("csigscope_exporter_observations_total{exporter=\"host1\"} %d\n", sent))
	letGo()
	c.waitSaid(address+"/readyz", "ok\n")
	host.end(syscall.SIGTERM)
	c.end(syscall.SIGTERM)
	wholeStore(t, env, dsn, sent, livetest.TapEnd, "host1/"+livetest.TapEnd)
}

// collectNeverCame ends collect before its server was ever up: an engine that hangs, and a
// server that was never started. The next collect stores the rows that were left.
func collectNeverCame(t *testing.T, env []string) {
	const sent = 2000
	dir, letGo := hangingEngine(t)
	box, nowhere, address := t.TempDir(), freeAddress(t), freeAddress(t)
	capture := func(dsn string) {
		t.Helper()
		c := runUntil(t, env, "collecting", "collect", "--interface", livetest.TapEnd, "--store", dsn, "--outbox", box, "--commit-interval", "200ms", "--metrics-listen", address)
		c.sendCounted(address, box, sent)
		if code := c.endsAfter(syscall.SIGTERM); code != exitFailed || !strings.Contains(c.log(), "they wait in the outbox for the next command") {
			t.Errorf("%s never came: exit code %d: %s", dsn, code, c.log())
		}
	}
	folder := func(target store.Target) string {
		t.Helper()
		path, err := (&config.Outbox{Dir: box}).Folder(target, dataFolder)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	server, err := store.ParseDSN("clickhouse://nobody@" + nowhere + "/csigscope")
	if err != nil {
		t.Fatal(err)
	}
	embedded := store.Target{Kind: store.KindEmbedded, Dir: dir}
	capture(server.String())
	// Rows that wait for one server can go to another.
	if err := os.Rename(folder(server), folder(embedded)); err != nil {
		t.Fatal(err)
	}
	capture("embedded:" + dir)
	letGo()
	runUntil(t, env, "collecting", "collect", "--interface", livetest.TapEnd, "--store", "embedded:"+dir, "--outbox", box).end(syscall.SIGTERM)
	wholeStore(t, env, "embedded:"+dir, 2*sent, livetest.TapEnd)
}

// endsAfter sends the signal and returns the exit code.
func (c *collecting) endsAfter(signal syscall.Signal) int {
	c.t.Helper()
	signalAll(c.t, signal, c.cmd.Process.Pid)
	code := c.ends()
	return code
}

// exportAway runs export before any collector was up: the next export sends the windows that
// were left.
func exportAway(t *testing.T, env []string) {
	dir := t.TempDir()
	dsn, address := newStore(t, env, filepath.Join(dir, "store")), freeAddress(t)
	export := func() *collecting {
		return runUntil(t, env, "exporting from", "export", "--interface", livetest.TapEnd, "--collector", "http://"+address, "--spool", filepath.Join(dir, "spool"))
	}
	host := export()
	stop := traffic(t, 1000)
	host.waitRounds(dir, 3)
	sent := uint64(len(stop()))
	host.end(syscall.SIGTERM)
	if !strings.Contains(host.log(), "windows wait in the spool") {
		t.Errorf("the exporter does not say that windows wait:\n%s", host.log())
	}
	config := writeFile(t, filepath.Join(dir, "collect.yaml"), "collect:\n  ingest: {listen: "+address+", anonymous: host1}\n")
	server := runUntil(t, env, "exporters at "+address, "collect", "--config", config, "--store", dsn)
	handOver(export(), export)
	server.end(syscall.SIGTERM)
	keepEngine(t, env, dsn)
	if got, dropped := stored(t, env, dsn), droppedBy(t, env, dsn); got == 0 || got+dropped != sent {
		t.Errorf("%d packets sent, %d observations stored, the kernel dropped %d", sent, got, dropped)
	}
	mustRun(t, env, "schema", "verify", "--store", dsn)
}
