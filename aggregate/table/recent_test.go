package table_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// begin is before the clock of a synctest bubble.
var begin = time.Date(1999, 1, 20, 9, 0, 0, 0, time.UTC)

func block(producer uint64, second, cells int) *aggregate.Block {
	rng := rand.New(rand.NewPCG(producer, uint64(second)))
	return tabletest.Block(rng, producer, begin.Add(time.Duration(second)*time.Second), cells, csig.MinABWRatio, csig.MaxDelay)
}

func write(t *testing.T, m aggregate.Sink, blocks ...*aggregate.Block) {
	t.Helper()
	for _, b := range blocks {
		if err := m.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
}

// unjudged leaves out the verdicts on windows, which tables do not have.
var unjudged = cmpopts.IgnoreFields(aggregate.CellStats{}, "Verdict", "State", "JudgedWindows", "CongestedWindows")

// TestPartsOfARange: windows as parts of a range use the kinds of observations that cells have in the whole
// range. Tags that are too old do not count beside reflections that are not.
func TestPartsOfARange(t *testing.T) {
	const tag, reflection = uint8(decode.Tag), uint8(decode.Reflection)
	for name, tt := range map[string]struct {
		kinds [][]uint8 // of a cell's rows, second by second
		want  []decode.Kind
	}{
		"tags only":               {[][]uint8{{tag}, {}, {tag}}, []decode.Kind{decode.Tag, 0, decode.Tag}},
		"reflections only":        {[][]uint8{{reflection}, {reflection}}, []decode.Kind{decode.Reflection, decode.Reflection}},
		"reflections of later":    {[][]uint8{{tag}, {tag}, {reflection}}, []decode.Kind{decode.Tag, decode.Tag, 0}},
		"both at once":            {[][]uint8{{reflection}, {tag, reflection}}, []decode.Kind{0, decode.Tag}},
		"tags are too old":        {[][]uint8{{tag}, {tag, reflection}, {}, {}, {reflection}}, []decode.Kind{0, decode.Reflection, 0, 0, decode.Reflection}},
		"both are too old":        {[][]uint8{{tag}, {reflection}, {}, {}, {}, {}}, []decode.Kind{decode.Tag, 0, 0, 0, 0, 0}},
		"reflections are too old": {[][]uint8{{reflection}, {}, {}, {}, {tag}}, []decode.Kind{0, 0, 0, 0, decode.Tag}},
	} {
		now := begin
		m := table.NewMemory(table.MemoryOptions{Now: func() time.Time { return now }})
		for second, kinds := range tt.kinds {
			now = begin.Add(time.Duration(second+1) * time.Second)
			write(t, m, block(1, second, 40)) // other cells
			for _, kind := range kinds {
				b := block(2+uint64(kind), second, 1)
				b.Kind = slices.Repeat([]uint8{kind}, b.Len())
				b.SrcGroup, b.DstGroup = slices.Repeat([]uint64{7}, b.Len()), slices.Repeat([]uint64{8}, b.Len())
				write(t, m, b)
			}
			m.Publish()
		}
		s := m.State()
		parts := s.Parts(s.Windows)
		for second, w := range s.Windows {
			part := parts[second]
			find := func(cells []aggregate.CellStats) (kind decode.Kind) {
				for _, c := range cells {
					if c.Src == 7 {
						kind = c.Kind
					}
				}
				return kind
			}
			if got := find(part.Cells(csig.MaxDelay)); got != tt.want[second] {
				t.Errorf("%s: the cell has kind %d in window %d, want %d", name, got, second, tt.want[second])
			}
			if same := find(w.Cells(csig.MaxDelay)) == tt.want[second]; same != (part == w) {
				t.Errorf("%s: window %d is copied %t, although its kinds are the same %t", name, second, part != w, same)
			}
		}
	}
}

// TestSameAsTable: windows hold the same as a Table of the same blocks, alone and merged.
func TestSameAsTable(t *testing.T) {
	m := table.NewMemory(table.MemoryOptions{Windows: 3, Now: tabletest.Still})
	all := table.New(table.Bounds{Resolution: time.Second, Rows: 1 << 20})
	for second := range 5 {
		for producer := range uint64(3) {
			b := block(producer, second, 40)
			write(t, m, b)
			if second >= 2 {
				write(t, all, b)
			}
		}
		m.Publish()
	}
	s := m.State()
	if s.Revision != 5 || len(s.Windows) != 3 {
		t.Fatalf("revision %d with %d windows, want 5 with 3", s.Revision, len(s.Windows))
	}
	for _, signal := range []csig.Signal{csig.MinABWRatio, csig.MaxDelay} {
		if diff := cmp.Diff(all.Total().Cells(signal, nil), table.Merge(s.Last(10)).Cells(signal, nil), unjudged); diff != "" {
			t.Errorf("%s merged (-want +got):\n%s", signal, diff)
		}
		one := table.New(table.Bounds{Resolution: time.Second, Rows: 1 << 20})
		write(t, one, block(0, 4, 40), block(1, 4, 40), block(2, 4, 40))
		if diff := cmp.Diff(one.Total().Cells(signal, nil), s.Newest().Cells(signal), unjudged); diff != "" {
			t.Errorf("%s of the newest window (-want +got):\n%s", signal, diff)
		}
	}
}

// TestRevisions: a state never changes, and late blocks make a new revision of their window, and of later ones on whose
// cells the verdicts change.
func TestRevisions(t *testing.T) {
	m := table.NewMemory(table.MemoryOptions{Now: tabletest.Still})
	write(t, m, block(1, 0, 8))
	m.Publish()
	first := m.State()
	before := first.Newest().Rows.Cells(csig.MaxDelay, nil)
	write(t, m, block(2, 1, 8))
	m.Publish()
	if w := m.State().Newest(); w.Completeness() != 0.5 || w.Producers != 1 || w.Coverage.Expected != 2 {
		t.Errorf("one of two producers told: completeness %v of %d/%d", w.Completeness(), w.Producers, w.Coverage.Expected)
	}
	write(t, m, block(2, 0, 8))
	m.Publish()
	last := m.State()
	if last.Revision != 3 || last.Windows[0].Revision != 3 || last.Windows[1].Revision != 3 || last.Windows[0].Completeness() != 1 {
		t.Errorf("revision %d, windows of %d and %d, want 3 of 3 and 3", last.Revision, last.Windows[0].Revision, last.Windows[1].Revision)
	}
	if diff := cmp.Diff(before, first.Newest().Rows.Cells(csig.MaxDelay, nil)); diff != "" {
		t.Errorf("a late block changed an old state:\n%s", diff)
	}
	if old, ok := last.At(1); !ok || len(old.Windows) != 1 {
		t.Errorf("revision 1 is not at hand")
	}
	m.Publish()
	if m.State().Revision != 3 {
		t.Errorf("nothing changed and revision is %d", m.State().Revision)
	}
}

// TestBounds holds windows, rows and the log to their bounds.
func TestBounds(t *testing.T) {
	m := table.NewMemory(table.MemoryOptions{Windows: 4, MaxRows: 400, Log: 3, Now: tabletest.Still})
	total := map[int]uint64{}
	for second := range 20 {
		b := block(1, second, 300)
		for i, n := range b.Observations {
			if decode.Kind(b.Kind[i]) == decode.Tag { // all cells have tags, which hide reflections
				total[second] += n
			}
		}
		write(t, m, b)
		m.Publish()
		s := m.State()
		rows := 0
		for _, w := range s.Windows {
			rows += w.Rows.Len()
		}
		if rows > 400 || len(s.Windows) > 4 || len(s.Windows) == 0 {
			t.Fatalf("%d rows in %d windows, want at most 400 in 4", rows, len(s.Windows))
		}
	}
	s := m.State()
	var kept uint64
	for _, signal := range s.Signals() {
		for _, c := range s.Newest().Cells(signal) {
			kept += c.Observations
		}
	}
	if kept != total[19] {
		t.Errorf("%d of %d observations past the bound on rows", kept, total[19])
	}
	if _, ok := s.At(s.Revision - 3); ok {
		t.Error("the log is longer than its bound")
	}
	write(t, m, block(1, 0, 4))
	if c := m.Counts(); c.OldBlocks+c.DroppedWindows == 0 {
		t.Errorf("counts %+v, want the forgotten told", c)
	}
}

// TestRunDebounces: blocks of the same moment make one revision, and readers do not have to poll for
// it.
func TestRunDebounces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := table.NewMemory(table.MemoryOptions{})
		var wg sync.WaitGroup
		wg.Go(func() { _ = m.Run(ctx) })
		w := m.Watch(0)
		if step, err := w.Next(ctx); err != nil || step.Kind != table.Snapshot {
			t.Fatalf("first step %+v, %v", step, err)
		}
		start := time.Now()
		wg.Go(func() {
			for producer := range uint64(4) {
				write(t, m, block(producer, 0, 4))
				time.Sleep(time.Millisecond)
			}
		})
		step, err := w.Next(ctx)
		if err != nil || step.Kind != table.Changed || step.State.Revision != 1 || len(step.Windows) != 1 {
			t.Fatalf("step %+v, %v", step, err)
		}
		if took := time.Since(start); step.Windows[0].Producers != 4 || took != 10*time.Millisecond {
			t.Errorf("%d producers after %s, want 4 after 10ms", step.Windows[0].Producers, took)
		}
		cancel()
		wg.Wait()
	})
}

