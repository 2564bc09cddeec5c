package table_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
)

const fineLength, fineLateness = 100 * time.Millisecond, 200 * time.Millisecond

// fineBlock returns a block of a short window that begins at start.
func fineBlock(producer uint64, start time.Time, cells int) *aggregate.Block {
	number := uint64(start.UnixNano()) / uint64(fineLength)
	b := tabletest.Block(rand.New(rand.NewPCG(producer, number)), producer, start, cells, csig.MinABWRatio, csig.MaxDelay)
	b.Resolution, b.Seq = int64(fineLength), number
	return b
}

// fineMemories returns both memories, which publish until stop. start is the end of the only 1 s
// window, which two producers wrote.
func fineMemories(t *testing.T) (seconds, fine *table.Memory, start time.Time, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	seconds = table.NewMemory(table.MemoryOptions{Lateness: 400 * time.Millisecond})
	fine = table.NewFineMemory(seconds, fineLength, fineLateness, 1<<20)
	var running sync.WaitGroup
	running.Go(func() { _ = seconds.Run(ctx) })
	running.Go(func() { _ = fine.Run(ctx) })
	second := int(time.Since(begin) / time.Second)
	start = begin.Add(time.Duration(second+1) * time.Second)
	time.Sleep(time.Until(start))
	write(t, seconds, block(1, second, 9), block(2, second, 9))
	synctest.Wait()
	return seconds, fine, start, func() {
		cancel()
		running.Wait()
	}
}

// TestFine: a short window is shown when a producer has rows of it, and without rows when its
// lateness has passed. It is final when the blocks of all announced rows are there, or are overdue.
func TestFine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seconds, fine, start, stop := fineMemories(t)
		var events []string
		var watching sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		watching.Go(func() {
			for w := fine.Watch(0); ; {
				step, err := w.Next(ctx)
				if err != nil {
					return
				}
				for _, w := range step.Windows {
					if from := w.Start.Sub(start); from >= 0 && from < time.Second {
						cells := w.Cells(csig.MaxDelay)
						events = append(events, fmt.Sprintf("%s at %s: %d cells, final %t, %g", from, time.Since(start), len(cells), w.Final, w.Completeness()))
					}
				}
			}
		})
		at := func(offset time.Duration) { time.Sleep(time.Until(start.Add(offset))) }
		ms := time.Millisecond
		for _, a := range []struct {
			at       time.Duration
			producer uint64
			final    bool
			window   time.Duration
			cells    int
		}{
			{100 * ms, 1, false, 0, 4},
			{300 * ms, 2, false, 200 * ms, 4},
			{320 * ms, 1, false, 200 * ms, 9},
			{350 * ms, 1, false, 300 * ms, 4}, // by a clock that is ahead
			{600 * ms, 1, true, 0, 9},
			{600 * ms, 2, true, 200 * ms, 9},
			{700 * ms, 1, true, 200 * ms, 9},
		} {
			at(a.at)
			b := fineBlock(a.producer, start.Add(a.window), a.cells)
			if a.final {
				write(t, fine, b)
			} else {
				fine.WriteProvisional(provisionalOf(b))
			}
		}
		at(900 * ms)
		if got, want := fine.State().Coverage, seconds.State().Coverage; got.Expected != 2 || got.Expected != want.Expected || got.Present() != want.Present() {
			t.Errorf("%d of %d producers are present, want %d of %d", got.Present(), got.Expected, want.Present(), want.Expected)
		}
		at(12 * time.Second)
		cancel()
		watching.Wait()
		stop()
		want := []string{
			"0s at 100ms: 4 cells, final false, 1",
			"100ms at 310ms: 0 cells, final false, 1",
			"200ms at 310ms: 4 cells, final false, 1",
			"200ms at 320ms: 9 cells, final false, 1",
			"300ms at 400ms: 4 cells, final false, 1",
			"100ms at 450ms: 0 cells, final true, 1",
			"0s at 610ms: 9 cells, final true, 1",
			"200ms at 610ms: 9 cells, final false, 1",
			"200ms at 700ms: 9 cells, final true, 1",
			"400ms at 750ms: 0 cells, final true, 1",
			"500ms at 850ms: 0 cells, final true, 1",
			"600ms at 950ms: 0 cells, final true, 1",
			"700ms at 1.05s: 0 cells, final true, 1",
			"800ms at 1.15s: 0 cells, final true, 1",
			"900ms at 1.25s: 0 cells, final true, 1",
			"300ms at 4s: 0 cells, final true, 0",
		}
		if diff := cmp.Diff(want, events); diff != "" {
			t.Errorf("windows (-want +got):\n%s", diff)
		}
		if n := len(fine.State().Windows); n != 84 {
			t.Errorf("%d windows are kept, want those of 8.4 s", n)
		}
		if got, want := fine.Counts(), (table.Counts{Provisional: table.ProvisionalCounts{Taken: 4, Expired: 1}}); got != want {
			t.Errorf("counts %+v, want %+v", got, want)
		}
	})
}

