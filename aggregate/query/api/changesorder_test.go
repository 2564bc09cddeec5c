package api_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/rest/resttest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
)

// heldAfter returns what a reader holds after events: the location of each congested cell, and the silent producers, in
// all and of each cell. A reader of one link holds only the cells there.
func heldAfter(t *testing.T, events []event, link string) map[string]string {
	t.Helper()
	held := make(map[string]string)
	for _, e := range events {
		if e.name != "initial" && e.name != "changes" {
			continue
		}
		if e.name == "initial" {
			clear(held)
		}
		var set wire.ChangeSet
		if err := resttest.Read([]byte(e.data), &set); err != nil {
			t.Fatalf("%s: %v", e.data, err)
		}
		for _, c := range set.Changes {
			cell := "congested " + c.Src + ">" + c.Dst
			covered := "coverage " + c.Src + ">" + c.Dst
			location, is := held[cell]
			switch c.Kind {
			case wire.ChangeKind_CHANGE_KIND_ONSET:
				if is && link == "" {
					t.Errorf("second onset: %v", c)
				}
				held[cell] = c.Location
			case wire.ChangeKind_CHANGE_KIND_MOVED:
				if link == "" && (!is || location != c.LocationBefore) {
					t.Errorf("moved from %q: %v", location, c)
				}
				held[cell] = c.Location
			case wire.ChangeKind_CHANGE_KIND_CLEARED:
				if link == "" && (!is || location != c.Location) {
					t.Errorf("cleared at %q: %v", location, c)
				}
				delete(held, cell)
			case wire.ChangeKind_CHANGE_KIND_COVERAGE_LOST:
				if link == "" {
					held[covered] = strings.Join(c.SilentProducers, ",")
				}
			case wire.ChangeKind_CHANGE_KIND_COVERAGE_BACK:
				delete(held, covered)
			case wire.ChangeKind_CHANGE_KIND_TAP_LOST:
				held["tap "+c.Producer] = ""
			case wire.ChangeKind_CHANGE_KIND_TAP_BACK, wire.ChangeKind_CHANGE_KIND_TAP_FORGOTTEN:
				delete(held, "tap "+c.Producer)
			}
			if link != "" && held[cell] != link {
				delete(held, cell)
			}
		}
	}
	return held
}

// changingRows returns rows of a producer in a window, each of a cell with its own periods of load: some name no location,
// some are reflections.
func changingRows(rng *rand.Rand, producer uint64, second int) *aggregate.Block {
	list := make([]seen, 0, 3)
	for cell := range 3 {
		if rng.IntN(4) == 0 {
			continue
		}
		heavy := []int{0, 1, 3, 50, 50}[rand.New(rand.NewPCG(uint64(cell), uint64(second/6))).IntN(5)]
		all := []int{100, 100, 100, 5}[rng.IntN(4)]
		list = append(list, seen{1 + cell, 1 + (cell+1)%3, 1 + rng.IntN(2), min(heavy*rng.IntN(2), all), all})
	}
	b := rows(producer, second, list)
	for i := range list {
		if rng.IntN(4) == 0 {
			b.Location[i] = uint64(aggregate.NoLocation)
		}
		if rng.IntN(6) == 0 {
			b.Kind[i] = uint8(wire.Kind_KIND_REFLECTION)
		}
	}
	return b
}

// writeAnyOrder lets three producers write a minute of windows: some rows are announced, late or lost, some producers are
// silent for a while, or forgotten. It publishes at any time, and calls each after each second.
func writeAnyOrder(t *testing.T, rng *rand.Rand, s *served, now *time.Time, each func(second int)) {
	t.Helper()
	names := []table.Producer{{ID: 1, Name: "eth0"}, {ID: 2, Name: "eth1"}, {ID: 3, Name: "eth2"}}
	s.memory.Expect(names, nil)
	waiting, silent := make(map[int][]*aggregate.Block), make(map[uint64]int) // blocks and the end of silences, by second
	publish := func(oneIn int) {
		if rng.IntN(oneIn) == 0 {
			s.memory.Publish()
			synctest.Wait()
		}
	}
	for second := range 60 {
		for producer := uint64(1); producer < 4; producer++ {
			synctest.Wait() // streams read the clock until they wait
			*now = begin.Add(time.Duration(second+1)*time.Second + time.Duration(producer)*20*time.Millisecond)
			if rng.IntN(20) == 0 {
				silent[producer] = second + rng.IntN(20)
			}
			b := changingRows(rng, producer, max(second-rng.IntN(3)*rng.IntN(2), 0))
			if second < silent[producer] || b.Len() == 0 {
				continue
			}
			if producer > 1 {
				s.memory.WriteProvisional((*aggregate.Provisional)(b.Clone()))
				publish(2)
			}
			if producer == 1 || rng.IntN(10) > 0 {
				at := second + rng.IntN(5)
				waiting[at] = append(waiting[at], b)
			}
		}
		for _, b := range waiting[second] {
			s.writeBlock(t, b)
			publish(3)
		}
		switch rng.IntN(30) {
		case 0:
			s.memory.Expect(names[:2], []uint64{3})
		case 1, 2:
			s.memory.Expect(names, nil)
		}
		publish(1)
		each(second)
	}
}

// TestChangesAnyOrder: whatever rows come, in whatever order, the changes lead to the initial state of a later stream,
// and a reader that resumes gets the same ones.
func TestChangesAnyOrder(t *testing.T) {
	const link = "leaf1:up1"
	rounds := 40
	if testing.Short() {
		rounds = 6
	}
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			now := begin
			clock := func() time.Time { return now }
			s := newServed(t, 9, func(c *api.Config) {
				c.Memory, c.Now, c.MaxLag = table.NewMemory(table.MemoryOptions{Epoch: 7, Log: 4000, Windows: 12, Now: clock}), clock, 3999
			})
			parameters := fmt.Sprintf("heartbeat=60s&windows=%d", []int{1, 3, 1, 10}[seed%4])
			streams := map[string]*followed{"": follow(t, s, parameters), link: follow(t, s, parameters+"&link="+link)}
			congested := follow(t, s, parameters+"&state=congested")
			writeAnyOrder(t, rand.New(rand.NewPCG(uint64(seed), 2)), s, &now, func(second int) {
				if second%7 > 0 {
					return
				}
				later := follow(t, s, parameters).events(t)
				for at, stream := range streams {
					want, got := heldAfter(t, later, at), heldAfter(t, eventsIn(stream.body.String()), at)
					if !maps.Equal(want, got) {
						t.Fatalf("seed %d, second %d, link %q: a later stream begins with (-), changes lead to (+):\n%s", seed, second, at, cmp.Diff(want, got))
					}
				}
				want, got := heldAfter(t, later, ""), heldAfter(t, eventsIn(congested.body.String()), "")
				for _, held := range []map[string]string{want, got} {
					maps.DeleteFunc(held, func(of, _ string) bool { return strings.HasPrefix(of, "coverage ") })
				}
				if !maps.Equal(want, got) {
					t.Fatalf("seed %d, second %d: a later stream begins with (-), changes of congested cells lead to (+):\n%s", seed, second, cmp.Diff(want, got))
				}
			})
			streams[link].end()
			congested.end()
			events := streams[""].events(t)
			for i, e := range events {
				if e.id == "" || i%5 > 0 {
					continue
				}
				if rest := follow(t, s, parameters+"&after="+e.id).events(t); !slices.Equal(rest, events[i+1:]) {
					t.Fatalf("seed %d: resumed after %s with %q, want %q", seed, e.id, rest, events[i+1:])
				}
			}
		})
	}
}
