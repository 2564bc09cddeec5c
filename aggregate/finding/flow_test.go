package finding

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// TestSlots: two events share slots by their times alone, whatever order they come in. Packets
// without a time have no slot.
func TestSlots(t *testing.T) {
	t.Parallel()
	const start, ms = int64(1_767_571_200_123_456_789), int64(time.Millisecond)
	type event struct {
		who int
		ns  int64
	}
	each := func(n int, step int64, who func(i int) int) (list []event) {
		for i := range n {
			list = append(list, event{who(i), start + int64(i)*step})
		}
		return list
	}
	for name, test := range map[string]struct {
		events      []event
		least, most float64 // overlap
	}{
		"none":           {nil, 0, 0},
		"no time":        {[]event{{0, 0}, {1, 0}}, 0, 0},
		"one packet":     {[]event{{0, start}, {1, start}, {1, 0}}, 1, 1},
		"before 1970":    {[]event{{0, -start}, {1, start}}, 0, 0},
		"any times":      {[]event{{0, -1 << 63}, {1, 1<<63 - 1}, {1, start}}, 0, 0},
		"in turn":        {each(10_000, ms, func(i int) int { return i % 2 }), 1, 1},
		"one after one":  {each(10_000, ms, func(i int) int { return i / 5000 }), 0, 0.1},
		"within a while": {each(10_000, ms, func(i int) int { return min(i/2500, 1) * (i % 2) }), 0.7, 0.8},
	} {
		random := rand.New(rand.NewPCG(1, 1))
		var want [2]uint64
		for order := range 20 {
			var clock slotClock
			var of [2]slots
			for _, e := range test.events {
				of[e.who].set(&clock, e.ns)
			}
			got := [2]uint64{of[0].now(&clock), of[1].now(&clock)}
			if order == 0 {
				want = got
			}
			if share := overlap(got[0], got[1]); got != want || share < test.least || share > test.most {
				t.Errorf("%s: slots %x in order %d, %x in order 0; overlap %g", name, got, order, want, share)
			}
			random.Shuffle(len(test.events), func(i, k int) { test.events[i], test.events[k] = test.events[k], test.events[i] })
		}
	}
}

// TestFilesInAnyOrder: a port that wrote unknown locators for a while is found in any order of
// captures, although it wrote its own before and afterwards. One capture begins later than others. A
// wrong time, which makes slots longer than that while, accuses nobody else for certain.
func TestFilesInAnyOrder(t *testing.T) {
	t.Parallel()
	const rounds = 300
	var flows []closFlow // between racks
	for k := range 36 {
		if src, dst := k/12, k/4%3; src != dst {
			flows = append(flows, closFlow{[2]int{src + 1, k/2%2 + 1}, [2]int{dst + 1, k/2%2 + 1}, k, 1 + k%2})
		}
	}
	type file struct{ rack, from, to int }
	for name, files := range map[string][]file{
		"the late one last":  {{3, 0, rounds}, {2, 0, rounds}, {1, 200, rounds}},
		"the late one first": {{1, 200, rounds}, {2, 0, rounds}, {3, 0, rounds}},
		"the end first":      {{1, 200, rounds}, {2, 200, rounds}, {3, 200, rounds}, {2, 0, 200}, {3, 0, 200}},
		"a wrong time":       {{1, 200, rounds}, {2, 0, rounds}, {3, 0, rounds}, {1, 2_000_000, 2_000_001}},
	} {
		n := newNetwork(t)
		n.tag = func(i int, _ closFlow, tag *csig.Tag) bool {
			if i >= 60 && i < 90 && tag.LM == upID(3, 1) {
				tag.LM = 7
			}
			return true
		}
		for _, one := range files {
			for i := one.from; i < one.to; i++ {
				for k, f := range flows {
					if f.dst[0] == one.rack {
						n.packets = uint64(i*len(flows) + k)
						n.send(i, f)
					}
				}
			}
		}
		want := "unknown-locator leaf3:up1"
		if name == "a wrong time" {
			want += "|spine1:down2"
		}
		if got := n.found(); got != want {
			t.Errorf("%s: found %s", name, got)
		}
	}
}
