package table_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
)

// observations counts the observations of a state, in tags and reflections.
func observations(s *table.State) (n uint64) {
	for _, w := range s.Windows {
		for _, signal := range w.Signals() {
			w.Rows.Each(signal, func(_ aggregate.CellID, l *aggregate.LocationStats) { n += l.Observations })
		}
	}
	return n
}

// seconds returns the starts of windows, in seconds after begin.
func seconds(s *table.State) (list []int) {
	for _, w := range s.Windows {
		list = append(list, int(w.Start.Sub(begin)/time.Second))
	}
	return list
}

// TestOnce: a block counts once, however often and whenever it comes, whatever the state of its
// window.
func TestOnce(t *testing.T) {
	m := table.NewMemory(table.MemoryOptions{MaxRows: 400, Now: tabletest.Still})
	other := block(1, 0, 8)
	other.Incarnation++
	delta := block(1, 0, 8)
	delta.Seq += 1 << 40
	want := uint64(0)
	for _, b := range []*aggregate.Block{block(1, 0, 8), block(2, 0, 8), other, delta} {
		write(t, m, b)
		for i := range b.Len() {
			want += b.Observations[i]
		}
	}
	m.Publish()
	first := m.State()
	if got := observations(first); got != want {
		t.Fatalf("%d observations of four blocks, want %d", got, want)
	}
	write(t, m, block(1, 0, 8), delta, block(2, 0, 8), other, block(1, 0, 8))
	m.Publish()
	if m.State() != first || m.Counts() != (table.Counts{RepeatedBlocks: 5}) {
		t.Errorf("repeated blocks made revision %d, counts %+v", m.State().Revision, m.Counts())
	}

	// The bound on rows makes the memory forget windows early. A block of one of them may
	// have been counted.
	for second := 1; second < 5; second++ {
		write(t, m, block(1, second, 300))
	}
	before := m.Counts()
	write(t, m, block(1, 0, 8), block(3, 0, 8))
	m.Publish()
	if c := m.Counts(); before.DroppedWindows == 0 || c.OldBlocks != 2 || slices.Contains(seconds(m.State()), 0) {
		t.Errorf("counts %+v then %+v, windows %v: want no forgotten window again", before, c, seconds(m.State()))
	}
}

// TestCrowded: a producer with ever more blocks takes bounded room.
func TestCrowded(t *testing.T) {
	m := table.NewMemory(table.MemoryOptions{Now: tabletest.Still})
	const bound = 1 << 12
	b := block(1, 0, 1)
	for range bound + 10 {
		b.Seq++
		write(t, m, b)
	}
	write(t, m, block(2, 0, 1))
	m.Publish()
	if c := m.Counts(); c != (table.Counts{CrowdedBlocks: 10}) || m.State().Newest().Producers != 2 {
		t.Errorf("counts %+v, %d producers: want 10 crowded blocks of one of two", c, m.State().Newest().Producers)
	}
}

