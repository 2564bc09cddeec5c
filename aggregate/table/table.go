// Package table keeps rows of closed windows in memory, up to a bound: the totals of a replay, the
// time series of a report, and the latest windows for live clients.
//
// All types but SampledSeries and Judged share one structure: rows by (time step, cell, key), one
// bound on their number, and one rule for reaching it (Bounds). The key is a location in Table, a location
// over all groups in TopBottlenecks, a code in Distributions, and a flow in FlowTotals. Memory is a
// sliding table with revisions, which many clients read at the same time.
//
// It knows rows and their bounds; package aggregate defines mode and state. It must never know
// clients, names of groups and locations, or where windows come from or are stored.
package table

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Table adds up blocks by step, cell and location. It is an aggregate.Sink, safe for
// concurrent use.
type Table struct {
	steps[aggregate.LocationID, aggregate.Sums]
}

// The parts of a Table.
type (
	tableSteps = steps[aggregate.LocationID, aggregate.Sums]
	tableStep  = step[aggregate.LocationID, aggregate.Sums]
	tableRows  = rows[aggregate.LocationID, aggregate.Sums]
	tableKey   = rowKey[aggregate.LocationID]
)

// New makes an empty Table.
func New(b Bounds) *Table { return &Table{newTableSteps(b)} }

func newTableSteps(b Bounds) tableSteps {
	return newSteps(b, (*aggregate.Sums).Merge, overflowLocation)
}

func overflowLocation(aggregate.LocationID) aggregate.LocationID { return aggregate.OverflowLocation }

// WriteBlock adds the block's rows, if the table takes it. It never fails.
func (t *Table) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if t.takes(b) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if s := t.at(b.WindowStart); s != nil {
			writeBlock(&t.steps, s, b)
		}
	}
	return nil
}

// writeBlock adds a block to its step.
func writeBlock(t *tableSteps, s *tableStep, b *aggregate.Block) {
	if cap(s.rows.list) == 0 { // growing by and by would copy the rows of a large block several times
		s.rows.list = make([]row[aggregate.LocationID, aggregate.Sums], 0, min(b.Len(), t.stepRows()))
	}
	var sums aggregate.Sums // escapes: once a block
	for i := range b.Len() {
		sums = b.Sums(i)
		s = t.add(s, tableKey{b.Cell(i), aggregate.LocationID(b.Location[i])}, &sums)
	}
	t.slide()
}

// StepRows are the rows of one step.
type StepRows struct {
	Start int64 // Unix ns
	Rows
}

// Steps returns the steps that have a block, ascending.
func (t *Table) Steps() []StepRows {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]StepRows, len(t.list))
	for i, s := range t.list {
		list[i] = StepRows{s.start, Rows{rows: s.share(), most: t.stepRows()}}
	}
	return list
}

// Total returns the rows of all steps, added up.
func (t *Table) Total() Rows {
	list := t.Steps()
	if len(list) == 0 {
		return Rows{rows: newRows[aggregate.LocationID, aggregate.Sums](), most: t.stepRows()}
	}
	return sum(list, func(s StepRows) Rows { return s.Rows })
}

// sum adds up the rows of parts, at least one, within the bound of the first.
func sum[T any](parts []T, of func(T) Rows) Rows {
	first := of(parts[0])
	if len(parts) == 1 {
		return first
	}
	t := newTableSteps(Bounds{Rows: first.most})
	s := &tableStep{rows: first.rows.clone()}
	t.list, t.held = append(t.list, s), first.Len()
	for _, part := range parts[1:] {
		for k, v := range of(part).rows.all {
			t.add(s, k, v)
		}
	}
	return Rows{rows: s.rows, most: first.most}
}

// Rows are the sums by cell and location, of one step or of several. They never change.
type Rows struct {
	rows   *tableRows
	most   int
	whole  *tableRows // decides which cells have tags; nil: rows
	kinds  string     // a byte for each cell: 1 if it counts; empty: whole decides
	left   map[aggregate.CellKey]bool
	judged *judgement   // nil: judged as one window
	later  []*tableRows // of the later half of the range
}

// Without leaves out cells. The map must not change while the rows are in use.
func (r Rows) Without(cells map[aggregate.CellKey]bool) Rows {
	r.left = cells
	return r
}

