package table_test

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// loadedBlock returns a block with cells that are heavy for minutes, and others with too few
// samples.
func loadedBlock(rng *rand.Rand, producer uint64, second int) *aggregate.Block {
	b := tabletest.Block(rng, producer, begin.Add(time.Duration(second)*time.Second), 9, csig.MinABWRatio)
	for i := range b.Len() {
		switch phase := (second + 37*int(b.SrcGroup[i]%7)) % 200; {
		case phase < 140:
			b.Heavy[i] = 0
		case phase < 150:
			b.Heavy[i] /= 30
		}
		if (second+int(b.DstGroup[i]))%5 == 0 {
			b.Samples[i] = min(b.Samples[i], 2)
		}
	}
	return b
}

// TestJudged: cells of captures that were read in any order are judged like cells in memory, by
// their last windows.
func TestJudged(t *testing.T) {
	thresholds := aggregate.Thresholds{Onset: 0.3, Clear: 0.1}
	states := map[aggregate.State]bool{}
	for _, seconds := range []int{1, 40, 300, 360, 420} {
		rng := rand.New(rand.NewPCG(1, uint64(seconds)))
		m := table.NewMemory(table.MemoryOptions{Windows: aggregate.Horizon, Thresholds: thresholds, Now: tabletest.Still})
		var blocks []*aggregate.Block
		for second := range seconds {
			for producer := range uint64(2) {
				blocks = append(blocks, loadedBlock(rng, producer, second))
			}
		}
		write(t, m, blocks...)
		m.Publish()
		windows := m.State().Last(aggregate.Horizon)
		want := table.Merge(windows).Cells(csig.MinABWRatio, nil)

		whole := table.New(table.Bounds{Resolution: time.Second, Rows: 1 << 20})
		j := table.NewJudged(thresholds, time.Second, 1<<20)
		slices.SortStableFunc(blocks, func(a, b *aggregate.Block) int { return int(b.Producer) - int(a.Producer) })
		write(t, whole, blocks...)
		write(t, j, blocks...)
		for i, c := range j.Judge(whole.Total()).Cells(csig.MinABWRatio, nil) {
			w := &want[i]
			if c.Verdict != w.Verdict || c.JudgedWindows != w.JudgedWindows || c.CongestedWindows != w.CongestedWindows || c.State != w.State {
				t.Errorf("%d s, %v: %+v, %s, %d of %d windows, want %+v, %s, %d of %d", seconds, c.ID(), c.Verdict, c.State, c.CongestedWindows, c.JudgedWindows,
					w.Verdict, w.State, w.CongestedWindows, w.JudgedWindows)
			}
			states[c.State] = true
		}
		if from, to := j.Extent(); !from.Equal(begin) || to.Sub(from) != time.Duration(seconds)*time.Second {
			t.Errorf("%d s: from %s to %s", seconds, from, to)
		}
	}
	if len(states) < 3 {
		t.Errorf("no cells but %v", states)
	}
}

// TestJudgedBound: past its bound, a cell is judged by its newest windows, and one that came too
// late by its sums.
func TestJudgedBound(t *testing.T) {
	j, whole := table.NewJudged(aggregate.DefaultThresholds(), time.Second, 2), table.New(table.Bounds{Resolution: time.Second, Rows: 100})
	if from, to := j.Extent(); !from.IsZero() || !to.IsZero() {
		t.Errorf("from %s to %s of nothing", from, to)
	}
	for i, cells := range []int{1, 1, 4} { // a tag and a reflection, the same a second later, and others
		b := tabletest.Block(rand.New(rand.NewPCG(1, 1)), uint64(i), begin.Add(time.Duration(min(i, 1))*time.Second), cells, csig.MinABWRatio)
		copy(b.Heavy, b.Observations)
		write(t, j, b)
		write(t, whole, b)
	}
	for i, c := range j.Judge(whole.Total()).Cells(csig.MinABWRatio, nil) {
		judged, since := uint64(0), int64(0)
		if i == 0 {
			judged, since = 1, begin.Add(time.Second).UnixNano()
		}
		if c.State != aggregate.Congested || c.JudgedWindows != judged || c.Since != since {
			t.Errorf("cell %d: %s since %d, of %d windows; want congested since %d, of %d", i, c.State, c.Since, c.JudgedWindows, since, judged)
		}
	}
}

// sparse writes windows of a second each of which has a row of other cells, with heavy observations only.
func sparse(t *testing.T, m *table.Memory, windows, rows int) {
	t.Helper()
	for second := range windows {
		b := tabletest.Block(rand.New(rand.NewPCG(1, 1)), 1, begin.Add(time.Duration(second)*time.Second), rows/3+1, csig.MaxDelay)
		for i := range b.Len() {
			b.SrcGroup[i] += uint64(second * rows)
			b.Heavy[i], b.Samples[i] = b.Observations[i], max(b.Samples[i], aggregate.MinObservations)
		}
		write(t, m, b)
		m.Publish()
	}
}

