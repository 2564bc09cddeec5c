package table

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// cellProducer is a producer that wrote rows of a cell.
type cellProducer struct {
	cell     aggregate.CellKey
	producer uint64
}

// cellProducers remembers which producers wrote which cells. It keeps a producer of a cell while a
// kept window has its rows of the cell, and while the producer is silent. The memory's lock guards
// it.
type cellProducers struct {
	most   int // bounds list
	index  map[cellProducer]int32
	list   []cellProducer // only appended to: snapshots share it
	last   []int64        // start of the newest window in which the producer wrote the cell
	byCell func() map[csig.Signal][]cellRange
	full   uint64 // number of cells of blocks without room
}

// cellRange holds the positions in a list of the producers of one cell.
type cellRange struct {
	cell      aggregate.CellKey
	positions []int32
}

func newCellProducers(most int) cellProducers {
	return cellProducers{most: max(most, 1), index: make(map[cellProducer]int32)}
}

// write records the cells of a block.
func (c *cellProducers) write(b *aggregate.Block) {
	var before aggregate.CellKey
	at := int32(-1)
	for i := range b.Len() {
		k := b.Cell(i)
		if i > 0 && k == before { // rows come cell by cell
			continue
		}
		before = k
		id := cellProducer{k, b.Producer}
		if next := int(at) + 1; next < len(c.list) && c.list[next] == id { // and cells in the same order each time
			at = int32(next)
			c.last[at] = max(c.last[at], b.WindowStart)
			continue
		}
		found, known := c.index[id]
		switch {
		case known:
			at = found
			c.last[at] = max(c.last[at], b.WindowStart)
		case len(c.list) >= c.most:
			c.full++
		default:
			at = int32(len(c.list))
			c.index[id] = at
			c.list, c.last, c.byCell = append(c.list, id), append(c.last, b.WindowStart), nil
		}
	}
}

// keepsProducer reports whether a producer still counts for a cell that it last wrote at last.
// oldest is the start of the oldest kept window.
func keepsProducer(id uint64, last, oldest int64, silent map[uint64]string) bool {
	if last >= oldest {
		return true
	}
	_, is := silent[id]
	return is
}

// prune drops entries that no longer count, once they are a quarter of all or the list is full.
func (c *cellProducers) prune(oldest int64, silent map[uint64]string) {
	old := 0
	for i, last := range c.last {
		if !keepsProducer(c.list[i].producer, last, oldest, silent) {
			old++
		}
	}
	if old == 0 || old*4 < len(c.list) && len(c.list) < c.most {
		return
	}
	kept := newCellProducers(c.most)
	kept.full = c.full
	for i, id := range c.list {
		if keepsProducer(id.producer, c.last[i], oldest, silent) {
			kept.index[id] = int32(len(kept.list))
			kept.list, kept.last = append(kept.list, id), append(kept.last, c.last[i])
		}
	}
	*c = kept
}

// ordered returns the index by cell, which is built at the first use.
func (c *cellProducers) ordered() func() map[csig.Signal][]cellRange {
	if c.byCell == nil {
		list := c.list
		c.byCell = sync.OnceValue(func() map[csig.Signal][]cellRange { return orderCells(list) })
	}
	return c.byCell
}

func orderCells(list []cellProducer) map[csig.Signal][]cellRange {
	positions := make([]int32, len(list))
	for i := range positions {
		positions[i] = int32(i)
	}
	slices.SortFunc(positions, func(x, y int32) int {
		a, b := &list[x].cell, &list[y].cell
		return cmp.Or(cmp.Compare(a.Signal, b.Signal), compareCells(a, b), cmp.Compare(x, y))
	})
	out := make(map[csig.Signal][]cellRange)
	for from := 0; from < len(positions); {
		cell := list[positions[from]].cell
		to := from + 1
		for to < len(positions) && list[positions[to]].cell == cell {
			to++
		}
		out[cell.Signal] = append(out[cell.Signal], cellRange{cell, positions[from:to:to]})
		from = to
	}
	return out
}

