package replay_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// TestDedup checks that frames captured twice count once, however the files are read, and that all
// frames are accounted for. Without Dedup they count twice.
func TestDedup(t *testing.T) {
	t.Parallel()
	tap := scenario.Tap{Racks: true}
	once := record(t, func(s *scenario.Scenario) { s.Taps = []scenario.Tap{tap}; classic(s) })
	tap.Duplicate = scenario.WholeShare / 50
	twice := record(t, func(s *scenario.Scenario) { s.Taps = []scenario.Tap{tap}; classic(s) })
	want := replayed(t, once.config(new(blocks)))
	for _, test := range []struct {
		dedup   time.Duration
		pace    float64
		workers int
	}{{0, 0, 1}, {time.Millisecond, 0, 1}, {time.Millisecond, 0, 3}, {time.Millisecond, 1e9, 1}} {
		cfg := twice.config(new(blocks))
		cfg.Dedup, cfg.Pace, cfg.Workers, cfg.ChunkBytes = test.dedup, test.pace, test.workers, 100_000
		got := replayed(t, cfg)
		copies := got.Packets - want.Packets
		switch {
		case copies < want.Packets/100 || !got.Conserved():
			t.Errorf("%+v: %d of %d packets twice, conserved %t", test, copies, got.Packets, got.Conserved())
		case test.dedup == 0 && (got.Repeated != 0 || got.Counts.In <= want.Counts.In):
			t.Errorf("without: %d left out, %d observations of %d", got.Repeated, got.Counts.In, want.Counts.In)
		case test.dedup > 0 && got.Repeated != copies:
			t.Errorf("%+v: %d of %d left out", test, got.Repeated, copies)
		case test.dedup > 0:
			if diff := cmp.Diff(want.Counts, got.Counts); diff != "" {
				t.Errorf("%+v: (-once +twice)\n%s", test, diff)
			}
		}
	}
	cfg := twice.config(new(blocks))
	if cfg.Dedup = -1; func() error { _, err := replay.New(cfg); return err }() == nil {
		t.Error("a time below 0 is taken")
	}
}