// TestRunGoesOn: a window waits for producers that wrote a kept one, and no longer.
func TestRunGoesOn(t *testing.T) {
	const debounce = 10 * time.Millisecond
	seq := uint64(0)
	told := func(second int, producers ...uint64) (list []*aggregate.Block) {
		for _, p := range producers {
			b := block(p, second, 4)
			seq++
			b.Seq = seq
			list = append(list, b)
		}
		return list
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := table.NewMemory(table.MemoryOptions{Windows: 4})
		var wg sync.WaitGroup
		wg.Go(func() { _ = m.Run(ctx) })
		w := m.Watch(0)
		if _, err := w.Next(ctx); err != nil {
			t.Fatal(err)
		}
		for i, step := range []struct {
			blocks []*aggregate.Block
			took   time.Duration
			why    string
		}{
			{told(0, 1, 2, 2), debounce, "nothing is known of the first window"},
			{told(1, 1, 2, 2), 0, "all is there"},
			{told(2, 2, 1), debounce, "a block of a producer with two is missing"},
			{told(3, 2, 1), 0, "who had two had one the last time"},
			{told(4, 1), debounce, "one is silent"},
			{told(5, 1, 2), 0, "all who are known are there"},
			{told(6, 2), debounce, "one is silent"},
			{told(5, 1, 2), debounce, "late blocks await nobody"},
			{told(7, 2), debounce, "the producer of a kept window is awaited"},
			{told(8, 2), debounce, "as long as it is"},
			{told(9, 2), 0, "and no longer"},
			{told(9, 2), debounce, "a complete window is complete once"},
			{told(10, 2, 3), debounce, "a block of a producer with two is missing, and one of an unknown producer is not"},
		} {
			start := time.Now()
			write(t, m, step.blocks...)
			if _, err := w.Next(ctx); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took != step.took || m.State().Revision != uint64(i+1) {
				t.Errorf("step %d: revision %d after %s, want %d after %s: %s", i, m.State().Revision, took, i+1, step.took, step.why)
			}
			time.Sleep(time.Second)
		}
		cancel()
		wg.Wait()
	})
}

