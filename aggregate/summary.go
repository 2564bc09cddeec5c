package aggregate

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Summary adds up the blocks of one resolution in memory, over all their windows:
// what reports and live views need when nothing is stored. It is safe for concurrent
// use.
type Summary struct {
	resolution int64
	maxKeys    int

	mu   sync.Mutex
	rows map[summaryKey]summaryRow
}

type summaryKey struct {
	cell cellKey
	loc  LocationID
}

type summaryRow struct {
	observations, bytes, measured, sum, min, max uint64
	untouched, trimmed, heavy, heavySum          uint64
}

// NewSummary makes a Summary of the blocks at the resolution. It holds at most
// maxKeys rows of a cell and a location; what comes after those is added to one
// overflow row per signal and kind, so that totals stay exact.
func NewSummary(resolution time.Duration, maxKeys int) *Summary {
	return &Summary{resolution: int64(resolution), maxKeys: maxKeys, rows: make(map[summaryKey]summaryRow)}
}

// WriteBlock adds the block's rows, if it is of the summary's resolution. It never
// fails.
func (s *Summary) WriteBlock(_ context.Context, b *Block) error {
	if b.Resolution != s.resolution {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from := uint32(0)
	for i := range b.Len() {
		k, r := blockSummary(b, i, b.DistCount[from:b.DistEnd[i]])
		from = b.DistEnd[i]
		s.add(k, &r)
	}
	return nil
}

// blockSummary is row i. What its distribution counts has a value, except for
// unknown types, whose raw codes are kept.
func blockSummary(b *Block, i int, dist []uint64) (summaryKey, summaryRow) {
	k := summaryKey{
		cell: cellKey{csig.Signal(b.Signal[i]), decode.Kind(b.Kind[i]), GroupID(b.SrcGroup[i]), GroupID(b.DstGroup[i])},
		loc:  LocationID(b.Location[i]),
	}
	r := summaryRow{
		observations: b.Observations[i], bytes: b.Bytes[i], sum: b.Sum[i], min: b.Min[i], max: b.Max[i],
		untouched: b.Untouched[i], trimmed: b.Trimmed[i], heavy: b.Heavy[i], heavySum: b.HeavySum[i],
	}
	if k.cell.signal.HasValue() {
		for _, n := range dist {
			r.measured += n
		}
	}
	return k, r
}

func (s *Summary) add(k summaryKey, r *summaryRow) {
	have, ok := s.rows[k]
	if !ok && len(s.rows) >= s.maxKeys {
		k.cell.src, k.cell.dst, k.loc = OverflowGroup, OverflowGroup, OverflowLocation
		have = s.rows[k]
	}
	have.merge(r)
	s.rows[k] = have
}

func (r *summaryRow) merge(o *summaryRow) {
	if o.measured > 0 && (r.measured == 0 || o.min < r.min) {
		r.min = o.min
	}
	r.max = max(r.max, o.max)
	r.measured += o.measured
	r.observations += o.observations
	r.bytes = addSat(r.bytes, o.bytes)
	r.sum = addSat(r.sum, o.sum)
	r.untouched += o.untouched
	r.trimmed += o.trimmed
	r.heavy += o.heavy
	r.heavySum = addSat(r.heavySum, o.heavySum)
}

// Merge adds what another summary holds. The other one is not changed.
func (s *Summary) Merge(other *Summary) {
	other.mu.Lock()
	rows := maps.Clone(other.rows)
	other.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, r := range rows {
		s.add(k, &r)
	}
}

// Clone is a copy that goes its own way.
func (s *Summary) Clone() *Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Summary{resolution: s.resolution, maxKeys: s.maxKeys, rows: maps.Clone(s.rows)}
}

// Len is the number of rows of a cell and a location.
func (s *Summary) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rows)
}

// Signals are the signals that have values here, ascending.
func (s *Summary) Signals() []csig.Signal {
	seen := make(map[csig.Signal]bool)
	s.mu.Lock()
	for k := range s.rows {
		if k.cell.signal.HasValue() {
			seen[k.cell.signal] = true
		}
	}
	s.mu.Unlock()
	return slices.Sorted(maps.Keys(seen))
}

