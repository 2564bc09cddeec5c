package remote

import (
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/ingest/edge/edgetest"
	"github.com/csigscope/csigscope/ingest/retry"
)

// outageVariable sets how long the server of TestStoreAway is down while windows come once a second.
const outageVariable = "CSIGSCOPE_TEST_INGEST_OUTAGE"

// TestStoreAway stops the server for longer than the store waits for an insert, while 100 exporters
// send 4 windows a second each. The collector continues to accept them, its memory stays flat, and
// the server gets every row once when it is back. make nightly takes 30 minutes.
func TestStoreAway(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short; the server is away for 75 s, which make test-all waits for")
	}
	const exporters, cells = 100, 20
	length, every := 75*time.Second, 250*time.Millisecond
	if text := os.Getenv(outageVariable); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		every = time.Second
	}
	ca := edgetest.NewAuthority(t)
	l, url := newLoadTest(t, ca, cells)
	windows := int(length / every)
	if err := syscall.Kill(l.engine, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	takeOver := func() error { return syscall.Kill(l.engine, syscall.SIGCONT) }
	t.Cleanup(func() { _ = takeOver() }) // before the engine is closed
	s := newSpread(t, ca, exporters, exporters, exportersErrand{
		URL: url, Dir: t.TempDir(), Cells: cells, Every: every, Count: windows,
	})
	s.start()
	late := time.Now().Add(length + 5*time.Minute)
	for items := uint64(exporters * windows); l.server.Stats().Total.StoredItems < items; {
		if time.Now().After(late) {
			t.Fatalf("the collector took %d of %d blocks while the server was away", l.server.Stats().Total.StoredItems, items)
		}
		retry.Sleep(t.Context(), time.Second)
		runtime.GC()
		l.heap = append(l.heap, liveHeap())
	}
	s.hosts[0].await(time.Minute) // it ends when the collector has all of its windows
	q, waiting := quarters(l.heap), l.store.WriterStatus().OutboxBytes
	if err := takeOver(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	l.watch(exporters*windows, 10*time.Minute)
	t.Logf("%d exporters, %d rows; %d MiB waited in the outbox when the server came back, and were stored within %s; the collector's heap by quarters of the outage, most: %v MiB",
		exporters, exporters*windows*cells, waiting>>20, time.Since(began).Round(time.Second), q)
	if q[3] > q[1]+q[1]/4+4 {
		t.Errorf("heap of %v MiB: want flat", q)
	}
	l.checkLoad(s, windows)
}