// TestWatchers: a slow watcher gets a Lagging step and starts again; one that comes back resumes.
func TestWatchers(t *testing.T) {
	m := table.NewMemory(table.MemoryOptions{Log: 8, Now: tabletest.Still})
	step := func(w *table.Watcher) table.Step {
		t.Helper()
		s, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	publish := func(from, to int) {
		for second := from; second < to; second++ {
			write(t, m, block(1, second, 4))
			m.Publish()
		}
	}
	slow := m.Watch(4)
	step(slow)
	publish(0, 4)
	for revision := range uint64(4) {
		if s := step(slow); s.Kind != table.Changed || s.State.Revision != revision+1 {
			t.Fatalf("step %+v, want revision %d", s, revision+1)
		}
	}
	publish(4, 10)
	if s := step(slow); s.Kind != table.Lagging || s.Missed != 6 {
		t.Errorf("step %+v, want lagging by 6", s)
	}
	if s := step(slow); s.Kind != table.Snapshot || s.State.Revision != 10 {
		t.Errorf("step %+v, want a snapshot", s)
	}
	publish(10, 11)
	step(slow)
	slow.Lose()
	if s := step(slow); s.Kind != table.Lagging || s.Missed != 1 {
		t.Errorf("step %+v, want the one that was lost", s)
	}
	if s := step(slow); s.Kind != table.Snapshot || s.State.Revision != 11 {
		t.Errorf("step %+v, want a snapshot", s)
	}
	epoch := m.State().Epoch
	if s := step(m.Resume(0, epoch, 8)); s.Kind != table.Changed || s.State.Revision != 9 {
		t.Errorf("resumed with %+v, want revision 9", s)
	}
	for name, w := range map[string]*table.Watcher{
		"expired": m.Resume(0, epoch, 1), "epoch": m.Resume(0, epoch+2, 9), "ahead": m.Resume(0, epoch, 99),
	} {
		if a, b := step(w), step(w); a.Kind != table.Gap || b.Kind != table.Snapshot {
			t.Errorf("%s: resumed with %+v, %+v, want a gap and a snapshot", name, a, b)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := slow.Next(ctx); err == nil {
		t.Error("waiting ended without an error")
	}
}

// TestDurable: windows are durable when a Sync that began after their last block has ended, and
// watchers learn of it without another revision.
func TestDurable(t *testing.T) {
	m := table.NewMemory(table.MemoryOptions{Now: tabletest.Still})
	w := m.Watch(0)
	next := func(w *table.Watcher, kind table.StepKind, starts ...int) table.Step {
		t.Helper()
		step, err := w.Next(t.Context())
		if err != nil || step.Kind != kind || kind != table.Snapshot && len(step.Windows) != len(starts) {
			t.Fatalf("step %+v, %v, want kind %d of windows %v", step, err, kind, starts)
		}
		for i, second := range starts {
			if !step.Windows[i].Start.Equal(begin.Add(time.Duration(second) * time.Second)) {
				t.Errorf("window %s, want second %d", step.Windows[i].Start, second)
			}
		}
		return step
	}
	sync := func(during func() error) error {
		return m.Sync(t.Context(), func(context.Context) error { return during() })
	}
	done := func() error { return nil }
	next(w, table.Snapshot)

	write(t, m, block(1, 0, 4))
	m.Publish()
	if step := next(w, table.Changed, 0); step.Windows[0].Durable || step.State.Durable(step.State.Windows) {
		t.Error("a window is durable before a Sync")
	}
	failed := errors.New("disk full")
	if err := sync(func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("Sync: %v, want %v", err, failed)
	}
	err := sync(func() error {
		if s := m.State(); s.Durable(s.Windows) {
			t.Error("a window is durable while it is written")
		}
		write(t, m, block(1, 1, 4)) // too late for this one
		m.Publish()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	next(w, table.Changed, 1)
	if step := next(w, table.Durable, 0); step.State.Revision != 2 || step.State.Durable(step.State.Windows) || !step.State.Durable(step.State.Windows[:1]) {
		t.Errorf("after the first Sync %+v", step)
	}
	if old, ok := m.State().At(1); !ok || !old.Durable(old.Windows) {
		t.Error("a state in the log does not know of a later Sync")
	}

	// Late rows make an older window not durable again; rows of a revision after the Sync are
	// durable in it.
	late := func(producer uint64) *aggregate.Block {
		b := block(producer, 0, 4)
		for i := range b.Len() {
			b.SrcGroup[i] += 4 // other cells: the states in later windows stay as they are
		}
		return b
	}
	write(t, m, late(2), block(1, 2, 4))
	if err := sync(done); err != nil {
		t.Fatal(err)
	}
	m.Publish()
	if step := next(w, table.Changed, 0, 2); !step.Windows[0].Durable || !step.Windows[1].Durable {
		t.Error("windows are not durable whose rows were on disk before they were published")
	}
	next(w, table.Durable, 1)
	write(t, m, late(3))
	m.Publish()
	if step := next(w, table.Changed, 0); step.Windows[0].Durable {
		t.Error("late rows are durable before a Sync")
	}
	if err := sync(done); err != nil {
		t.Fatal(err)
	}
	if err := sync(done); err != nil {
		t.Fatal(err)
	}
	next(w, table.Durable, 0)

	s := m.State()
	again := m.Resume(0, s.Epoch, s.Revision-1)
	next(again, table.Changed, 0)
	next(again, table.Durable, 0, 1)
	for i, w := range []*table.Watcher{w, again, m.Watch(0)} {
		write(t, m, block(1, 9+i, 4), block(2, 9+i, 4))
		m.Publish()
		if step, err := w.Next(t.Context()); err != nil || step.Kind == table.Durable {
			t.Errorf("told again of durable windows: %+v, %v", step, err)
		}
	}
}
