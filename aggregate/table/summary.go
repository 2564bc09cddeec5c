package table

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Summary adds up the blocks of one resolution in memory, over all their windows:
// what reports and live views need when nothing is stored. It is safe for concurrent
// use.
type Summary struct {
	resolution int64
	maxKeys    int

	mu    sync.Mutex
	table summaryTable
}

type summaryKey struct {
	cell aggregate.CellKey
	loc  aggregate.LocationID
}

// NewSummary makes a Summary of the blocks at the resolution. It holds at most
// maxKeys rows of a cell and a location; what comes after those is added to one
// overflow row per signal and kind, so that totals stay exact.
func NewSummary(resolution time.Duration, maxKeys int) *Summary {
	return &Summary{resolution: int64(resolution), maxKeys: maxKeys, table: newSummaryTable()}
}

// Reserve makes room in an empty summary for as much as another one holds.
func (s *Summary) Reserve(like *Summary) {
	like.mu.Lock()
	cells, rows := len(like.table.cells), len(like.table.rows)
	like.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.table.rows) == 0 {
		s.table.reserve(cells, rows)
	}
}

// WriteBlock adds the block's rows, if it is of the summary's resolution. It never
// fails.
func (s *Summary) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if b.Resolution != s.resolution {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range b.Len() {
		sums := b.Sums(i)
		s.add(summaryKey{b.Cell(i), aggregate.LocationID(b.Location[i])}, &sums)
	}
	return nil
}

func (s *Summary) add(k summaryKey, r *aggregate.Sums) {
	have := s.table.find(k)
	if have == nil && len(s.table.rows) >= s.maxKeys {
		k.cell.Src, k.cell.Dst, k.loc = aggregate.OverflowGroup, aggregate.OverflowGroup, aggregate.OverflowLocation
		have = s.table.find(k)
	}
	if have == nil {
		s.table.insert(k, r)
		return
	}
	have.Merge(r)
}

// Merge adds what another summary holds. The other one is not changed.
func (s *Summary) Merge(other *Summary) {
	other.mu.Lock()
	rows := other.table.clone()
	other.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, r := range rows.all {
		s.add(k, r)
	}
}

// Clone is a copy that goes its own way.
func (s *Summary) Clone() *Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Summary{resolution: s.resolution, maxKeys: s.maxKeys, table: s.table.clone()}
}

// Len is the number of rows of a cell and a location.
func (s *Summary) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.table.rows)
}

// Each calls f for the rows of the signal, in any order: those of both kinds, which never
// add up. What f is given is valid until it returns; f must not use the summary.
func (s *Summary) Each(sig csig.Signal, f func(aggregate.CellID, *aggregate.LocationStats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.table.cells {
		c := &s.table.cells[i]
		if c.key.Signal != sig {
			continue
		}
		for loc, place := range s.table.of(c) {
			r := &s.table.rows[place].row
			f(c.key.ID(), &aggregate.LocationStats{Location: loc, Observations: r.Observations, Heavy: r.Heavy, HeavySum: r.HeavySum})
		}
	}
}

// Signals are the signals that have values here, ascending.
func (s *Summary) Signals() []csig.Signal {
	seen := make(map[csig.Signal]bool)
	s.mu.Lock()
	for i := range s.table.cells {
		if signal := s.table.cells[i].key.Signal; signal.HasValue() {
			seen[signal] = true
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
func (s *Summary) Cells(sig csig.Signal, level func(aggregate.LocationID) aggregate.LocationID) []aggregate.CellStats {
	var out []aggregate.CellStats
	s.each(sig, level, func(k aggregate.CellKey, t *aggregate.Sums, at []aggregate.LocationStats) {
		stats := aggregate.CellStats{
			Src: k.Src, Dst: k.Dst, Signal: sig, Kind: k.Kind,
			Observations: t.Observations, Bytes: t.Bytes, Measured: t.Measured,
			Sum: t.Sum, Min: t.Min, Max: t.Max,
			Untouched: t.Untouched, Trimmed: t.Trimmed, Heavy: t.Heavy, HeavySum: t.HeavySum,
		}
		stats.SetMode(aggregate.Bottlenecks(sig.Direction(), at))
		stats.SetState()
		out = append(out, stats)
	})
	slices.SortFunc(out, func(a, b aggregate.CellStats) int {
		return cmp.Or(cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst))
	})
	return out
}

// Locations is how many observations of the signal the locations have, at the level
// as in Cells, over all cells: the locations with the most heavy ones first, in the
// order by which the mode is chosen.
func (s *Summary) Locations(sig csig.Signal, level func(aggregate.LocationID) aggregate.LocationID) []aggregate.LocationStats {
	all := make(map[aggregate.LocationID]*aggregate.LocationStats)
	s.each(sig, level, func(_ aggregate.CellKey, _ *aggregate.Sums, at []aggregate.LocationStats) {
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

// each tells f of the signal's cells, of one kind each: what they come to, and their
// locations, each once, which f may use until it returns.
func (s *Summary) each(sig csig.Signal, level func(aggregate.LocationID) aggregate.LocationID, f func(aggregate.CellKey, *aggregate.Sums, []aggregate.LocationStats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var at []aggregate.LocationStats
	var total aggregate.Sums
	for i := range s.table.cells {
		c := &s.table.cells[i]
		if c.key.Signal != sig || c.key.Kind == decode.Reflection && s.tagged(c.key) {
			continue
		}
		total, at = aggregate.Sums{}, at[:0]
		for place := c.first; place >= 0; place = s.table.rows[place].next {
			row, loc := &s.table.rows[place].row, s.table.rows[place].loc
			total.Merge(row)
			if level != nil && loc > aggregate.OverflowLocation {
				loc = level(loc)
			}
			at = append(at, aggregate.LocationStats{Location: loc, Observations: row.Observations, Heavy: row.Heavy, HeavySum: row.HeavySum})
		}
		f(c.key, &total, mergeLocations(at))
	}
}

// tagged tells whether a cell has tags. The caller holds mu.
func (s *Summary) tagged(k aggregate.CellKey) bool {
	k.Kind = decode.Tag
	_, ok := s.table.places[k]
	return ok
}

// mergeLocations adds up those of the same location, in place.
func mergeLocations(list []aggregate.LocationStats) []aggregate.LocationStats {
	slices.SortFunc(list, func(a, b aggregate.LocationStats) int { return cmp.Compare(a.Location, b.Location) })
	out := list[:0]
	for i := range list {
		if n := len(out); n > 0 && out[n-1].Location == list[i].Location {
			out[n-1].Merge(&list[i])
			continue
		}
		out = append(out, list[i])
	}
	return out
}
