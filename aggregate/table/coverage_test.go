package table_test

import (
	"context"
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

// clocked runs f beside a memory that publishes by the bubble's clock, from a whole second on.
func clocked(t *testing.T, o table.MemoryOptions, f func(m *table.Memory, start int)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := table.NewMemory(o)
		var running sync.WaitGroup
		running.Go(func() { _ = m.Run(ctx) })
		f(m, int(time.Since(begin)/time.Second))
		cancel()
		running.Wait()
	})
}

// announce makes producers write the window that ends now, provisionally and finally, and waits for
// the end of the next one.
func announce(t *testing.T, m *table.Memory, second int, cells map[uint64]int) {
	t.Helper()
	time.Sleep(time.Until(begin.Add(time.Duration(second+1)*time.Second + 20*time.Millisecond)))
	for p, n := range cells {
		m.WriteProvisional(provisionalOf(block(p, second, n)))
		write(t, m, block(p, second-2, n))
	}
	synctest.Wait()
}

// cellStates returns the cells of the last n windows as clients get them: the number with values,
// and the number without data.
func cellStates(s *table.State, n int) (numbers, silent int, covers []table.CellCoverage) {
	windows := s.Last(n)
	cells := s.Coverage.All(table.Merge(windows).Without(s.Old(windows)).Cells(csig.MaxDelay, nil), csig.MaxDelay)
	for _, c := range cells {
		if c.State == aggregate.NoData {
			silent++
		} else {
			numbers++
		}
	}
	return numbers, silent, s.Coverage.Of(cells, csig.MaxDelay)
}

// TestSilence: when the only sender falls silent, its cells have no data after MaxAge, over any
// number of windows, and windows without rows follow the clock until it is back.
func TestSilence(t *testing.T) {
	clocked(t, table.MemoryOptions{Windows: 20}, func(m *table.Memory, start int) {
		for i := range 8 {
			announce(t, m, start+i, map[uint64]int{1: 4})
		}
		for _, n := range []int{1, 3, 8} {
			if numbers, silent, _ := cellStates(m.State(), n); numbers != 4 || silent != 0 {
				t.Errorf("%d windows while it sends: %d cells with numbers, %d without data", n, numbers, silent)
			}
		}
		time.Sleep(2900 * time.Millisecond)
		synctest.Wait()
		if numbers, _, _ := cellStates(m.State(), 1); numbers != 4 {
			t.Errorf("%d cells before MaxAge, want 4", numbers)
		}
		time.Sleep(100 * time.Millisecond)
		for after := 3; after < 180; after++ {
			synctest.Wait()
			s := m.State()
			if age := s.Published.Sub(s.Newest().End); age < 0 || age > 1100*time.Millisecond || s.Coverage.Present() != 0 || s.Coverage.Expected != 1 || s.Newest().Completeness() != 0 {
				t.Fatalf("%d s later: the newest window is %s old, from %d of %d producers, completeness %v", after, age, s.Coverage.Present(), s.Coverage.Expected, s.Newest().Completeness())
			}
			for _, n := range []int{1, 3, 10, 20} {
				if numbers, silent, covers := cellStates(s, n); numbers != 0 || silent != 4 || covers[0].Expected != 1 || len(covers[0].Silent) != 1 {
					t.Fatalf("%d s later, %d windows: %d cells with numbers, %d without data", after, n, numbers, silent)
				}
			}
			time.Sleep(time.Second)
		}
		back := int(time.Since(begin) / time.Second)
		for i := range 5 {
			announce(t, m, back+i, map[uint64]int{1: 4})
		}
		s := m.State()
		if numbers, silent, covers := cellStates(s, 1); numbers != 4 || silent != 0 || len(covers[0].Silent) != 0 || s.Coverage.Present() != 1 {
			t.Errorf("it is back: %d cells with numbers, %d without data, %d of 1 present", numbers, silent, s.Coverage.Present())
		}
	})
}

// TestOneIsSilent: completeness stays below 1 while a producer is silent, its cells name it as
// missing, and cells of it alone have no data. Once it is forgotten, it is no longer expected.
func TestOneIsSilent(t *testing.T) {
	clocked(t, table.MemoryOptions{Windows: 10}, func(m *table.Memory, start int) {
		// Blocks of the producer 1 have the ID 2.
		m.Expect([]table.Producer{{ID: 2, Name: "eth0"}, {ID: 3, Name: "eth1"}}, nil)
		for i := range 5 {
			announce(t, m, start+i, map[uint64]int{1: 1, 2: 4})
		}
		for i := 5; i < 100; i++ {
			announce(t, m, start+i, map[uint64]int{1: 1})
			s := m.State()
			numbers, silent, covers := cellStates(s, 10)
			gone := i >= 5+2
			if want := map[bool][2]int{false: {4, 0}, true: {1, 3}}[gone]; numbers != want[0] || silent != want[1] {
				t.Fatalf("%d s later: %d cells with numbers, %d without data", i-4, numbers, silent)
			}
			if c := covers[0]; c.Expected != 2 || gone != slices.Equal(c.Silent, []string{"eth1"}) || gone != (s.Newest().Completeness() == 0.5 && s.Coverage.Present() == 1) && i > 5 {
				t.Fatalf("%d s later: the cell of both has %d producers, silent %v; completeness %v", i-4, c.Expected, c.Silent, s.Newest().Completeness())
			}
		}
		m.Expect([]table.Producer{{ID: 2, Name: "eth0"}}, []uint64{3})
		announce(t, m, start+100, map[uint64]int{1: 1})
		if s := m.State(); s.Newest().Completeness() != 1 || s.Coverage.Expected != 1 {
			t.Errorf("forgotten: %d expected, completeness %v", s.Coverage.Expected, s.Newest().Completeness())
		}
	})
}