// Coverage lists the expected producers and those that write, in total and for each cell, at one
// revision. It never changes.
type Coverage struct {
	Expected int // producers: those that should write, and those that wrote in the last day
	// Silent are the expected producers without rows in the windows of the last
	// MemoryOptions.MaxAge, by name. A tap without observations looks the same as a dead one.
	Silent []Producer

	// Newest is the end of the newest window with rows, the zero Time before the first.
	Newest time.Time

	silent  map[uint64]string
	maxAge  int64 // ns
	current int64 // start of the first window that is not too old
	oldest  int64 // start of the first kept window
	list    []cellProducer
	last    []int64
	byCell  func() map[csig.Signal][]cellRange
	memo    *Memo
}

// Present returns the number of expected producers that are not silent.
func (c *Coverage) Present() int { return c.Expected - len(c.Silent) }

// coverage returns a snapshot. The caller holds mu.
func (m *Memory) coverage() *Coverage {
	if m.seconds != nil {
		return m.fineCoverage()
	}
	n, silent := m.known()
	c := &Coverage{Expected: n, Silent: sortedProducers(silent), silent: silent, current: m.current(), oldest: math.MinInt64, memo: newMemo(), maxAge: math.MaxInt64}
	if m.isLive() {
		c.maxAge = int64(m.opts.MaxAge)
	}
	newest := int64(noWindow)
	for _, p := range m.producers {
		newest = max(newest, min(p.newest, m.table.newest))
	}
	for i := range c.Silent {
		if p := m.producers[c.Silent[i].ID]; p != nil && p.newest != noWindow {
			c.Silent[i].Newest = time.Unix(0, p.newest+int64(m.opts.Resolution)).UTC()
		}
	}
	if newest != noWindow {
		c.Newest = time.Unix(0, newest+int64(m.opts.Resolution)).UTC()
	}
	if len(m.table.list) > 0 {
		c.oldest = m.table.list[0].start
		m.cells.prune(c.oldest, silent)
	}
	c.list, c.last, c.byCell = m.cells.list, slices.Clone(m.cells.last), m.cells.ordered()
	return c
}

// CellCoverage describes the producers of a cell.
type CellCoverage struct {
	Cell     aggregate.CellKey
	Newest   int64    // start of the last window with its rows, Unix ns
	Watched  int64    // start of the last window with rows of any cell by one of its producers, Unix ns
	Expected int      // producers that wrote it in kept windows, and silent ones that ever wrote it
	Silent   []string // the silent ones among them, by name; see Coverage
}

// cells returns the cells of the signal by source, destination and kind. They belong to the
// coverage.
func (c *Coverage) cells(sig csig.Signal) []CellCoverage {
	type of csig.Signal
	list, _ := c.memo.Get(of(sig), func() any {
		ranges := c.byCell()[sig]
		newest := make(map[uint64]int64) // by producer
		for i, last := range c.last {
			id := c.list[i].producer
			if known, ok := newest[id]; !ok || last > known {
				newest[id] = last
			}
		}
		list := make([]CellCoverage, 0, len(ranges))
		for _, r := range ranges {
			one := CellCoverage{Cell: r.cell, Newest: math.MinInt64, Watched: math.MinInt64}
			for _, at := range r.positions {
				id := c.list[at].producer
				if !keepsProducer(id, c.last[at], c.oldest, c.silent) {
					continue
				}
				one.Expected++
				one.Newest, one.Watched = max(one.Newest, c.last[at]), max(one.Watched, newest[id])
				if name, silent := c.silent[id]; silent {
					one.Silent = append(one.Silent, name)
				}
			}
			if one.Expected > 0 {
				slices.Sort(one.Silent)
				list = append(list, one)
			}
		}
		return list
	}).([]CellCoverage)
	return list
}

// IsCurrent reports whether rows of the cell are new enough to describe the present.
func (c *Coverage) IsCurrent(one *CellCoverage) bool { return one.Newest >= c.current }

// IsIdle reports whether a producer of the cell kept writing for so long after the cell's last row
// that its traffic must have ended. Otherwise, the cell may just be unobserved.
func (c *Coverage) IsIdle(one *CellCoverage) bool { return one.Watched-one.Newest >= c.maxAge }

// IsPresent reports whether a producer has recently written a known cell.
func (c *Coverage) IsPresent(id uint64) bool {
	for i, one := range c.list {
		if one.producer == id && c.last[i] >= c.current {
			return true
		}
	}
	return false
}

