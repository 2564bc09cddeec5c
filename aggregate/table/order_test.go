package table_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// changingCells is the number of cells of a changingBlock, each with its own periods of load.
const changingCells = 4

// changingBlock returns a block of cells that are heavy, between the shares or clear for a while, some with too few
// samples. A producer lacks some cells in each window.
func changingBlock(rng *rand.Rand, producer uint64, second int) *aggregate.Block {
	b := tabletest.Block(rng, producer, begin.Add(time.Duration(second)*time.Second), changingCells, csig.MaxDelay)
	for i := range b.Len() {
		cell := (b.SrcGroup[i]-tabletest.FirstGroup)*2 + b.DstGroup[i] - tabletest.FirstGroup
		period := rand.New(rand.NewPCG(cell, uint64(second/8))).IntN(6)
		b.Observations[i], b.Samples[i], b.Unjudged[i] = 100, 100, 0
		b.Heavy[i] = []uint64{0, 0, 1, 3, 3, 50}[period]
		switch mix := rand.New(rand.NewPCG(cell+producer<<8, uint64(second))).IntN(12); mix {
		case 0, 1, 2, 3:
			b.SrcGroup[i], b.DstGroup[i] = 1<<50+producer, 1<<50 // another cell
		case 4:
			b.Samples[i] = 1
		case 5:
			b.Heavy[i] = 0
		case 6:
			b.Unjudged[i] = 100 - b.Heavy[i]
		case 7:
			b.Heavy[i] = 20
		}
	}
	return b
}

// arrival is a block, or provisional rows, that a memory gets at a time.
type arrival struct {
	at          time.Duration // after begin
	block       *aggregate.Block
	provisional bool
}

// arrivals returns the messages of producers about some windows, in the order in which they come, and the blocks by window.
// Some producers first announce these rows or others, some are late, and some vanish for a while without closing windows.
func arrivals(rng *rand.Rand, seconds int) (list []arrival, blocks []*aggregate.Block) {
	const second = time.Second
	for producer := range uint64(4) {
		announces, lags := rng.IntN(4) > 0, time.Duration(rng.IntN(3))*second
		lost := -1
		for n := range seconds {
			if rng.IntN(15) == 0 {
				lost = n + rng.IntN(8)
			}
			end := time.Duration(n+1)*second + lags + time.Duration(rng.IntN(300))*time.Millisecond
			b := changingBlock(rng, producer, n)
			if announces && rng.IntN(8) > 0 {
				early := b
				if rng.IntN(2) == 0 {
					early = changingBlock(rng, producer, max(n-1, 0))
					early.WindowStart = b.WindowStart
				}
				list = append(list, arrival{end, early, true})
			}
			if n <= lost {
				continue
			}
			at := end
			if announces {
				at += 2 * second
			}
			if rng.IntN(10) == 0 {
				at += time.Duration(rng.IntN(20)) * second
			}
			parts := []*aggregate.Block{b}
			if rng.IntN(8) == 0 {
				parts[0], b = halves(b)
				parts, parts[0].More, b.Seq = append(parts, b), true, b.Seq+1<<40
			}
			for _, b := range parts {
				list, blocks = append(list, arrival{at, b, false}), append(blocks, b)
				at += time.Duration(rng.IntN(3)) * second
			}
		}
	}
	for producer := range uint64(4) { // windows of all producers, after which all others are final
		for n := seconds + 26; n < seconds+29; n++ {
			b := changingBlock(rng, producer, n)
			list, blocks = append(list, arrival{time.Duration(n+1) * second, b, false}), append(blocks, b)
		}
	}
	slices.SortStableFunc(list, func(a, b arrival) int { return int(a.at - b.at) })
	slices.SortStableFunc(blocks, func(a, b *aggregate.Block) int { return int(a.WindowStart - b.WindowStart) })
	return list, blocks
}

// reader holds the windows of a watcher's steps.
type reader struct {
	watcher *table.Watcher
	windows map[time.Time]*table.Window
	durable map[time.Time]bool
}

// follow takes all steps up to the present state.
func (r *reader) follow(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for {
		step, err := r.watcher.Next(ctx)
		if err != nil {
			return
		}
		switch list := step.Windows; step.Kind {
		case table.Snapshot:
			r.windows, r.durable = make(map[time.Time]*table.Window), make(map[time.Time]bool)
			for _, w := range step.State.Windows {
				r.windows[w.Start], r.durable[w.Start] = w, step.State.Durable([]*table.Window{w})
			}
		case table.Changed:
			for _, w := range list {
				r.windows[w.Start], r.durable[w.Start] = w, w.Durable
			}
		case table.Durable:
			for _, w := range list {
				r.durable[w.Start] = true
			}
		}
	}
}