// TestNeverSpoke: an expected producer counts before its first window, and before any window.
func TestNeverSpoke(t *testing.T) {
	clocked(t, table.MemoryOptions{}, func(m *table.Memory, start int) {
		never := table.Producer{ID: 9, Name: "eth9"}
		m.Expect([]table.Producer{{ID: 2, Name: "eth0"}, never}, nil)
		if c := m.State().Coverage; c.Expected != 2 || c.Present() != 0 || m.State().Revision != 1 {
			t.Errorf("before the first window: %d of %d", c.Present(), c.Expected)
		}
		fine := table.NewFineMemory(m, fineLength, fineLateness, 1000)
		if fine.Publish(); fine.State().Coverage.Expected != 2 {
			t.Errorf("before the first short window: %d expected", fine.State().Coverage.Expected)
		}
		for i := range 80 {
			announce(t, m, start+i, map[uint64]int{1: 1})
			if s := m.State(); s.Newest().Completeness() != 0.5 || !cmp.Equal(s.Coverage.Silent, []table.Producer{never}) {
				t.Fatalf("completeness %v, silent %v", s.Newest().Completeness(), s.Coverage.Silent)
			}
		}
	})
}

// TestLastIsTime: the last n windows are those of the last n seconds. An outage among them appears
// as windows without rows, and earlier windows do not replace them.
func TestLastIsTime(t *testing.T) {
	m := table.NewMemory(table.MemoryOptions{Windows: 20, Now: tabletest.Still})
	for _, second := range []int{0, 1, 2, 8, 9} {
		write(t, m, block(1, second, 2))
		m.Publish()
	}
	s := m.State()
	for n, want := range map[int][]int{1: {9}, 3: {7, 8, 9}, 9: {1, 2, 3, 4, 5, 6, 7, 8, 9}} {
		var got []int
		for _, w := range s.Last(n) {
			second := int(w.Start.Sub(begin) / time.Second)
			got = append(got, second)
			if empty := second > 2 && second < 8; empty != (w.Rows.Len() == 0 && w.Producers == 0 && w.Completeness() == 0) {
				t.Errorf("second %d: %d rows of %d producers", second, w.Rows.Len(), w.Producers)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the last %d windows are %v, want %v", n, got, want)
		}
	}
}

// TestCoverageBound: past the bound on cells, those without coverage are still shown, and counted.
func TestCoverageBound(t *testing.T) {
	m := table.NewMemory(table.MemoryOptions{MaxRows: 4000, Now: tabletest.Still})
	write(t, m, block(1, 0, 9))
	for second := range 200 { // cells of other producers
		write(t, m, block(uint64(2+second%50), second, 9))
		m.Publish()
	}
	s := m.State()
	numbers, silent, covers := cellStates(s, 1)
	if numbers != 9 || silent != 0 || len(covers) != 9 || m.Counts().UncoveredCells == 0 {
		t.Errorf("%d cells with numbers, %d without data, %d covers, counts %+v", numbers, silent, len(covers), m.Counts())
	}
}

// TestMaxLag: windows that come long after their time, as from a spool, do not describe the
// present.
func TestMaxLag(t *testing.T) {
	clocked(t, table.MemoryOptions{MaxLag: 10 * time.Second}, func(m *table.Memory, start int) {
		for i := range 60 {
			time.Sleep(time.Until(begin.Add(time.Duration(start+1+i) * time.Second)))
			write(t, m, block(1, start+i-50+2*min(i, 25), 4)) // catches up from 50 s behind
			time.Sleep(20 * time.Millisecond)                 // until it is published
			s, late := m.State(), 50-2*min(i, 25)
			numbers, silent, _ := cellStates(s, 10)
			// Between, newer windows follow the clock, and some of the last ones have rows.
			if late > 12 && silent != 4 || late < 10 && numbers != 4 {
				t.Fatalf("%d s behind: %d cells with numbers, %d without data, the newest window ends %s ago", late, numbers, silent, s.Published.Sub(s.Newest().End))
			}
		}
	})
}
