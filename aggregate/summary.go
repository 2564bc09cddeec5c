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

	mu    sync.Mutex
	table summaryTable
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
			r.measured = AddSat(r.measured, n)
		}
	}
	return k, r
}

func (s *Summary) add(k summaryKey, r *summaryRow) {
	have := s.table.find(k)
	if have == nil && len(s.table.rows) >= s.maxKeys {
		k.cell.src, k.cell.dst, k.loc = OverflowGroup, OverflowGroup, OverflowLocation
		have = s.table.find(k)
	}
	if have == nil {
		s.table.insert(k, r)
		return
	}
	have.merge(r)
}

func (r *summaryRow) merge(o *summaryRow) {
	if o.measured > 0 && (r.measured == 0 || o.min < r.min) {
		r.min = o.min
	}
	r.max = max(r.max, o.max)
	r.measured = AddSat(r.measured, o.measured)
	r.observations = AddSat(r.observations, o.observations)
	r.bytes = AddSat(r.bytes, o.bytes)
	r.sum = AddSat(r.sum, o.sum)
	r.untouched = AddSat(r.untouched, o.untouched)
	r.trimmed = AddSat(r.trimmed, o.trimmed)
	r.heavy = AddSat(r.heavy, o.heavy)
	r.heavySum = AddSat(r.heavySum, o.heavySum)
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
func (s *Summary) Each(sig csig.Signal, f func(CellID, *LocationStats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.table.cells {
		c := &s.table.cells[i]
		if c.key.signal != sig {
			continue
		}
		for loc, place := range s.table.of(c) {
			r := &s.table.rows[place].row
			f(c.key.id(), &LocationStats{Location: loc, Observations: r.observations, Heavy: r.heavy, HeavySum: r.heavySum})
		}
	}
}

// Signals are the signals that have values here, ascending.
func (s *Summary) Signals() []csig.Signal {
	seen := make(map[csig.Signal]bool)
	s.mu.Lock()
	for i := range s.table.cells {
		if signal := s.table.cells[i].key.signal; signal.HasValue() {
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
func (s *Summary) Cells(sig csig.Signal, level func(LocationID) LocationID) []CellStats {
	var out []CellStats
	s.each(sig, level, func(k cellKey, t *summaryRow, at []LocationStats) {
		stats := CellStats{
			Src: k.src, Dst: k.dst, Signal: sig, Kind: k.kind,
			Observations: t.observations, Bytes: t.bytes, Measured: t.measured,
			Sum: t.sum, Min: t.min, Max: t.max,
			Untouched: t.untouched, Trimmed: t.trimmed, Heavy: t.heavy, HeavySum: t.heavySum,
		}
		stats.setMode(bottlenecks(sig.Direction(), at))
		stats.setState()
		out = append(out, stats)
	})
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
	s.each(sig, level, func(_ cellKey, _ *summaryRow, at []LocationStats) {
		for i := range at {
			l := &at[i]
			if all[l.Location] == nil {
				all[l.Location] = &LocationStats{Location: l.Location}
			}
			all[l.Location].merge(l)
			if l.Heavy > 0 {
				all[l.Location].Cells++
			}
		}
	})
	out := make([]LocationStats, 0, len(all))
	for _, l := range all {
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b LocationStats) int { return CompareBottlenecks(sig.Direction(), &a, &b) })
	return out
}

// each tells f of the signal's cells, of one kind each: what they come to, and their
// locations, each once, which f may use until it returns.
func (s *Summary) each(sig csig.Signal, level func(LocationID) LocationID, f func(cellKey, *summaryRow, []LocationStats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var at []LocationStats
	var total summaryRow
	for i := range s.table.cells {
		c := &s.table.cells[i]
		if c.key.signal != sig || c.key.kind == decode.Reflection && s.tagged(c.key) {
			continue
		}
		total, at = summaryRow{}, at[:0]
		for place := c.first; place >= 0; place = s.table.rows[place].next {
			row, loc := &s.table.rows[place].row, s.table.rows[place].loc
			total.merge(row)
			if level != nil && loc > OverflowLocation {
				loc = level(loc)
			}
			at = append(at, LocationStats{Location: loc, Observations: row.observations, Heavy: row.heavy, HeavySum: row.heavySum})
		}
		f(c.key, &total, mergeLocations(at))
	}
}

// tagged tells whether a cell has tags. The caller holds mu.
func (s *Summary) tagged(k cellKey) bool {
	k.kind = decode.Tag
	_, ok := s.table.places[k]
	return ok
}

// mergeLocations adds up those of the same location, in place.
func mergeLocations(list []LocationStats) []LocationStats {
	slices.SortFunc(list, func(a, b LocationStats) int { return cmp.Compare(a.Location, b.Location) })
	out := list[:0]
	for i := range list {
		if n := len(out); n > 0 && out[n-1].Location == list[i].Location {
			out[n-1].merge(&list[i])
			continue
		}
		out = append(out, list[i])
	}
	return out
}

func (l *LocationStats) merge(o *LocationStats) {
	l.Observations = AddSat(l.Observations, o.Observations)
	l.Heavy = AddSat(l.Heavy, o.Heavy)
	l.HeavySum = AddSat(l.HeavySum, o.HeavySum)
}

// bottlenecks are the mode and the runner-up. Their Heavy is 0 when there is none.
// Heavy sums and counts over hops have no location, and hence no mode.
func bottlenecks(d csig.Direction, list []LocationStats) (first, second LocationStats) {
	for i := range list {
		l := &list[i]
		switch {
		case l.Heavy == 0 || l.Location == NoLocation:
		case first.Heavy == 0 || CompareBottlenecks(d, l, &first) < 0:
			first, second = *l, first
		case second.Heavy == 0 || CompareBottlenecks(d, l, &second) < 0:
			second = *l
		}
	}
	return first, second
}