// Within returns the same rows as a part of whole: each cell uses the kind of observations that it uses
// in whole, so that the parts of a range add up to the range.
func (r Rows) Within(whole Rows) Rows {
	r.whole = whole.rows
	return r
}

// WithTrend returns the same rows, the sum of windows, with the values of the later half of the
// range, which begins at later, Unix ns.
func (r Rows) WithTrend(windows []*Window, later int64) Rows {
	r.later = nil
	for _, w := range windows {
		if w.Start.UnixNano() >= later {
			r.later = append(r.later, w.Rows.rows)
		}
	}
	return r
}

// Len returns the number of rows, one for each cell and location.
func (r Rows) Len() int { return len(r.rows.list) }

// Each calls f for the rows of the signal, in any order: those of both kinds, which never add up.
// The statistics are valid until f returns.
func (r Rows) Each(sig csig.Signal, f func(aggregate.CellID, *aggregate.LocationStats)) {
	for k, sums := range r.rows.all {
		if k.cell.Signal == sig {
			at := locationStats(k.key, sums)
			f(k.cell.ID(), &at)
		}
	}
}

// Signals returns the signals that have values here, ascending.
func (r Rows) Signals() []csig.Signal {
	seen := make(map[csig.Signal]bool)
	for i := range r.rows.cells {
		if signal := r.rows.cells[i].cell.Signal; signal.HasValue() {
			seen[signal] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// Cells returns the cells of the signal, ordered by source and destination: the tags of a cell if
// there are any, else its reflections. Both may be of the same packets and never add up.
//
// level maps a location to the one for which it counts, such as its device, before the mode is
// chosen; nil leaves locations unchanged.
func (r Rows) Cells(sig csig.Signal, level func(aggregate.LocationID) aggregate.LocationID) []aggregate.CellStats {
	n := 0
	for i := range r.rows.cells {
		if r.rows.cells[i].cell.Signal == sig && r.takes(i) {
			n++
		}
	}
	out := slices.Grow([]aggregate.CellStats(nil), n) // windows keep it: no spare room
	r.chosen(sig, level, func(k aggregate.CellKey, t *aggregate.Sums, at []aggregate.LocationStats) {
		stats := aggregate.CellStats{
			Src: k.Src, Dst: k.Dst, Signal: sig, Kind: k.Kind,
			Observations: t.Observations, Samples: t.Samples, Bytes: t.Bytes, Measured: t.Measured,
			Sum: t.Sum, Min: t.Min, Max: t.Max,
			Untouched: t.Untouched, Trimmed: t.Trimmed, Unjudged: t.Unjudged, Heavy: t.Heavy, HeavySum: t.HeavySum,
		}
		stats.SetMode(at, level == nil)
		stats.LaterMeasured, stats.LaterSum = r.laterValues(k)
		r.judge(k, &stats)
		out = append(out, stats)
	})
	slices.SortFunc(out, aggregate.CompareCells)
	return out
}

// laterValues adds up the values of a cell in the later half of the range.
func (r Rows) laterValues(k aggregate.CellKey) (measured, sum uint64) {
	for _, rows := range r.later {
		i, ok := rows.index[k]
		if !ok {
			continue
		}
		for at := rows.cells[i].first; at >= 0; at = rows.list[at].next {
			s := &rows.list[at].value
			measured, sum = aggregate.AddSat(measured, s.Measured), aggregate.AddSat(sum, s.Sum)
		}
	}
	return measured, sum
}

// Locations returns the observations of the signal by location, at the level as in Cells, over all
// cells: the locations with the most heavy ones first, in the order that decides the mode.
func (r Rows) Locations(sig csig.Signal, level func(aggregate.LocationID) aggregate.LocationID) []aggregate.LocationStats {
	all := make(map[aggregate.LocationID]*aggregate.LocationStats)
	r.chosen(sig, level, func(_ aggregate.CellKey, _ *aggregate.Sums, at []aggregate.LocationStats) {
		for i := range at {
			l := &at[i]
			if all[l.Location] == nil {
				all[l.Location] = &aggregate.LocationStats{Location: l.Location}
			}
			all[l.Location].Merge(l)
			if l.Heavy > 0 {
				all[l.Location].Cells++
			}
		}
	})
	out := make([]aggregate.LocationStats, 0, len(all))
	for _, l := range all {
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b aggregate.LocationStats) int { return aggregate.CompareBottlenecks(sig.Direction(), &a, &b) })
	return out
}

// CellLocationsOf returns the cells of the signal by the locations that their observations name,
// ordered by source, destination and location. The rows are the sum of the windows; later is the start of
// the later half of the range, Unix ns. There are at most as many as the maximum number of rows in a window.
func (r Rows) CellLocationsOf(windows []*Window, sig csig.Signal, later int64) []aggregate.CellLocation {
	list := r.CellLocations(sig)
	at := make(map[tableKey]int, len(list))
	for i := range list {
		c := &list[i]
		at[tableKey{aggregate.CellKey{Signal: sig, Kind: c.Kind, Src: c.Src, Dst: c.Dst}, c.Location}] = i
	}
	for _, w := range windows {
		for k, sums := range w.Rows.rows.all {
			if i, ok := at[k]; ok {
				list[i].AddWindow(w.Start.UnixNano(), later, sums)
			}
		}
	}
	return list
}

// CellLocations returns a row for each of the signal's cells and each location that its
// observations name, by cell and location, without the values of windows. A cell has the rows of
// one kind, as in Cells.
func (r Rows) CellLocations(sig csig.Signal) []aggregate.CellLocation {
	var list []aggregate.CellLocation
	for k, sums := range r.rows.all {
		if k.cell.Signal == sig && r.takes(int(r.rows.index[k.cell])) {
			list = append(list, aggregate.CellLocation{CellID: k.cell.ID(), Location: k.key, Sums: *sums})
		}
	}
	slices.SortFunc(list, aggregate.CompareCellLocations)
	return list
}

// chosen calls f once for each of the signal's cells, with one kind of observations: with their sums, and
// with their locations at the level, in any order and without duplicates. Both are valid until f returns.
func (r Rows) chosen(sig csig.Signal, level func(aggregate.LocationID) aggregate.LocationID, f func(aggregate.CellKey, *aggregate.Sums, []aggregate.LocationStats)) {
	var at []aggregate.LocationStats
	var total aggregate.Sums
	for i := range r.rows.cells {
		c := &r.rows.cells[i]
		if c.cell.Signal != sig || !r.takes(i) {
			continue
		}
		total, at = aggregate.Sums{}, at[:0]
		for next := c.first; next >= 0; next = r.rows.list[next].next {
			sums, loc := &r.rows.list[next].value, r.rows.list[next].key
			total.Merge(sums)
			if level != nil && loc > aggregate.OverflowLocation {
				loc = level(loc)
			}
			at = append(at, locationStats(loc, sums))
		}
		if level != nil {
			at = mergeLocations(at)
		}
		f(c.cell, &total, at)
	}
}

// takes reports whether the entry at i of r.rows.cells, which holds one kind of a cell's observations,
// counts: the tags if the cell has any, else the reflections.
func (r Rows) takes(i int) bool {
	k := r.rows.cells[i].cell
	switch {
	case r.left[k]:
		return false
	case r.kinds != "":
		return r.kinds[i] == 1
	}
	return k.Kind != decode.Reflection || !r.tagged(k)
}

// tagged reports whether a cell has tags.
func (r Rows) tagged(k aggregate.CellKey) bool {
	k.Kind = decode.Tag
	_, ok := cmp.Or(r.whole, r.rows).index[k]
	return ok && !r.left[k]
}

func locationStats(loc aggregate.LocationID, sums *aggregate.Sums) aggregate.LocationStats {
	return aggregate.LocationStats{Location: loc, Observations: sums.Observations, Samples: sums.Samples, Unjudged: sums.Unjudged, Heavy: sums.Heavy, HeavySum: sums.HeavySum, Evidence: sums.Evidence}
}

// mergeLocations adds up entries of the same location, in place.
func mergeLocations(list []aggregate.LocationStats) []aggregate.LocationStats {
	slices.SortFunc(list, func(a, b aggregate.LocationStats) int { return cmp.Compare(a.Location, b.Location) })
	out := list[:0]
	for i := range list {
		if n := len(out); n > 0 && out[n-1].Location == list[i].Location {
			out[n-1].Merge(&list[i])
			out[n-1].Evidence |= list[i].Evidence
			continue
		}
		out = append(out, list[i])
	}
	return out
}
