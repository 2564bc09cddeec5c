package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/aggregate/store/outbox/outboxtest"
)

// TestCorruptedSpool damages a spool in many ways: each block is stored once, or is in a gap of
// its stream and time, and the observations of blocks and gaps with counts add up.
func TestCorruptedSpool(t *testing.T) {
	client := clientConfig(t, "http://127.0.0.1:1")
	client.Logger, client.MaxBytes, client.FS = nil, 4*recordBytes, lazyDisk{}
	whole := client.Dir
	c := startClient(t, client)
	var blocks []*aggregate.Block
	start := time.Now().Add(-time.Minute).Truncate(time.Second)
	for i := range 40 {
		b := testBlock(newRand(t, uint64(i)), start.Add(time.Duration(i)*time.Second), 20)
		blocks = append(blocks, b)
		if err := c.stream(t, "eth0").WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if err := c.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c.stop()
	cases := outboxtest.Cases()
	for i, damage := range cases {
		if testing.Short() && i%3 != 0 {
			continue
		}
		t.Run(damage.Name, func(t *testing.T) {
			client.Dir = filepath.Join(t.TempDir(), "spool")
			if err := os.CopyFS(client.Dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			if err := damage.Damage(client.Dir); err != nil {
				t.Fatal(err)
			}
			l := newLedger()
			config := testConfig(t)
			config.Logger = nil
			client.Collectors = []string{startCollector(t, config, l, "").url}
			again := startClient(t, client)
			again.stream(t, "eth0")
			again.flush(t)
			if err := again.Sync(t.Context()); err != nil { // losses of unknown streams
				t.Fatal(err)
			}
			again.flush(t)
			again.stop()
			judgeSpool(t, l, blocks, damage.Harmless)
		})
	}
}

// TestNewerSpool: records of an unknown class wait for a newer version, up to a limit, beyond
// which they become a gap of their time; they delay no others.
func TestNewerSpool(t *testing.T) {
	l, start := newLedger(), time.Now().Add(-time.Hour).Truncate(time.Second)
	client := clientConfig(t, startCollector(t, testConfig(t), l, "").url)
	client.Logger, client.MaxBytes = nil, 4*recordBytes
	newer, err := outbox.Open(outbox.Options{Dir: client.Dir, Classes: []outbox.Class{{Name: "later", ID: 100}}, MaxBytes: client.MaxBytes})
	if err != nil {
		t.Fatal(err)
	}
	const records = 900 // nearly fill the spool
	for i := range int64(records) {
		at := start.UnixNano() + i
		if err := newer.Append(outbox.Record{Weight: 1, Extent: outbox.Extent{From: at, To: at + 1}, Payload: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := newer.Close(); err != nil {
		t.Fatal(err)
	}
	c := startClient(t, client)
	block := testBlock(newRand(t, 1), time.Now(), 20)
	if err := c.stream(t, "eth0").WriteBlock(t.Context(), block); err != nil {
		t.Fatal(err)
	}
	c.flush(t)
	c.stop()
	if got, want := l.totals()[Producer("tester", "eth0")], totalsOf(block); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	held, lost := c.log.Stats().Held.Weight, c.Stats().Lost[lostNewer]
	if _, bytes := c.log.Held(); bytes > client.MaxBytes/16 || held == 0 || held+lost != records {
		t.Errorf("%d records held in %d bytes, %d lost, want %d together", held, bytes, lost, records)
	}
	inGaps := int64(0)
	for _, g := range l.gaps {
		inGaps += g.GetToNs() - g.GetFromNs()
		if g.GetReason() != lostHere+lostNewer || g.GetFromNs() < start.UnixNano() || g.GetToNs() > start.UnixNano()+int64(lost) {
			t.Errorf("gap %+v, want some of the first %d records", g, lost)
		}
	}
	if inGaps != int64(lost) {
		t.Errorf("gaps of %d ns, want one for each of %d records", inGaps, lost)
	}
}

func judgeSpool(t *testing.T, l *ledger, blocks []*aggregate.Block, harmless bool) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	stored, has := uint64(0), map[int64]bool{}
	for id, v := range l.rows {
		stored += v.observations
		has[id.start] = true
	}
	inGaps, counted, text := uint64(0), true, ""
	for _, g := range l.gaps {
		inGaps += g.GetObservations()
		counted = counted && g.GetObservations() > 0
		text += fmt.Sprintln(g)
	}
	want := totalsOf(blocks...).observations
	if stored+inGaps > want || stored+inGaps < want && counted || harmless && stored != want || l.changed {
		t.Errorf("%d observations stored and %d in gaps, want %d:\n%s", stored, inGaps, want, text)
	}
	for _, b := range blocks {
		covered := has[b.WindowStart]
		for k, g := range l.gaps {
			covered = covered || k.Producer == Producer("tester", "eth0") &&
				g.GetFromNs() <= b.WindowStart && g.GetToNs() >= b.WindowStart+b.Resolution
		}
		if !covered {
			t.Errorf("window %d is neither stored nor in a gap:\n%s", b.WindowStart, text)
		}
	}
}