// TestNewest: the median of producers decides which window is newest; windows ahead wait for it.
func TestNewest(t *testing.T) {
	for _, test := range []struct {
		name   string
		ahead  time.Duration
		blocks [][2]int // producer, second
		now    int      // seconds after begin
		want   []int    // shown windows
		counts table.Counts
	}{
		{"one alone", 0, [][2]int{{1, 0}, {1, 1}}, 0, []int{0, 1}, table.Counts{}},
		{"one of three is ahead", 0, [][2]int{{1, 0}, {2, 0}, {3, 0}, {3, 1}, {3, 2}}, 0, []int{0}, table.Counts{}},
		{"the others reach it", 0, [][2]int{{1, 0}, {2, 0}, {3, 0}, {3, 1}, {3, 2}, {1, 2}}, 0, []int{0, 1, 2}, table.Counts{}},
		{"one of three is behind", 0, [][2]int{{1, 0}, {2, 0}, {3, 0}, {1, 1}, {2, 1}}, 0, []int{0, 1}, table.Counts{}},
		{"beyond the bound", 0, [][2]int{{1, 0}, {2, 0}, {2, 3}, {1, 2}}, 0, []int{0, 1, 2}, table.Counts{AheadBlocks: 1}},
		{"no newest is far ahead", 0, [][2]int{{1, 0}, {2, 0}, {2, 59}, {3, 59}, {4, 59}}, 0, []int{0}, table.Counts{AheadBlocks: 3}},
		{"a configured bound", time.Minute, [][2]int{{1, 0}, {2, 59}, {3, 59}}, 0, []int{56, 57, 58, 59}, table.Counts{}},
		{"many windows ahead", time.Hour, [][2]int{{1, 0}, {2, 0}, {3, 1}, {3, 2}, {3, 3}, {3, 4}, {3, 5}, {3, 6}}, 0, []int{0}, table.Counts{AheadBlocks: 2}},
		{"late blocks find their window", 0, [][2]int{{1, 1}, {2, 1}, {3, 2}, {1, 0}}, 0, []int{0, 1}, table.Counts{}},
		{"too late", 0, [][2]int{{1, 5}, {1, 6}, {1, 7}, {1, 8}, {2, 4}}, 8, []int{5, 6, 7, 8}, table.Counts{OldBlocks: 1}},
		{"captures have their own clock", -1, [][2]int{{1, 0}, {2, 0}, {3, 0}, {3, 500}}, 0, []int{0, 500}, table.Counts{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := begin.Add(time.Duration(test.now) * time.Second)
			m := table.NewMemory(table.MemoryOptions{Windows: 4, Ahead: test.ahead, Now: func() time.Time { return now }})
			for _, b := range test.blocks {
				write(t, m, block(uint64(b[0]), b[1], 2))
			}
			m.Publish()
			if got := seconds(m.State()); !slices.Equal(got, test.want) || m.Counts() != test.counts {
				t.Errorf("windows %v, counts %+v, want %v, %+v", got, m.Counts(), test.want, test.counts)
			}
		})
	}
}

// TestFloodAhead: rows of windows ahead do not push out shown windows.
func TestFloodAhead(t *testing.T) {
	m := table.NewMemory(table.MemoryOptions{MaxRows: 400, Now: func() time.Time { return begin }})
	for producer := range uint64(3) {
		write(t, m, block(producer, -1, 4), block(producer, 0, 4))
	}
	write(t, m, block(0, 1, 300), block(0, 2, 300))
	m.Publish()
	counts := m.Counts()
	counts.UncoveredCells = 0 // from 300 cells
	if got := seconds(m.State()); !slices.Equal(got, []int{-1, 0}) || counts != (table.Counts{}) {
		t.Errorf("windows %v, counts %+v", got, counts)
	}
}

// TestClockSetBack: once the clock is right again, windows of its future are gone, and current ones
// count.
func TestClockSetBack(t *testing.T) {
	now := begin.Add(time.Hour)
	m := table.NewMemory(table.MemoryOptions{Windows: 4, Now: func() time.Time { return now }})
	for second := range 6 {
		write(t, m, block(1, 3600-6+second, 4), block(2, 3600-6+second, 4))
	}
	m.Publish()
	now = begin.Add(10 * time.Second)
	write(t, m, block(1, 10, 4), block(2, 10, 4), block(2, 3600, 4))
	m.Publish()
	if got := seconds(m.State()); !slices.Equal(got, []int{10}) || m.Counts() != (table.Counts{AheadBlocks: 1}) {
		t.Errorf("windows %v, counts %+v", got, m.Counts())
	}
}

// TestSetBackUnheard: if no block comes after the clock was set back, since all are ahead of it, the
// windows of its future are gone soon all the same, and watchers start again.
func TestSetBackUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var back atomic.Int64
		m := table.NewMemory(table.MemoryOptions{Epoch: 7, Now: func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }})
		m.Expect([]table.Producer{{ID: 2, Name: "tap"}}, nil)
		var wg sync.WaitGroup
		wg.Go(func() { _ = m.Run(ctx) })
		write(t, m, block(1, int(time.Since(begin)/time.Second), 4)) // with the ID 2
		before, _ := m.Wait(ctx, 7, 0)
		watcher := m.Watch(0)
		next := func() table.Step {
			step, err := watcher.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return step
		}
		next()
		start := time.Now()
		back.Store(int64(2 * time.Hour))
		s, _ := m.Wait(ctx, before.Epoch, before.Revision)
		if took := time.Since(start); len(s.Windows) > 0 || s.Epoch == before.Epoch || took > 4*time.Second {
			t.Errorf("after %s windows %v of epoch %d", took, seconds(s), s.Epoch)
		}
		if c := s.Coverage; c.Expected != 1 || len(c.Silent) != 1 {
			t.Errorf("%d expected, silent %v", c.Expected, c.Silent)
		}
		if lost, all := next(), next(); lost.Kind != table.Gap || lost.Missed != 0 || all.Kind != table.Snapshot || all.State.Revision != s.Revision {
			t.Errorf("steps %+v, %+v", lost, all)
		}
		cancel()
		wg.Wait()
	})
}

