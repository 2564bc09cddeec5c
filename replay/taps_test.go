package replay_test

import (
	"bytes"
	gocmp "cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/replay"
)

// tapCounts collects the counts of taps.
type tapCounts struct {
	mu   sync.Mutex
	list []replay.TapCounts
}

func (c *tapCounts) take(_ context.Context, list []replay.TapCounts) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, list...)
	return nil
}

// sorted are the counts in the order of their chunks and interfaces, without what depends on
// how often lanes are used again.
func (c *tapCounts) sorted() []replay.TapCounts {
	slices.SortFunc(c.list, func(a, b replay.TapCounts) int { return gocmp.Compare(a.Seq, b.Seq) })
	for i := range c.list {
		c.list[i].Counts.CacheResets = 0
	}
	return c.list
}

// sums are the counts by tap, and those of all.
func (c *tapCounts) sums(t *testing.T) (byTap map[string]window.Tally, all window.Tally, counts aggregate.Counts) {
	t.Helper()
	byTap, seqs := map[string]window.Tally{}, map[uint64]bool{}
	for i := range c.list {
		l := &c.list[i]
		if seqs[l.Seq] {
			t.Errorf("seq %d is of two chunks or taps", l.Seq)
		}
		seqs[l.Seq] = true
		tap := byTap[l.Name]
		for _, s := range []*window.Tally{&tap, &all} {
			s.Merge(&l.Tally)
		}
		byTap[l.Name] = tap
		counts.Merge(&l.Counts)
	}
	return byTap, all, counts
}

// TestTapCounts checks that the taps' counts add up to the replay's, in chunks and in one piece,
// paced or not.
func TestTapCounts(t *testing.T) {
	for name, change := range map[string]struct {
		rec   recording
		taps  int
		paced bool
	}{
		"pieces of a file":  {rec: shared(t, classic), taps: 1},
		"at a pace":         {rec: shared(t, classic), taps: 1, paced: true},
		"several in a file": {rec: shared(t, singleFile), taps: 4},
	} {
		t.Run(name, func(t *testing.T) {
			var whole, cut tapCounts
			cfg := change.rec.config(&blocks{})
			cfg.Taps = whole.take
			result := replayed(t, cfg)
			cfg.Taps, cfg.ChunkBytes, cfg.Workers = cut.take, 200_000, 2
			if change.paced {
				cfg.Pace = 1e6
			}
			replayed(t, cfg)
			byTap, all, counts := whole.sums(t)
			again, _, _ := cut.sums(t)
			if diff := cmp.Diff(byTap, again); diff != "" {
				t.Errorf("(-whole +pieces):\n%s", diff)
			}
			if len(byTap) != change.taps || all.Packets != result.Packets || all.WireBytes != result.WireBytes || all.Frames != result.Frames {
				t.Errorf("%d taps, %+v, want %d and %+v", len(byTap), all, change.taps, result)
			}
			if counts.In != result.Counts.In || counts.Rejected != result.Counts.Rejected || all.Found.Kinds() != result.Found.Kinds() || all.Found.Kinds()[0]+all.Found.Kinds()[1] != counts.In {
				t.Errorf("%+v and %v, want %+v", counts, all.Found.Kinds(), result.Counts)
			}
			if all.First < 1e18 || all.Last <= all.First {
				t.Errorf("times %d to %d", all.First, all.Last)
			}
		})
	}
}

// TestTapOfUnreadLink checks that packets of unreadable link types are counted by their tap.
func TestTapOfUnreadLink(t *testing.T) {
	rec := shared(t, classic)
	var out bytes.Buffer
	w := capture.NewWriter(&out)
	err := w.Declare([]capture.Interface{{Name: "wifi", Link: 105}, {Name: "eth0", Link: capture.LinkEthernet}})
	for i := range uint32(2) {
		err = errors.Join(err, w.Write(&capture.Frame{Data: tagged(1), TimeNS: 1e9, WireLen: 38, Interface: i}, ""))
	}
	path := filepath.Join(t.TempDir(), "links.pcapng")
	if err := errors.Join(err, w.Flush(), os.WriteFile(path, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	var taps tapCounts
	cfg := rec.config(&blocks{})
	cfg.Files, cfg.Taps = []string{path}, taps.take
	result := replayed(t, cfg)
	byTap, _, _ := taps.sums(t)
	wifi := window.Tally{Packets: 1, WireBytes: 38, Timed: 1, First: 1e9, Last: 1e9}
	wifi.Frames[decode.UnknownLink] = 1
	if diff := cmp.Diff(wifi, byTap["wifi"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if result.WireBytes != 38 || result.SkippedLink.Total() != 1 || byTap["eth0"].Frames[decode.NoCSIG] != 1 {
		t.Errorf("result %+v, eth0 %+v", result, byTap["eth0"])
	}
}

// TestTapsFail checks that a failing store ends the replay.
func TestTapsFail(t *testing.T) {
	rec := shared(t, classic)
	cfg := rec.config(&blocks{})
	broken := errors.New("broken")
	cfg.Taps = func(context.Context, []replay.TapCounts) error { return broken }
	r, err := replay.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("%v, want the store's", err)
	}
}