// TestFineStates: cells of short windows have the states of the 1 s windows, whatever their own
// rows, and none if no 1 s window has judged them.
func TestFineStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seconds, fine, start, stop := fineMemories(t)
		defer stop()
		b := fineBlock(1, start, 9)
		clear(b.Heavy)
		clear(b.HeavySum)
		b.SrcGroup[0]++ // not in any 1 s window
		time.Sleep(fineLength)
		fine.WriteProvisional(provisionalOf(b))
		synctest.Wait()
		judged := make(map[[2]aggregate.GroupID]aggregate.CellStats)
		for _, c := range seconds.State().Newest().Cells(csig.MinABWRatio) {
			judged[[2]aggregate.GroupID{c.Src, c.Dst}] = c
		}
		for name, cells := range map[string][]aggregate.CellStats{
			"one window":  fine.State().Newest().Cells(csig.MinABWRatio),
			"two windows": table.Merge(fine.State().Last(2)).Cells(csig.MinABWRatio, nil),
		} {
			congested := 0
			for _, c := range cells {
				s, ok := judged[[2]aggregate.GroupID{c.Src, c.Dst}]
				if !ok {
					t.Fatalf("%s: no window of 1 s has %+v", name, c)
				}
				if c.State != s.State || c.Verdict != s.Verdict {
					t.Errorf("%s: %s since %d, want %s since %d", name, c.State, c.Since, s.State, s.Since)
				}
				if c.State == aggregate.Congested {
					congested++
				}
			}
			if len(cells) != 9 || congested == 0 {
				t.Errorf("%s: %d cells, %d of them congested", name, len(cells), congested)
			}
		}
		b = fineBlock(1, start.Add(fineLength), 1)
		for i := range b.SrcGroup {
			b.SrcGroup[i] += 100
		}
		time.Sleep(fineLength)
		fine.WriteProvisional(provisionalOf(b))
		synctest.Wait()
		if c := fine.State().Newest().Cells(csig.MinABWRatio)[0]; c.Heavy == 0 || c.State != aggregate.NotJudged {
			t.Errorf("a cell that no window of 1 s has judged is %s", c.State)
		}
		for _, c := range table.Merge(fine.State().Last(2)).Cells(csig.MinABWRatio, nil) {
			if c.JudgedWindows > 1 || c.JudgedWindows == 0 && c.State == aggregate.Congested {
				t.Errorf("%d windows of 1 s judged the cell, want 1: %+v", c.JudgedWindows, c)
			}
		}
	})
}

// TestFineSeconds: a sum of short windows counts each second once, also if a short window changes after later ones.
func TestFineSeconds(t *testing.T) {
	now := begin
	seconds := table.NewMemory(table.MemoryOptions{Now: func() time.Time { return now }})
	fine := table.NewFineMemory(seconds, fineLength, fineLateness, 1<<20)
	for second, start := range []int{1, 2, 1} { // the last one is late
		now = begin.Add(time.Duration(second+1)*time.Second + fineLength)
		write(t, seconds, block(1, second, 9))
		seconds.Publish()
		write(t, fine, fineBlock(uint64(second), begin.Add(time.Duration(start)*time.Second), 9))
		fine.Publish()
	}
	for _, c := range table.Merge(fine.State().Windows).Cells(csig.MinABWRatio, nil) {
		if c.JudgedWindows != 2 {
			t.Errorf("%v: %d windows of 1 s, want 2", c.ID(), c.JudgedWindows)
		}
	}
}

// TestFineOld: sums of short windows leave out cells without current rows, but not those that came
// back before a 1 s window includes them.
func TestFineOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, fine, start, stop := fineMemories(t)
		defer stop()
		at := func(offset time.Duration) time.Time {
			time.Sleep(time.Until(start.Add(offset)))
			return start.Add(offset - fineLength)
		}
		write(t, fine, fineBlock(1, at(fineLength), 9))
		back := fineBlock(1, at(6*time.Second+fineLength), 9)
		for i := range back.SrcGroup {
			back.SrcGroup[i], back.DstGroup[i] = tabletest.FirstGroup, tabletest.FirstGroup
		}
		fine.WriteProvisional(provisionalOf(back))
		synctest.Wait()
		s := fine.State()
		windows := s.Last(70)
		cells := table.Merge(windows).Without(s.Old(windows)).Cells(csig.MaxDelay, nil)
		if len(cells) != 1 || cells[0].Src != tabletest.FirstGroup || cells[0].Dst != tabletest.FirstGroup {
			t.Errorf("%d cells, want the one that came back", len(cells))
		}
	})
}

// TestFineSameAsTable: final short windows hold the same as a Table of the same blocks, whatever
// was announced earlier, in whatever order and however often blocks come.
func TestFineSameAsTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, fine, start, stop := fineMemories(t)
		defer stop()
		rng := rand.New(rand.NewPCG(1, 2))
		all := table.New(table.Bounds{Resolution: fineLength, Steps: 100, Rows: 1 << 20})
		var blocks []*aggregate.Block
		for window := range 10 {
			time.Sleep(fineLength)
			for producer := range uint64(3) {
				for part := range uint64(2) {
					if rng.IntN(3) == 0 { // nothing was heavy
						continue
					}
					b := fineBlock(producer, start.Add(time.Duration(window)*fineLength), 1+rng.IntN(40))
					b.Seq += part << aggregate.PartShift
					blocks = append(blocks, b)
					if rng.IntN(4) > 0 {
						early := provisionalOf(b)
						early.Observations[0]--
						fine.WriteProvisional(early)
					}
				}
			}
		}
		write(t, all, blocks...)
		write(t, fine, blocks...)
		late := *blocks[0]
		late.Seq += 1000
		write(t, all, &late)
		rng.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
		write(t, fine, append(blocks, &late)...)
		time.Sleep(time.Second)
		s := fine.State()
		for _, step := range all.Steps() {
			i := slices.IndexFunc(s.Windows, func(w *table.Window) bool { return w.Start.UnixNano() == step.Start })
			if i < 0 || !s.Windows[i].Final {
				t.Fatalf("the window at %d is not there, or not final", step.Start)
			}
			for _, signal := range []csig.Signal{csig.MinABWRatio, csig.MaxDelay} {
				if diff := cmp.Diff(step.Cells(signal, nil), s.Windows[i].Cells(signal), unjudged); diff != "" {
					t.Errorf("%s of the window at %d (-want +got):\n%s", signal, step.Start, diff)
				}
			}
		}
	})
}