// sameCells reports whether the cells of both windows have equal numbers and states.
func sameCells(a, b *table.Window) bool {
	return slices.EqualFunc(a.Cells(csig.MaxDelay), b.Cells(csig.MaxDelay), func(a, b aggregate.CellStats) bool { return a.Equal(&b) })
}

// check compares the windows of a reader with those of a state.
func (r *reader) check(t *testing.T, s *table.State) {
	t.Helper()
	for _, w := range s.Windows {
		held := r.windows[w.Start]
		if held == nil || held.Revision != w.Revision || held.Final != w.Final || r.durable[w.Start] != s.Durable([]*table.Window{w}) {
			t.Fatalf("window %s of revision %d: a reader has %+v, durable %t", w.Start, w.Revision, held, r.durable[w.Start])
		}
		if !sameCells(w, held) {
			t.Fatalf("window %s of revision %d (-want +what a reader has):\n%s", w.Start, w.Revision, cmp.Diff(w.Cells(csig.MaxDelay), held.Cells(csig.MaxDelay)))
		}
	}
}

// sameStates compares the windows of states, and the verdicts on cells.
func sameStates(t *testing.T, want, got *table.State) {
	t.Helper()
	if !slices.Equal(seconds(want), seconds(got)) {
		t.Fatalf("windows %v, in order %v", seconds(got), seconds(want))
	}
	for i, w := range want.Windows {
		if diff := cmp.Diff(w.Cells(csig.MaxDelay), got.Windows[i].Cells(csig.MaxDelay)); diff != "" {
			t.Fatalf("window %s (-in order +in any order):\n%s", w.Start, diff)
		}
	}
	for cell := range changingCells {
		for _, kind := range []decode.Kind{decode.Tag, decode.Reflection} {
			k := aggregate.CellKey{Signal: csig.MaxDelay, Kind: kind, Src: aggregate.GroupID(tabletest.FirstGroup + cell/2), Dst: aggregate.GroupID(tabletest.FirstGroup + cell%2)}
			if a, b := want.Verdict(k, math.MaxInt64), got.Verdict(k, math.MaxInt64); a != b {
				t.Fatalf("%+v is %+v, in order %+v", k, b, a)
			}
		}
	}
}

// TestAnyOrder: whatever the order in which blocks come, and whatever was announced before, the states in the end are
// those of the same blocks in order. Readers of changes hold the windows of the present state, whenever they began.
func TestAnyOrder(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		length := 20 + rng.IntN(100)
		if seed%10 == 0 {
			length += aggregate.HistoryWindows
		}
		list, blocks := arrivals(rng, length)
		now := begin
		o := table.MemoryOptions{Log: 1000, MaxAge: time.Minute, Now: func() time.Time { return now }}
		bounded := true // such memories lack rows in the end
		switch seed % 4 {
		case 1:
			o.Windows = 8
		case 2:
			o.MaxRows = 400
		default:
			bounded = false
		}
		m := table.NewMemory(o)
		var readers []*reader
		for _, a := range list {
			now = begin.Add(a.at)
			if a.provisional {
				m.WriteProvisional(provisionalOf(a.block))
			} else {
				write(t, m, a.block)
			}
			if rng.IntN(3) == 0 {
				m.Publish()
			}
			if rng.IntN(40) == 0 {
				readers = append(readers[max(len(readers)-2, 0):], &reader{watcher: m.Watch(0)})
			}
			if rng.IntN(20) == 0 {
				if err := m.Sync(t.Context(), func(context.Context) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
			if rng.IntN(10) == 0 {
				for _, r := range readers {
					r.follow(t)
					r.check(t, m.State())
				}
			}
		}
		if bounded {
			continue
		}
		now = now.Add(10 * time.Second) // all windows are final
		m.Publish()
		ordered := table.NewMemory(o)
		for _, b := range blocks {
			write(t, ordered, b)
			ordered.Publish()
		}
		if sameStates(t, ordered.State(), m.State()); m.Counts().OldBlocks+m.Counts().AheadBlocks > 0 {
			t.Errorf("seed %d: %+v", seed, m.Counts())
		}
	}
}