// TestMemoryOfFewRows: a memory of many cells with few rows each takes memory for its rows, as documented.
func TestMemoryOfFewRows(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var is runtime.MemStats
		runtime.ReadMemStats(&is)
		return is.HeapAlloc
	}
	const windows = 60
	before := heap()
	m := table.NewMemory(table.MemoryOptions{Now: tabletest.Still})
	sparse(t, m, windows, 1000)
	rows := 0
	for _, w := range m.State().Windows {
		rows += w.Rows.Len()
	}
	if bytes := (heap() - before) / uint64(rows); bytes > 1000 {
		t.Errorf("%d bytes for each of %d rows", bytes, rows)
	}
	runtime.KeepAlive(m)
}

// TestForgottenRows: a cell stays congested when its rows are forgotten, as long as its last windows decide.
func TestForgottenRows(t *testing.T) {
	m := table.NewMemory(table.MemoryOptions{Windows: 5, Now: tabletest.Still})
	sparse(t, m, aggregate.Horizon+20, 3)
	s := m.State()
	for second := range aggregate.Horizon + 20 {
		cell := aggregate.CellKey{Signal: csig.MaxDelay, Kind: decode.Tag, Src: aggregate.GroupID(tabletest.FirstGroup + second*3), Dst: tabletest.FirstGroup}
		start := begin.Add(time.Duration(second) * time.Second).UnixNano()
		want := aggregate.Verdict{Sustained: true, Since: start, Lasted: s.Newest().End.UnixNano() - start, AnyJudged: true, AnyLoaded: true}
		if second < 20 {
			want = aggregate.Verdict{}
		}
		if got := s.Verdict(cell, start); got != want {
			t.Errorf("cell of second %d: %+v, want %+v", second, got, want)
		}
	}
}

// shareBlock returns a block of one cell, with a share of heavy observations in percent.
func shareBlock(producer uint64, second int, src uint64, percent uint64) *aggregate.Block {
	b := tabletest.Block(rand.New(rand.NewPCG(1, 1)), producer, begin.Add(time.Duration(second)*time.Second), 1, csig.MaxDelay)
	for i := range b.Len() {
		b.SrcGroup[i] = src
		b.Observations[i], b.Samples[i], b.Heavy[i], b.Unjudged[i] = 100, 100, percent, 0
	}
	return b
}

