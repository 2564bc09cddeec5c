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

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// provisionalOf returns a block's rows as provisional ones, of its part.
func provisionalOf(b *aggregate.Block) *aggregate.Provisional {
	p := aggregate.Provisional(*b.Clone())
	p.Seq = b.Part() << aggregate.PartShift
	return &p
}

// partBlock returns a block of a part of a producer.
func partBlock(producer uint64, second, cells int, part uint64) *aggregate.Block {
	b := block(producer, second, cells)
	b.Seq += part << aggregate.PartShift
	return b
}

// observed returns the number of observations of blocks.
func observed(blocks ...*aggregate.Block) (n uint64) {
	for _, b := range blocks {
		for _, o := range b.Observations {
			n += o
		}
	}
	return n
}

// atSecond returns a memory whose clock is at the end of a window.
func atSecond(second int, o table.MemoryOptions) (m *table.Memory, now *time.Time) {
	at := begin.Add(time.Duration(second+1) * time.Second)
	o.Now = func() time.Time { return at }
	return table.NewMemory(o), &at
}

// TestProvisional: announced rows are shown until their blocks come, part by part, never beside the
// blocks, and neither as durable nor as final. States that readers have do not change.
func TestProvisional(t *testing.T) {
	m, now := atSecond(0, table.MemoryOptions{})
	a0, a1, b := partBlock(1, 0, 8, 0), partBlock(1, 0, 9, 1), block(2, 0, 7)
	early, half := provisionalOf(a0), provisionalOf(block(2, 0, 3))
	for i := range early.Observations {
		early.Observations[i]-- // one comes late
	}
	check := func(why string, want uint64, producers int, final, durable bool) *table.State {
		t.Helper()
		m.Publish()
		s := m.State()
		w := s.Newest()
		if got := observations(s); got != want || w.Producers != producers || w.Final != final || s.Durable(s.Windows) != durable {
			t.Fatalf("%s: %d observations of %d producers, final %t, durable %t: want %d, %d, %t, %t",
				why, got, w.Producers, w.Final, s.Durable(s.Windows), want, producers, final, durable)
		}
		return s
	}
	synced := func() {
		if err := m.Sync(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	m.WriteProvisional(early)
	synced()
	first := check("announced", observed(a0)-uint64(a0.Len()), 1, false, false)
	m.WriteProvisional(provisionalOf(a1))
	m.WriteProvisional(half)
	check("two parts and another producer", observed(a0, a1)-uint64(a0.Len())+observed((*aggregate.Block)(half)), 2, false, false)
	m.WriteProvisional(provisionalOf(b))
	m.WriteProvisional(provisionalOf(a0))
	check("replaced", observed(a0, a1, b), 2, false, false)
	*now = now.Add(2*time.Second + 30*time.Millisecond)
	write(t, m, a0)
	check("one part is final", observed(a0, a1, b), 2, false, false)
	m.WriteProvisional(early) // after its block
	write(t, m, b)
	check("one producer is final", observed(a0, a1, b), 2, false, false)
	synced()
	write(t, m, a1)
	last := check("all are final", observed(a0, a1, b), 2, true, false)
	synced()
	if s := m.State(); s.Revision != last.Revision || !s.Durable(s.Windows) {
		t.Errorf("revision %d is durable: %t", s.Revision, s.Durable(s.Windows))
	}
	m.WriteProvisional(provisionalOf(block(3, 0, 5)))
	delta := partBlock(2, 0, 4, 0)
	delta.Seq++
	write(t, m, delta)
	check("a late packet", observed(a0, a1, b, delta), 2, true, false)
	if got := observations(first); got != observed(a0)-uint64(a0.Len()) {
		t.Errorf("the first state changed to %d observations", got)
	}
	if got, want := m.Counts(), (table.Counts{Provisional: table.ProvisionalCounts{Taken: 5, Late: 2}}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

// TestProvisionalFinal: without a block, a window becomes final when its lateness has passed and no
// present producer can still have rows of it. Rows of a producer that went away are dropped.
func TestProvisionalFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := int(time.Since(begin) / time.Second)
		m := table.NewMemory(table.MemoryOptions{Lateness: 400 * time.Millisecond})
		var running sync.WaitGroup
		running.Go(func() { _ = m.Run(ctx) })
		// after returns how long after its end a window became final.
		after := func(second int) time.Duration {
			t.Helper()
			for s := m.State(); ; {
				for _, w := range s.Windows {
					if w.Final && w.Start.Equal(begin.Add(time.Duration(second)*time.Second)) {
						return s.Published.Sub(w.End)
					}
				}
				s, _ = m.Wait(ctx, s.Epoch, s.Revision)
			}
		}
		announce := func(second int, producers ...uint64) {
			time.Sleep(time.Until(begin.Add(time.Duration(second+1) * time.Second)))
			for _, p := range producers {
				m.WriteProvisional(provisionalOf(block(p, second, 4)))
			}
		}
		closes := func(second int, producers ...uint64) {
			time.Sleep(time.Until(begin.Add(time.Duration(second+1)*time.Second + 410*time.Millisecond)))
			for _, p := range producers {
				write(t, m, block(p, second, 4))
			}
		}
		for i, step := range []struct {
			second          int
			announce, close []uint64
			final           time.Duration
			why             string
		}{
			{0, []uint64{1, 2}, []uint64{1, 2}, 420 * time.Millisecond, "both closed it"},
			{1, []uint64{1, 2}, []uint64{1, 2}, 410 * time.Millisecond, "and it is complete"},
			{2, []uint64{1}, []uint64{1}, 450 * time.Millisecond, "the other one announced nothing"},
			{3, []uint64{1, 2}, []uint64{1}, 3400 * time.Millisecond, "the other one went away"},
			{7, []uint64{1, 2}, []uint64{1}, 450 * time.Millisecond, "who never closed a window is not awaited"},
			{8, []uint64{1, 2}, []uint64{1, 2}, 410 * time.Millisecond, "who closes it is"},
			{9, []uint64{1, 2}, []uint64{1}, 3400 * time.Millisecond, "and is awaited again"},
			{13, []uint64{1, 3}, []uint64{1, 3}, 410 * time.Millisecond, "who went away is not awaited"},
			{14, []uint64{1}, []uint64{1, 3}, 410 * time.Millisecond, "one announced nothing and closed it"},
		} {
			second := start + step.second
			announce(second, step.announce...)
			closes(second, step.close...)
			if got := after(second); got != step.final {
				t.Errorf("step %d: final %s after its end, want %s: %s", i, got, step.final, step.why)
			}
			for _, w := range m.State().Windows {
				if want := len(step.close); w.Start.Equal(begin.Add(time.Duration(second)*time.Second)) && w.Producers != want {
					t.Errorf("step %d: rows of %d producers, want %d", i, w.Producers, want)
				}
			}
		}
		if got, want := m.Counts().Provisional, (table.ProvisionalCounts{Taken: 16, Expired: 3}); got != want {
			t.Errorf("counts %+v, want %+v", got, want)
		}
		cancel()
		running.Wait()
	})
}

// TestProvisionalAgain: a producer that failed to close windows and closes them again is awaited again,
// although its blocks come after the time in which windows wait for the others.
func TestProvisionalAgain(t *testing.T) {
	m, now := atSecond(0, table.MemoryOptions{Lateness: 400 * time.Millisecond})
	// announce writes the rows of both producers when a window ends, and the blocks of some 410 ms later.
	announce := func(second int, closes ...uint64) {
		*now = begin.Add(time.Duration(second+1) * time.Second)
		for producer := range uint64(2) {
			m.WriteProvisional(provisionalOf(block(producer, second, 4)))
		}
		*now = now.Add(410 * time.Millisecond)
		for _, producer := range closes {
			write(t, m, block(producer, second, 4))
		}
		*now = now.Add(90 * time.Millisecond)
		m.Publish()
	}
	final := func(second int) (is bool) {
		for _, w := range m.State().Windows {
			is = is || w.Final && w.Start.Equal(begin.Add(time.Duration(second)*time.Second))
		}
		return is
	}
	announce(0, 0)
	*now = now.Add(3 * time.Second) // the first window no longer waits for its block
	m.Publish()
	announce(4, 0)
	if !final(4) {
		t.Error("a window waits for a producer that does not close windows")
	}
	write(t, m, block(1, 4, 4))
	announce(5, 0)
	if final(5) {
		t.Error("a window drops the rows of a producer that closed the window before")
	}
	// Later runs, after one that was killed: its rows expire after and before their first ones.
	for run, at := range []int{8, 12} {
		*now = begin.Add(time.Duration(at+1)*time.Second + time.Duration(run)*405*time.Millisecond)
		m.Publish()
		next := provisionalOf(block(1, at, 4))
		next.Incarnation += uint64(run + 1)
		m.WriteProvisional(next)
		*now = begin.Add(time.Duration(at+1)*time.Second + 410*time.Millisecond)
		write(t, m, block(0, at, 4))
		m.Publish()
		*now = now.Add(90 * time.Millisecond)
		if m.Publish(); final(at) {
			t.Errorf("window %d drops the rows of a run since an earlier one was killed", at)
		}
	}
}

// TestLongLateness: windows that stay open for as long as a memory keeps windows become final, too.
func TestLongLateness(t *testing.T) {
	const lateness = table.DefaultWindows
	m, now := atSecond(0, table.MemoryOptions{Lateness: lateness * time.Second})
	for second := range 2 * lateness {
		*now = begin.Add(time.Duration(second+1)*time.Second + 10*time.Millisecond)
		m.WriteProvisional(provisionalOf(block(1, second, 4)))
		if closed := second - lateness; closed >= 0 {
			write(t, m, block(1, closed, 4))
			if m.Publish(); !slices.ContainsFunc(m.State().Windows, func(w *table.Window) bool { return w.Final }) {
				t.Fatalf("no window is final once second %d has closed: %+v", closed, m.Counts())
			}
		}
	}
}

// cellBlock returns a block of a part of a producer with one cell.
func cellBlock(producer uint64, second int, part uint64, heavy bool) *aggregate.Block {
	b := partBlock(producer, second, 1, part)
	for i := range b.Len() {
		b.SrcGroup[i], b.DstGroup[i], b.Location[i] = 1, 2, 3
		b.Observations[i], b.Samples[i], b.Unjudged[i], b.Heavy[i] = 100, 100, 0, 0
		if heavy {
			b.Heavy[i] = 100
		}
	}
	return b
}

// TestPartialWindows: a window without the rows of a present producer of a cell, or of a part of it, does not
// end the cell's congestion, which that one may see; it can begin it. Once it is final it can do both.
func TestPartialWindows(t *testing.T) {
	m, now := atSecond(0, table.MemoryOptions{Lateness: 400 * time.Millisecond})
	const congested, brief = aggregate.Congested, aggregate.Brief
	check := func(second int, why string, want aggregate.State) {
		t.Helper()
		m.Publish()
		w := m.State().Newest()
		if c := w.Cells(csig.MinABWRatio)[0]; c.Src != 1 || c.State != want {
			t.Errorf("second %d, %s: got %+v at %s, want that the first cell is %s", second, why, c, w.Start, want)
		}
	}
	for second, tt := range []struct {
		heavy bool // part 1 of producer 1, which comes last
		want  [3]aggregate.State
	}{
		{true, [3]aggregate.State{aggregate.Clear, aggregate.Clear, congested}},
		{true, [3]aggregate.State{congested, congested, congested}},
		{false, [3]aggregate.State{congested, congested, brief}},
		{true, [3]aggregate.State{brief, brief, congested}},
	} {
		*now = begin.Add(time.Duration(second+1) * time.Second)
		if second < 2 { // a producer of other cells, which then lacks
			write(t, m, block(3, second, 1))
		}
		blocks := []*aggregate.Block{cellBlock(2, second, 0, false), cellBlock(1, second, 0, false), cellBlock(1, second, 1, tt.heavy)}
		for i, b := range blocks {
			m.WriteProvisional(provisionalOf(b))
			check(second, fmt.Sprintf("%d of 3 parts", i+1), tt.want[i])
		}
		late := cellBlock(2, second, 0, false)
		late.Seq++ // no part of its own
		write(t, m, append(blocks, late)...)
	}
	*now = begin.Add(5 * time.Second)
	write(t, m, cellBlock(2, 4, 0, false))
	check(4, "one producer", congested)
	*now = now.Add(500 * time.Millisecond) // producer 1 cannot write this window any more
	check(4, "final", brief)
}

// TestLaggingPart: a cell stays congested although those who see it announce each window only after the next one has
// ended: another producer, or another part of the same one.
func TestLaggingPart(t *testing.T) {
	for _, lags := range [][2]uint64{{2, 0}, {1, 1}} { // producer and part
		m, now := atSecond(0, table.MemoryOptions{})
		for second := range 6 {
			*now = begin.Add(time.Duration(second+1) * time.Second)
			m.WriteProvisional(provisionalOf(cellBlock(1, second, 0, false)))
			m.Publish()
			if state := m.State().Newest().Cells(csig.MinABWRatio)[0].State; second >= 2 && state != aggregate.Congested {
				t.Errorf("part %d of producer %d lags: second %d is %s", lags[1], lags[0], second, state)
			}
			*now = now.Add(200 * time.Millisecond)
			m.WriteProvisional(provisionalOf(cellBlock(lags[0], max(second-1, 0), lags[1], true)))
			m.Publish()
		}
	}
}

// halves cuts a block into two that follow each other.
func halves(b *aggregate.Block) (first, second *aggregate.Block) {
	first, second = b.Clone(), b.Clone()
	middle := b.Len() / 2
	buckets := b.DistEnd[middle-1]
	for _, column := range [][2]*[]uint8{{&first.Signal, &second.Signal}, {&first.Kind, &second.Kind}, {&first.Encoding, &second.Encoding}, {&first.Evidence, &second.Evidence}} {
		*column[0], *column[1] = (*column[0])[:middle], (*column[1])[middle:]
	}
	columns := func(b *aggregate.Block) []*[]uint64 {
		return []*[]uint64{
			&b.SrcGroup, &b.DstGroup, &b.Location, &b.Observations, &b.Samples, &b.Unjudged, &b.Bytes, &b.Sum, &b.Min, &b.Max,
			&b.Untouched, &b.Trimmed, &b.Heavy, &b.HeavySum,
		}
	}
	for i, column := range columns(first) {
		other := columns(second)[i]
		*column, *other = (*column)[:middle], (*other)[middle:]
	}
	first.DistCode, second.DistCode = first.DistCode[:buckets], second.DistCode[buckets:]
	first.DistCount, second.DistCount = first.DistCount[:buckets], second.DistCount[buckets:]
	first.DistEnd, second.DistEnd = first.DistEnd[:middle], second.DistEnd[middle:]
	for i := range second.DistEnd {
		second.DistEnd[i] -= buckets
	}
	first.More = true
	second.Seq++
	return first, second
}

// TestBlocksOfAPart: a window whose rows come in two blocks of a part is final only with the second one, and shows the
// announced rows of that one until then.
func TestBlocksOfAPart(t *testing.T) {
	for i, announced := range []bool{true, true, false} {
		m, now := atSecond(0, table.MemoryOptions{})
		whole := block(1, 0, 8)
		for i := range whole.Kind {
			whole.Kind[i] = uint8(decode.Tag) // cells would leave out reflections beside tags
		}
		if middle := whole.Len() / 2; i == 1 { // the other rows of the cells and locations, in another encoding
			for _, column := range []*[]uint64{&whole.SrcGroup, &whole.DstGroup, &whole.Location} {
				copy((*column)[middle:], (*column)[:middle])
			}
			copy(whole.Signal[middle:], whole.Signal)
			for i := range whole.Encoding {
				whole.Encoding[i] = uint8(i / middle)
			}
		}
		m.WriteProvisional(provisionalOf(block(1, -1, 1))) // it announces rows
		seen := uint64(0)
		check := func(final bool) {
			t.Helper()
			*now = now.Add(100 * time.Millisecond)
			m.Publish()
			w := m.State().Newest()
			got := uint64(0)
			for _, signal := range w.Signals() {
				for _, c := range w.Cells(signal) {
					got += c.Observations
				}
			}
			if got != seen || w.Final != final {
				t.Errorf("announced: %t: %d observations, final: %t, want %d, %t", announced, got, w.Final, seen, final)
			}
		}
		first, second := halves(whole)
		if seen = observed(first); announced {
			m.WriteProvisional(provisionalOf(whole))
			seen = observed(whole)
			check(false)
		}
		write(t, m, first)
		check(false)
		write(t, m, second)
		seen = observed(whole)
		check(true)
	}
}

// TestLostBlock: a window whose last block is lost is final once its producer writes a later one.
func TestLostBlock(t *testing.T) {
	m, now := atSecond(0, table.MemoryOptions{Lateness: 400 * time.Millisecond})
	for second := range 4 {
		first, _ := halves(block(1, second, 8))
		*now = begin.Add(time.Duration(second+1) * time.Second)
		if second%2 == 0 {
			m.WriteProvisional(provisionalOf(block(1, second, 8)))
		}
		*now = now.Add(500 * time.Millisecond)
		write(t, m, first)
		m.Publish()
		for i, w := range m.State().Windows {
			if w.Final != (i < second) {
				t.Errorf("second %d: window %d is final: %t", second, i, w.Final)
			}
		}
	}
}

// TestUnannouncedBlocks: a window of a producer whose announcement was lost is final with the last of its blocks, unless
// it was final before. Until then it does not end the congestion of a cell, which the other blocks may show.
func TestUnannouncedBlocks(t *testing.T) {
	const lateness = 100 * time.Millisecond
	for _, late := range []time.Duration{-lateness, 40 * time.Millisecond, 700 * time.Millisecond} { // when they come, after the lateness
		for _, other := range []bool{false, true} { // another producer closed the window before
			m, now := atSecond(0, table.MemoryOptions{Lateness: lateness})
			for second := range 6 {
				end := begin.Add(time.Duration(second+1) * time.Second)
				first, last := cellBlock(1, second, 0, false), cellBlock(1, second, 0, true)
				first.More = true
				last.Location[0]++
				last.Seq++
				if *now = end; second < 3 {
					m.WriteProvisional(provisionalOf(last))
				}
				if other {
					write(t, m, block(2, second, 1))
				}
				*now = end.Add(lateness + late)
				m.Publish()
				before := other && second >= 3 && late > 100*time.Millisecond
				for i, b := range []*aggregate.Block{first, last} {
					write(t, m, b)
					*now = now.Add(20 * time.Millisecond)
					m.Publish()
					w := m.State().Newest()
					if state := w.Cells(csig.MinABWRatio)[0].State; second >= 3 && state != aggregate.Congested || w.Final != (before || i > 0) || !w.End.Equal(end) {
						t.Errorf("%s after the lateness, another producer: %t, second %d, block %d: %s, final: %t", late, other, second, i, state, w.Final)
					}
				}
			}
		}
	}
}

// TestBatches: a cell stays congested although the first of a window's batches of decoded tags is clear: more of them come.
func TestBatches(t *testing.T) {
	const each = 3 // second
	m, now := atSecond(0, table.MemoryOptions{})
	for second := range 8 {
		for i := range each {
			*now = begin.Add(time.Duration(second)*time.Second + time.Duration(i+1)*time.Second/each)
			b := cellBlock(1, second, 0, i > 0)
			b.Seq = uint64(each*second + i + 1)
			write(t, m, b)
			m.Publish()
			newest := m.State().Newest()
			if state := newest.Cells(csig.MinABWRatio)[0].State; second >= 4 && (state != aggregate.Congested || newest.Final) {
				t.Errorf("batch %d of second %d: %s, final: %t", i+1, second, state, newest.Final)
			}
		}
		m.WriteProvisional(provisionalOf(block(2, second, 1))) // a tap
		if closed := second - 2; closed >= 0 {
			write(t, m, block(2, closed, 1))
		}
	}
}

// TestProvisionalBounds: one producer cannot take the room of others, however many rows, parts or
// incarnations it announces, and all together cannot take more than the rows of a window.
func TestProvisionalBounds(t *testing.T) {
	const rows = 4 * 4000 // 4000 in a step, 1000 of a producer
	m, _ := atSecond(0, table.MemoryOptions{MaxRows: rows})
	large := provisionalOf(block(1, 0, 1000))
	if n := (*aggregate.Block)(large).Len(); n <= rows/16 {
		t.Fatalf("%d rows are few", n)
	}
	m.WriteProvisional(large)
	if got := m.Counts().Provisional; got != (table.ProvisionalCounts{Crowded: 1}) {
		t.Errorf("more than a producer's share: %+v", got)
	}
	for i := range uint64(300) {
		p := provisionalOf(partBlock(1, 0, 1, i%7))
		p.Incarnation = i
		m.WriteProvisional(p)
	}
	m.WriteProvisional(provisionalOf(block(2, 0, 8)))
	for second := 1; second < 100; second++ {
		m.WriteProvisional(provisionalOf(block(3, second, 8)))
	}
	m.Publish()
	got := m.Counts().Provisional
	if w := m.State().Windows[0]; w.Producers != 2 || got.Crowded < 50 || got.Taken < 150 || got.Ahead != 96 {
		t.Errorf("%d producers in the first window, counts %+v", w.Producers, got)
	}
	for producer := range uint64(100) {
		m.WriteProvisional(provisionalOf(block(10+producer, 0, 100)))
	}
	m.Publish()
	if n := m.State().Windows[0].Rows.Len(); n > rows/4 {
		t.Errorf("%d rows in a window, want at most %d", n, rows/4)
	}
	if m.Counts().Provisional.Crowded <= got.Crowded {
		t.Error("all producers together have no bound")
	}
}

// TestProvisionalOracle: in whatever order blocks and provisional rows come, each part shows its
// blocks if it has any, else its latest provisional rows.
func TestProvisionalOracle(t *testing.T) {
	type key struct {
		producer, incarnation, part uint64
		second                      int
	}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m, now := atSecond(0, table.MemoryOptions{Windows: 100})
		final, early := map[key]uint64{}, map[key]uint64{}
		closed := map[key]int{} // by part: the last window and the number of blocks
		for range 400 {
			*now = now.Add(time.Duration(rng.IntN(60)) * time.Millisecond)
			ended := int(now.Sub(begin)/time.Second) - 1
			k := key{rng.Uint64N(3), 1, rng.Uint64N(2), max(ended-rng.IntN(2), 0)}
			b := partBlock(k.producer, k.second, 1+rng.IntN(6), k.part)
			b.Incarnation, b.Seq = k.incarnation, b.Part()<<aggregate.PartShift|uint64(rng.Uint32())
			if rng.IntN(3) > 0 {
				m.WriteProvisional(provisionalOf(b))
				if final[k] == 0 && closed[key{k.producer, 0, k.part, 0}] <= k.second {
					early[k] = observed(b)
				}
				continue
			}
			if closed[key{k.producer, 0, k.part, 0}] > k.second {
				continue // parts close windows in order
			}
			write(t, m, b)
			final[k] += observed(b)
			closed[key{k.producer, 0, k.part, 0}] = k.second
			for o := range early {
				if o.producer == k.producer && o.part == k.part && o.second <= k.second {
					delete(early, o)
				}
			}
			if rng.IntN(4) == 0 {
				m.Publish()
				checkShown(t, fmt.Sprint(seed), m, func(second int) (n uint64) {
					for k, o := range final {
						if k.second == second {
							n += o
						}
					}
					for k, o := range early {
						if k.second == second {
							n += o
						}
					}
					return n
				})
			}
		}
	}
}

// checkShown compares windows that are not final with their expected content. Final ones no longer
// accept provisional rows.
func checkShown(t *testing.T, why string, m *table.Memory, want func(second int) uint64) {
	t.Helper()
	for _, w := range m.State().Windows {
		if w.Final {
			continue
		}
		n := uint64(0)
		for _, signal := range w.Signals() {
			w.Rows.Each(signal, func(_ aggregate.CellID, l *aggregate.LocationStats) { n += l.Observations })
		}
		if second := int(w.Start.Sub(begin) / time.Second); n != want(second) {
			t.Fatalf("seed %s: window %d has %d observations, want %d", why, second, n, want(second))
		}
	}
}
