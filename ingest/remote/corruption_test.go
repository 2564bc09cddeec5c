package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store/outbox/outboxtest"
)

// TestCorruptedSpool damages a spool in every way: each block is at the collector once, or in
// a gap of its stream and time there, and the observations of both add up where gaps have
// counts.
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
			if err := damage.Damage(client.Dir, "push", "push"); err != nil {
				t.Fatal(err)
			}
			l := newLedger()
			config := testConfig(t)
			config.Logger = nil
			client.Collectors = []string{startCollector(t, config, l, "").url}
			again := startClient(t, client)
			again.stream(t, "eth0")
			again.flush(t)
			if err := again.Sync(t.Context()); err != nil { // losses that nobody knew the stream of
				t.Fatal(err)
			}
			again.flush(t)
			again.stop()
			judgeSpool(t, l, blocks, damage.Harmless)
		})
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