// TestPresence: windows ahead are shown when the producers for which they wait are no longer
// present, even without a write.
func TestPresence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := table.NewMemory(table.MemoryOptions{})
		var wg sync.WaitGroup
		wg.Go(func() { _ = m.Run(ctx) })
		write(t, m, block(1, 0, 4), block(2, 0, 4), block(3, 0, 4))
		time.Sleep(time.Second)
		start := time.Now()
		write(t, m, block(3, 1, 4))
		time.Sleep(500 * time.Millisecond)
		if got := seconds(m.State()); !slices.Equal(got, []int{0}) {
			t.Errorf("windows %v while one of three is ahead", got)
		}
		if s, _ := m.Wait(ctx, m.State().Epoch, m.State().Revision); !slices.Equal(seconds(s), []int{0, 1}) || time.Since(start) > 4*time.Second {
			t.Errorf("windows %v after %s", seconds(s), time.Since(start))
		}
		cancel()
		wg.Wait()
	})
}

// TestAheadSame: windows hold the same, whether producers are in step or up to two seconds apart
// and repeat themselves.
func TestAheadSame(t *testing.T) {
	now := begin.Add(10 * time.Second)
	options := table.MemoryOptions{Now: func() time.Time { return now }}
	inStep, apart := table.NewMemory(options), table.NewMemory(options)
	for second := range 12 {
		for producer := range 5 {
			write(t, inStep, block(uint64(producer), second, 9))
			for _, at := range []int{second - producer%3, second - 1 - producer%3} {
				write(t, apart, block(uint64(producer), max(at, 0), 9))
			}
		}
		inStep.Publish()
		apart.Publish()
	}
	for i, second := range []int{0, 5, 9} {
		want, got := inStep.State().Windows[second], apart.State().Windows[second]
		if diff := cmp.Diff(want.Cells(csig.MaxDelay), got.Cells(csig.MaxDelay)); diff != "" || !want.Start.Equal(got.Start) {
			t.Errorf("window %d of %s and %s (-want +got):\n%s", i, want.Start, got.Start, diff)
		}
	}
}

// TestExpected: completeness counts expected producers, whether or not they ever wrote.
func TestExpected(t *testing.T) {
	m := table.NewMemory(table.MemoryOptions{Now: tabletest.Still})
	want := func(producers, expected int, missing ...string) {
		t.Helper()
		m.Publish()
		var names []string
		for _, p := range m.State().Coverage.Silent {
			names = append(names, p.Name)
		}
		if w := m.State().Newest(); w.Producers != producers || w.Coverage.Expected != expected || !slices.Equal(names, missing) {
			t.Errorf("%d of %d producers, missing %v, want %d of %d, %v", w.Producers, w.Coverage.Expected, names, producers, expected, missing)
		}
	}
	var list []table.Producer
	for i := range 100 {
		list = append(list, table.Producer{ID: uint64(i) + 2, Name: string(rune('a' + i%3))})
	}
	m.Expect(list, nil)
	write(t, m, block(1, 0, 2)) // with the ID 2
	m.Publish()
	if w := m.State().Newest(); w.Completeness() != 0.01 || len(w.Coverage.Silent) != 99 {
		t.Errorf("one of 100 wrote: completeness %v, %d are missing", w.Completeness(), len(w.Coverage.Silent))
	}
	m.Expect([]table.Producer{{ID: 2, Name: "one"}, {ID: 7, Name: "silent"}, {ID: 8, Name: "never"}}, nil)
	write(t, m, block(1, 1, 2), block(2, 1, 2)) // the second is unknown
	want(2, 4, "never", "silent")
	m.Expect([]table.Producer{{ID: 8, Name: "never"}}, nil) // the others are forgotten
	write(t, m, block(1, 2, 2), block(2, 2, 2))
	want(2, 3, "never")
	write(t, m, block(6, 2, 2)) // and one is back
	want(3, 4, "never")
	write(t, m, block(7, 2, 2))
	want(4, 4)
}