// TestLateJudgement: a late block that changes the judgement of a window changes the states of a cell in all later
// windows with rows of it, which watchers get again.
func TestLateJudgement(t *testing.T) {
	const cell, other = tabletest.FirstGroup + 7, tabletest.FirstGroup + 8
	m := table.NewMemory(table.MemoryOptions{Now: tabletest.Still})
	w, steps := m.Watch(0), [][]int{nil, {6}, {4, 5, 6}, {7}}
	for i, b := range []*aggregate.Block{shareBlock(1, 5, cell, 3), shareBlock(1, 6, cell, 3), shareBlock(2, 4, cell, 50), shareBlock(1, 7, other, 0)} {
		write(t, m, b)
		m.Publish()
		if err := m.Sync(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		step, err := w.Next(t.Context())
		if got := seconds(&table.State{Windows: step.Windows}); err != nil || !slices.Equal(got, steps[i]) {
			t.Errorf("after block %d windows %v, %v", i, got, err)
		}
		if i == 0 {
			continue
		}
		for _, later := range step.Windows[1:] { // on disk before
			if !later.Durable || later.Coverage != step.State.Coverage {
				t.Errorf("window of %s: durable %t", later.Start, later.Durable)
			}
		}
		if step, err = w.Next(t.Context()); err != nil || step.Kind != table.Durable || len(step.Windows) != 1 {
			t.Errorf("after block %d step %+v, %v", i, step, err)
		}
	}
	s, since := m.State(), begin.Add(4*time.Second).UnixNano()
	key := aggregate.CellKey{Signal: csig.MaxDelay, Kind: decode.Tag, Src: cell, Dst: tabletest.FirstGroup}
	if v := s.Verdict(key, math.MaxInt64); !v.Sustained || v.Since != since {
		t.Errorf("%+v", v)
	}
	for i, n := range []uint64{1, 1, 1, 0, 3} {
		cells := table.Merge(s.Windows).Cells(csig.MaxDelay, nil)
		if i < len(s.Windows) {
			cells = s.Windows[i].Cells(csig.MaxDelay)
		}
		for _, c := range cells {
			if c.Src == cell && (c.State != aggregate.Congested || c.Since != since || c.CongestedWindows != n) {
				t.Errorf("%d: %s, %+v, %d of %d windows", i, c.State, c.Verdict, c.CongestedWindows, c.JudgedWindows)
			}
		}
	}
}

// TestLogOfLateRows: the log of revisions keeps within the bound on rows if late rows change the states of cells in later
// windows, copies of which it then holds.
func TestLogOfLateRows(t *testing.T) {
	const cells, most = 100, 1000
	m := table.NewMemory(table.MemoryOptions{MaxRows: most, Now: tabletest.Still})
	list := tabletest.Block(rand.New(rand.NewPCG(1, 1)), 1, begin.Add(50*time.Second), cells, csig.MaxDelay)
	for i := range list.Len() {
		list.Observations[i], list.Samples[i], list.Heavy[i], list.Unjudged[i] = 100, 100, 3, 0
	}
	write(t, m, list, shareBlock(1, 51, tabletest.FirstGroup+cells, 0))
	m.Publish()
	for i := range 30 { // an onset of another cell each time
		late := shareBlock(2, 10+i, list.SrcGroup[0], 50)
		for row := range late.Len() {
			late.DstGroup[row] = uint64(tabletest.FirstGroup + i%10)
			late.SrcGroup[row] += uint64(i / 10)
		}
		write(t, m, late)
		m.Publish()
	}
	s, kept := m.State(), 0
	for revision := range s.Revision {
		if _, ok := s.At(revision); ok {
			kept++
		}
	}
	if kept == 0 || kept > most/cells {
		t.Errorf("%d of %d revisions", kept, s.Revision)
	}
}

// TestVanishedRows: a congested cell whose last rows were announced and never came stays congested, also while the time
// of these rows is in memory and that of all others is not.
func TestVanishedRows(t *testing.T) {
	const cell, other = tabletest.FirstGroup + 7, tabletest.FirstGroup + 8
	for name, tt := range map[string]struct {
		announced        int
		percent, samples uint64
	}{"after the others are forgotten": {12, 50, 100}, "before": {5, 50, 100}, "too few to judge": {5, 0, 1}} {
		clocked(t, table.MemoryOptions{Windows: 10}, func(m *table.Memory, start int) {
			for i := range 24 {
				second := start + i
				time.Sleep(time.Until(begin.Add(time.Duration(second+1)*time.Second + 20*time.Millisecond)))
				switch i {
				case 0:
					write(t, m, shareBlock(1, second, cell, 50))
				case tt.announced:
					b := shareBlock(1, second, cell, tt.percent)
					for row := range b.Len() {
						b.Samples[row] = tt.samples
					}
					m.WriteProvisional(provisionalOf(b))
				}
				write(t, m, shareBlock(2, second, other, 0))
				synctest.Wait()
				key := aggregate.CellKey{Signal: csig.MaxDelay, Kind: decode.Tag, Src: cell, Dst: tabletest.FirstGroup}
				if v := m.State().Verdict(key, math.MaxInt64); !v.Sustained && i > 3 {
					t.Errorf("%s: after %d s: %+v", name, i+1, v)
				}
			}
		})
	}
}

// TestLateProducer: a producer whose rows always come with or after later windows of another shows a congestion that the
// other does not see, also with its first rows of the cell.
func TestLateProducer(t *testing.T) {
	const cell, other = tabletest.FirstGroup + 7, tabletest.FirstGroup + 8
	key := aggregate.CellKey{Signal: csig.MaxDelay, Kind: decode.Tag, Src: cell, Dst: tabletest.FirstGroup}
	for _, tt := range []struct {
		late   int
		pause  time.Duration
		before uint64 // the cell that it sees before the congestion
	}{{1, 500 * time.Millisecond, cell}, {2, 0, cell}, {1, 500 * time.Millisecond, other}, {2, 0, other}} {
		clocked(t, table.MemoryOptions{}, func(m *table.Memory, start int) {
			for i := range 14 {
				second := start + i
				time.Sleep(time.Until(begin.Add(time.Duration(second+1)*time.Second + 20*time.Millisecond)))
				m.WriteProvisional(provisionalOf(shareBlock(1, second, cell, 0)))
				time.Sleep(tt.pause)
				if i > 5 {
					write(t, m, shareBlock(2, second-tt.late, cell, 50))
				} else {
					write(t, m, shareBlock(2, second-tt.late, tt.before, 0))
				}
				time.Sleep(100 * time.Millisecond)
				if v := m.State().Verdict(key, math.MaxInt64); v.Sustained != (i > 5) {
					t.Errorf("%+v: after %d s: %+v", tt, i+1, v)
				}
				write(t, m, shareBlock(1, second-2, cell, 0))
			}
		})
	}
}

// TestOldLateRows: a late block does not change the states of windows up to which the onset before it still counts.
func TestOldLateRows(t *testing.T) {
	const cell = tabletest.FirstGroup + 7
	m := table.NewMemory(table.MemoryOptions{Now: tabletest.Still})
	few := shareBlock(1, 270, cell, 0)
	for i := range few.Len() {
		few.Samples[i] = 1
	}
	write(t, m, shareBlock(1, 0, cell, 50))
	for second := 1; second <= 310; second++ {
		if second == 270 {
			write(t, m, few)
		} else {
			write(t, m, shareBlock(1, second, cell, 3))
		}
		m.Publish()
	}
	write(t, m, shareBlock(2, 270, cell, 6)) // 3 % of both
	m.Publish()
	for _, w := range m.State().Windows {
		want := aggregate.Congested
		if w.Start.Sub(begin) >= 300*time.Second {
			want = aggregate.Brief
		}
		if c := w.Cells(csig.MaxDelay); len(c) != 1 || c[0].State != want {
			t.Errorf("%s: %v, want %s", w.Start, c, want)
		}
	}
}

// TestShortLog: the log keeps the revision before, however many rows a revision has, so that readers who are in step do
// not begin again.
func TestShortLog(t *testing.T) {
	m := table.NewMemory(table.MemoryOptions{MaxRows: 100, Now: tabletest.Still})
	next := func(w *table.Watcher) table.Step {
		t.Helper()
		step, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return step
	}
	w := m.Watch(0)
	next(w)
	for producer := range uint64(4) {
		for second := range 4 {
			write(t, m, block(producer, second, 9))
		}
		m.Publish()
		if step := next(w); step.Kind != table.Changed || producer > 0 && (step.Before == nil || step.Before.Revision != step.State.Revision-1) {
			t.Errorf("rows of producer %d: step %+v", producer, step)
		}
	}
	s := m.State()
	for back, known := range []bool{true, true, false} {
		if _, ok := s.At(s.Revision - uint64(back)); ok != known {
			t.Errorf("%d revisions ago: available %t", back, ok)
		}
	}
	if step := next(m.Resume(0, s.Epoch, s.Revision-1)); step.Kind != table.Changed || step.State.Revision != s.Revision {
		t.Errorf("resumed with %+v", step)
	}
	if step := next(m.Resume(0, s.Epoch, s.Revision-2)); step.Kind != table.Gap {
		t.Errorf("resumed from a revision that is not available with %+v", step)
	}
}

// TestLateCapture: rows of captures that come long after those of later windows leave the states of other cells.
func TestLateCapture(t *testing.T) {
	const cell, other = tabletest.FirstGroup + 7, tabletest.FirstGroup + 8
	m := table.NewMemory(table.MemoryOptions{Ahead: -1})
	for _, b := range []*aggregate.Block{shareBlock(1, 0, other, 3), shareBlock(1, 399, cell, 50), shareBlock(2, 0, other, 3), shareBlock(1, 400, cell, 3)} {
		write(t, m, b)
		m.Publish()
	}
	key := aggregate.CellKey{Signal: csig.MaxDelay, Kind: decode.Tag, Src: cell, Dst: tabletest.FirstGroup}
	if v := m.State().Verdict(key, math.MaxInt64); !v.Sustained {
		t.Errorf("%+v", v)
	}
}

// TestStatesSetBack: a congested cell keeps its state after the clock was set back, also once its rows are forgotten while
// the time of its dropped windows is still to come.
func TestStatesSetBack(t *testing.T) {
	const cell, other = tabletest.FirstGroup + 7, tabletest.FirstGroup + 8
	now := begin.Add(200 * time.Second)
	m := table.NewMemory(table.MemoryOptions{Now: func() time.Time { return now }})
	write(t, m, shareBlock(1, 100, cell, 50))
	m.Publish()
	write(t, m, shareBlock(1, 199, cell, 0))
	m.Publish()
	key := aggregate.CellKey{Signal: csig.MaxDelay, Kind: decode.Tag, Src: cell, Dst: tabletest.FirstGroup}
	for second := 102; second < 210; second++ {
		now = begin.Add(time.Duration(second+1) * time.Second)
		if second <= 110 {
			write(t, m, shareBlock(1, second, cell, 50))
		} else {
			write(t, m, shareBlock(1, second, other, 0))
		}
		m.Publish()
		if v := m.State().Verdict(key, math.MaxInt64); !v.Sustained {
			t.Errorf("second %d: %+v", second, v)
		}
	}
}
