package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// TestFullSpool: however long an outage is, few gaps report the windows that no longer fit into
// the spool, so that they displace no others, and each observation is stored or in a gap.
func TestFullSpool(t *testing.T) {
	testOfLosses(t, lostFull, 2000, func(c *ClientConfig) { c.MaxBytes = 4 * recordBytes }, nil)
}

// TestFullDisk is TestFullSpool for a disk that takes nothing for some minutes.
func TestFullDisk(t *testing.T) {
	var full atomic.Bool
	full.Store(true)
	testOfLosses(t, lostDisk, 500, func(c *ClientConfig) { c.FS = fillingDisk{lazyDisk{}, &full} }, func() { full.Store(false) })
}

// testOfLosses writes a window of four streams for each second, more than the spool takes, and
// flushes it once the fault has ended.
func testOfLosses(t *testing.T, reason string, seconds int, fault func(*ClientConfig), end func()) {
	t.Helper()
	client, l := clientConfig(t, "http://127.0.0.1:1"), newLedger()
	client.Logger, client.FS, client.SpoolEvery = nil, lazyDisk{}, time.Hour
	fault(&client)
	c, start := startClient(t, client), time.Now().Add(-2*time.Hour).Truncate(time.Second)
	windows, observations := uint64(0), uint64(0)
	for i := range seconds {
		for k := range 4 {
			b := testBlock(newRand(t, uint64(i%50)), start.Add(time.Duration(i)*time.Second), 20)
			b.Flows = nil
			windows++
			observations += totalsOf(b).observations
			if err := c.stream(t, fmt.Sprintf("eth0/%d", k)).WriteBlock(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Sync(t.Context()); err != nil && end == nil {
			t.Fatal(err)
		}
	}
	st := c.Stats()
	if end != nil {
		end()
	}
	c.stop()
	client.Collectors = []string{startCollector(t, testConfig(t), l, "").url}
	again := startClient(t, client)
	again.flush(t)
	stored, lost := uint64(0), uint64(0)
	for _, v := range l.totals() {
		stored += v.observations
	}
	for k, g := range l.gaps {
		lost += g.GetObservations()
		if k.reason != lostHere+reason {
			t.Errorf("a gap for %q", k.reason)
		}
	}
	if stored+lost != observations || st.Lost[reason] == 0 || st.Lost[reason]+uint64(l.blocks) != windows {
		t.Errorf("of %d observations in %d windows, %d are stored and %d in gaps, %d windows are stored and %d lost", observations, windows, stored, lost, l.blocks, st.Lost[reason])
	}
	if len(l.gaps)*20 > int(windows) {
		t.Errorf("%d gaps for %d windows", len(l.gaps), st.Lost[reason])
	}
}

// fillingDisk has no space while full is set.
type fillingDisk struct {
	outbox.FS
	full *atomic.Bool
}

func (d fillingDisk) Open(name string, flag int) (outbox.File, error) {
	if d.full.Load() && flag&os.O_CREATE != 0 {
		return nil, syscall.ENOSPC
	}
	f, err := d.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return fillingFile{f, d.full}, nil
}

type fillingFile struct {
	outbox.File
	full *atomic.Bool
}

func (f fillingFile) Write(b []byte) (int, error) {
	if f.full.Load() {
		return 0, syscall.ENOSPC
	}
	return f.File.Write(b)
}

func (f fillingFile) WriteAt(b []byte, at int64) (int, error) {
	if f.full.Load() {
		return 0, syscall.ENOSPC
	}
	return f.File.WriteAt(b, at)
}

// TestKilledAfterBacklog: an exporter that is killed after it sent a backlog sends no more items
// again than the collector remembers.
func TestKilledAfterBacklog(t *testing.T) {
	l := newLedger()
	s := startCollector(t, testConfig(t), l, "")
	client := clientConfig(t, "http://127.0.0.1:1")
	client.Logger, client.FS, client.SpoolEvery = nil, lazyDisk{}, time.Hour
	c, start := startClient(t, client), time.Now().Add(-time.Hour).Truncate(time.Second)
	const windows = 3*maxInFlightBlocks + 100
	for i := range windows {
		if err := c.stream(t, "eth0").WriteBlock(t.Context(), testBlock(newRand(t, uint64(i)), start.Add(time.Duration(i)*time.Second), 3)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.stop()
	client.Collectors = []string{s.url}
	startClient(t, client).flush(t)
	killed := filepath.Join(t.TempDir(), "spool")
	if err := os.CopyFS(killed, os.DirFS(client.Dir)); err != nil {
		t.Fatal(err)
	}
	client.Dir = killed
	c = startClient(t, client)
	c.flush(t)
	if st := c.Stats(); st.Repeated == 0 || len(st.Refused) != 0 || len(l.gaps) != 0 || l.blocks != windows {
		t.Errorf("%+v; %d gaps; %d windows are stored, want %d", st, len(l.gaps), l.blocks, windows)
	}
}
