package replay_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/replay"
)

// TestPacketNumbers checks that packets are numbered in their file, even if it is read in chunks on
// several cores.
func TestPacketNumbers(t *testing.T) {
	t.Parallel()
	late := wrongLM // few packets, so that findings list them all, in the last chunks
	late.Start, late.End = 1400*time.Millisecond, 1402*time.Millisecond
	rec, looked := suspects(t, classic, late)
	numbers := func(change func(*replay.Config)) (list map[uint64][]finding.Packet, pieces int) {
		var f findings
		cfg := rec.config(new(blocks))
		cfg.Taps, cfg.Finding = f.take, &looked
		change(&cfg)
		replayed(t, cfg)
		at := make([]tapIdentity, 0, len(f.at))
		for k := range f.at {
			at = append(at, k)
		}
		slices.SortFunc(at, func(a, b tapIdentity) int { return cmp.Compare(a.seq, b.seq) })
		list = map[uint64][]finding.Packet{}
		for _, k := range at {
			for _, one := range f.at[k] {
				if uint64(len(one.Packets)) != one.Count {
					t.Fatalf("%d packets of %d", len(one.Packets), one.Count)
				}
				list[one.ID] = append(list[one.ID], one.Packets...)
			}
		}
		return list, int(at[len(at)-1].seq >> 48)
	}
	want, _ := numbers(func(c *replay.Config) { c.ChunkBytes = -1 })
	if len(want) == 0 {
		t.Fatal("nothing is found")
	}
	for name, workers := range map[string]int{"one core": 1, "several cores": 4} {
		got, last := numbers(func(c *replay.Config) { c.ChunkBytes, c.Workers = 100_000, workers })
		if diff := gocmp.Diff(want, got); diff != "" || last < 10 {
			t.Errorf("%s, up to piece %d: as a whole (-), in pieces (+):\n%s", name, last, diff)
		}
	}
}