// isWrittenBy reports whether one of the producers has recently written the cell.
func (c *Coverage) isWrittenBy(k aggregate.CellKey, producers map[uint64]*producer) bool {
	if len(producers) == 0 {
		return false
	}
	ranges := c.byCell()[k.Signal]
	at, found := slices.BinarySearchFunc(ranges, k, func(r cellRange, k aggregate.CellKey) int { return compareCells(&r.cell, &k) })
	return found && slices.ContainsFunc(ranges[at].positions, func(i int32) bool {
		return c.last[i] >= c.current && producers[c.list[i].producer] != nil
	})
}

// compareCells orders the cells of a signal.
func compareCells(a, b *aggregate.CellKey) int {
	return cmp.Or(cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst), cmp.Compare(a.Kind, b.Kind))
}

// old returns the cells, of every signal, whose last rows are too old to describe the present; nil
// if there are none.
func (c *Coverage) old() map[aggregate.CellKey]bool {
	type key struct{}
	old, _ := c.memo.Get(key{}, func() any {
		newest := make(map[aggregate.CellKey]bool) // candidates: true as long as nothing current was found
		for i, last := range c.last {
			if last < c.current {
				newest[c.list[i].cell] = true
			}
		}
		if len(newest) == 0 {
			return map[aggregate.CellKey]bool(nil)
		}
		for i, last := range c.last {
			if last >= c.current {
				delete(newest, c.list[i].cell)
			}
		}
		return newest
	}).(map[aggregate.CellKey]bool)
	return old
}

// All returns cells of the signal, by source and destination, and between them the known ones that are missing in the
// list: those without observations, or without recent ones. If none is missing, it returns the list itself.
func (c *Coverage) All(cells []aggregate.CellStats, sig csig.Signal) []aggregate.CellStats {
	missing := 0
	c.pair(cells, sig, func(at int, _ []CellCoverage) {
		if at < 0 {
			missing++
		}
	})
	if missing == 0 {
		return cells
	}
	all := make([]aggregate.CellStats, 0, len(cells)+missing)
	c.pair(cells, sig, func(at int, known []CellCoverage) {
		if at >= 0 {
			all = append(all, cells[at])
			return
		}
		k := known[0].Cell // tags, if there are any
		all = append(all, aggregate.CellStats{Src: k.Src, Dst: k.Dst, Signal: sig, Kind: k.Kind})
	})
	return all
}

// Of returns the coverage of cells of the signal, which are ordered by source and destination. A cell that had no room
// in the coverage has an empty one.
func (c *Coverage) Of(cells []aggregate.CellStats, sig csig.Signal) []CellCoverage {
	covers := make([]CellCoverage, len(cells)) // no pointers into the list of all known cells: answers outlive it
	c.pair(cells, sig, func(at int, known []CellCoverage) {
		if at >= 0 {
			covers[at] = find(known, cells[at].Kind)
		}
	})
	return covers
}

// pair calls f for each pair of source and destination, in order, that is in the list or known: with its position in
// the list, -1 for none, and its known cells.
func (c *Coverage) pair(cells []aggregate.CellStats, sig csig.Signal, f func(at int, known []CellCoverage)) {
	known := c.cells(sig)
	for at := 0; at < len(cells) || len(known) > 0; {
		order, n := compareCovered(cells[at:], known), 0
		if order >= 0 {
			for n = 1; n < len(known) && known[n].Cell.Src == known[0].Cell.Src && known[n].Cell.Dst == known[0].Cell.Dst; {
				n++
			}
		}
		if order <= 0 {
			f(at, known[:n])
			at++
		} else {
			f(-1, known[:n])
		}
		known = known[n:]
	}
}

// compareCovered compares the first cells of both lists; an exhausted list compares as greater.
func compareCovered(cells []aggregate.CellStats, known []CellCoverage) int {
	switch {
	case len(cells) == 0:
		return 1
	case len(known) == 0:
		return -1
	}
	return cmp.Or(cmp.Compare(cells[0].Src, known[0].Cell.Src), cmp.Compare(cells[0].Dst, known[0].Cell.Dst))
}

// find returns the coverage for that kind of observations.
func find(known []CellCoverage, kind decode.Kind) CellCoverage {
	for _, c := range known {
		if c.Cell.Kind == kind {
			return c
		}
	}
	return CellCoverage{}
}