// Cells are the cells of the signal, ordered by source and destination: the tags of
// a cell where there are any, its reflections where there are none. Both may be of
// the same packets and never add up.
//
// level maps a location to the one that it counts for, such as its device, before
// the mode is taken; nil leaves locations as they are.
func (s *Summary) Cells(sig csig.Signal, level func(LocationID) LocationID) []CellStats {
	cells := s.gather(sig, level)
	out := make([]CellStats, 0, len(cells))
	for k, c := range cells {
		t := &c.total
		stats := CellStats{
			Src: k.src, Dst: k.dst, Signal: sig, Kind: k.kind,
			Observations: t.observations, Bytes: t.bytes, Measured: t.measured,
			Sum: t.sum, Min: t.min, Max: t.max,
			Untouched: t.untouched, Trimmed: t.trimmed, Heavy: t.heavy, HeavySum: t.heavySum,
		}
		stats.setMode(c.bottlenecks(sig.Direction()))
		stats.setState()
		out = append(out, stats)
	}
	slices.SortFunc(out, func(a, b CellStats) int {
		return cmp.Or(cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst))
	})
	return out
}

// Locations is how many observations of the signal the locations have, at the level
// as in Cells, over all cells: the locations with the most heavy ones first, in the
// order by which the mode is chosen.
func (s *Summary) Locations(sig csig.Signal, level func(LocationID) LocationID) []LocationStats {
	all := make(map[LocationID]*LocationStats)
	for _, c := range s.gather(sig, level) {
		for id, l := range c.locations {
			if all[id] == nil {
				all[id] = &LocationStats{Location: id}
			}
			all[id].merge(l)
			if l.Heavy > 0 {
				all[id].Cells++
			}
		}
	}
	out := make([]LocationStats, 0, len(all))
	for _, l := range all {
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b LocationStats) int { return compareBottlenecks(sig.Direction(), &a, &b) })
	return out
}

// cellRows are the rows of one cell and kind.
type cellRows struct {
	total     summaryRow
	locations map[LocationID]*LocationStats
}

// gather groups the signal's rows by cell, of one kind each.
func (s *Summary) gather(sig csig.Signal, level func(LocationID) LocationID) map[cellKey]*cellRows {
	if level == nil {
		level = func(id LocationID) LocationID { return id }
	}
	cells := make(map[cellKey]*cellRows)
	s.mu.Lock()
	for k, r := range s.rows {
		if k.cell.signal != sig {
			continue
		}
		c := cells[k.cell]
		if c == nil {
			c = &cellRows{locations: make(map[LocationID]*LocationStats)}
			cells[k.cell] = c
		}
		c.add(k.loc, &r, level)
	}
	s.mu.Unlock()
	for k := range cells {
		if k.kind == decode.Tag {
			k.kind = decode.Reflection
			delete(cells, k)
		}
	}
	return cells
}

func (c *cellRows) add(loc LocationID, r *summaryRow, level func(LocationID) LocationID) {
	c.total.merge(r)
	if loc > OverflowLocation {
		loc = level(loc)
	}
	l := c.locations[loc]
	if l == nil {
		l = &LocationStats{Location: loc}
		c.locations[loc] = l
	}
	l.merge(&LocationStats{Observations: r.observations, Heavy: r.heavy, HeavySum: r.heavySum})
}

func (l *LocationStats) merge(o *LocationStats) {
	l.Observations += o.Observations
	l.Heavy += o.Heavy
	l.HeavySum = addSat(l.HeavySum, o.HeavySum)
}

// bottlenecks are the mode and the runner-up. Their Heavy is 0 when there is none.
// Heavy sums and counts over hops have no location, and hence no mode.
func (c *cellRows) bottlenecks(d csig.Direction) (first, second *LocationStats) {
	first, second = &LocationStats{}, &LocationStats{}
	for _, l := range c.locations {
		switch {
		case l.Heavy == 0 || l.Location == NoLocation:
		case first.Heavy == 0 || compareBottlenecks(d, l, first) < 0:
			first, second = l, first
		case second.Heavy == 0 || compareBottlenecks(d, l, second) < 0:
			second = l
		}
	}
	return first, second
}
