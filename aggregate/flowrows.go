package aggregate

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// FlowRow is what a flow had of the heavy observations of a window, in stored units as
// the rows of its block. A row with the zero Flow is all the rest of its cell, and one of
// OverflowGroup that of all cells without a row: the rows of a signal and kind are
// together exactly those of the block, but for Min and Max. Those of a rest are of the
// whole cell, between which all its values lie.
//
// A flow whose clear observations are of interest is not told apart by them: they are in
// the rest.
type FlowRow struct {
	flow.Flow
	Signal, Kind       uint8
	SrcGroup, DstGroup uint64

	Observations, Bytes uint64
	Measured            uint64 // observations with a value
	Sum, Min, Max       uint64
	Heavy, HeavySum     uint64

	Location      uint64 // that most of the heavy observations name; NoLocation without any
	LocationHeavy uint64 // heavy observations that name it
}

// flowRows makes the rows of flows of a closed window. Its buffers serve all windows.
type flowRows struct {
	order []*flow.Entry
	ranks []rankedFlow
	rest  map[cellKey]int // where the rest of a cell is in the block
}

// rankedFlow is a flow in a cell, whose entries are order[from:to].
type rankedFlow struct {
	signal   csig.Signal
	kind     decode.Kind
	heavy    uint64
	from, to uint32
}

// writeFlows adds the rows of flows to those that the block has already. A shard names
// the top flows of what it has seen whole; of windows that others may have seen a part of
// it names all that it remembers, so that the top flows of all parts can be told.
func (s *Shard) writeFlows(l *level, w *window) {
	b := &s.rows.block
	if s.cfg.Flows.Top == 0 || l.res < int64(fineBelow) {
		return
	}
	s.rankFlows(&w.flows)
	top := s.cfg.Flows.Top
	if w.delta || s.flushing || w.start <= l.first {
		top = math.MaxInt
	}
	named := 0
	for i := range s.flowRows.ranks {
		r := &s.flowRows.ranks[i]
		if i > 0 && (r.signal != s.flowRows.ranks[i-1].signal || r.kind != s.flowRows.ranks[i-1].kind) {
			named = 0
		}
		if named++; named <= top {
			b.Flows = append(b.Flows, s.flowRow(s.flowRows.order[r.from:r.to]))
		}
	}
	s.flowRows.addRest(b)
}

// rankFlows lists the flows of a window, of each signal and kind the worst first.
func (s *Shard) rankFlows(t *flow.Table) {
	r := &s.flowRows
	r.order, r.ranks = r.order[:0], r.ranks[:0]
	entries := t.Entries()
	for i := range entries {
		r.order = append(r.order, &entries[i])
	}
	list := s.series.list
	slices.SortFunc(r.order, func(a, b *flow.Entry) int {
		x, y := &list[a.Part], &list[b.Part]
		return cmp.Or(cmp.Compare(x.cell, y.cell), compareFlows(&a.Flow, &b.Flow), cmp.Compare(x.loc, y.loc))
	})
	for i, e := range r.order {
		sr := &list[e.Part]
		if n := len(r.ranks) - 1; i > 0 && list[r.order[i-1].Part].cell == sr.cell && r.order[i-1].Flow == e.Flow {
			r.ranks[n].heavy += e.Heavy
			r.ranks[n].to++
			continue
		}
		r.ranks = append(r.ranks, rankedFlow{sr.signal, sr.kind, e.Heavy, uint32(i), uint32(i + 1)})
	}
	slices.SortFunc(r.ranks, func(a, b rankedFlow) int {
		if c := cmp.Or(cmp.Compare(a.signal, b.signal), cmp.Compare(a.kind, b.kind), cmp.Compare(b.heavy, a.heavy)); c != 0 {
			return c
		}
		x, y := r.order[a.from], r.order[b.from]
		return cmp.Or(compareFlows(&x.Flow, &y.Flow),
			cmp.Compare(list[x.Part].src, list[y.Part].src), cmp.Compare(list[x.Part].dst, list[y.Part].dst))
	})
}

func compareFlows(a, b *flow.Flow) int {
	return cmp.Or(bytes.Compare(a.Src[:], b.Src[:]), bytes.Compare(a.Dst[:], b.Dst[:]),
		cmp.Compare(a.SrcPort, b.SrcPort), cmp.Compare(a.DstPort, b.DstPort), cmp.Compare(a.Proto, b.Proto))
}

// flowRow is the sum of a flow's entries, which are in the order of their locations.
func (s *Shard) flowRow(entries []*flow.Entry) FlowRow {
	sr := &s.series.list[entries[0].Part]
	row := FlowRow{
		Flow: entries[0].Flow, Signal: uint8(sr.signal), Kind: uint8(sr.kind),
		SrcGroup: uint64(sr.src), DstGroup: uint64(sr.dst), Min: math.MaxUint64,
	}
	weight := s.cfg.Weight
	var at, worst LocationStats
	for _, e := range entries {
		heavy, sum := e.Heavy*weight, mulSat(e.Sum, weight)
		row.Heavy += heavy
		row.Bytes = addSat(row.Bytes, mulSat(e.Bytes, weight))
		row.Sum = addSat(row.Sum, sum)
		row.Min, row.Max = min(row.Min, e.Min), max(row.Max, e.Max)
		if loc := s.series.list[e.Part].loc; loc != at.Location {
			at = LocationStats{Location: loc}
		}
		if at.Location == NoLocation {
			continue
		}
		at.Heavy += heavy
		at.HeavySum = addSat(at.HeavySum, sum)
		if worst.Heavy == 0 || compareBottlenecks(sr.signal.Direction(), &at, &worst) < 0 {
			worst = at
		}
	}
	row.Observations, row.Measured, row.HeavySum = row.Heavy, row.Heavy, row.Sum
	row.Location, row.LocationHeavy = uint64(worst.Location), worst.Heavy
	return row
}

// addRest adds what the flows leave of the block: of each of their cells, and of all
// other cells together.
func (r *flowRows) addRest(b *Block) {
	if r.rest == nil {
		r.rest = make(map[cellKey]int)
	}
	clear(r.rest)
	flows := len(b.Flows)
	for i := range flows {
		r.restOf(b, b.Flows[i].cell())
	}
	from, last, at := uint32(0), cellKey{}, -1
	for i := range b.Len() {
		k, row := blockSummary(b, i, b.DistCount[from:b.DistEnd[i]])
		from = b.DistEnd[i]
		if at < 0 || k.cell != last {
			var named bool
			if at, named = r.rest[k.cell]; !named {
				at = r.restOf(b, cellKey{k.cell.signal, k.cell.kind, OverflowGroup, OverflowGroup})
			}
			last = k.cell
		}
		b.Flows[at].add(&row)
	}
	for i := range flows {
		f := &b.Flows[i]
		b.Flows[r.rest[f.cell()]].subtract(f)
	}
	kept := b.Flows[:flows]
	for i := range b.Flows[flows:] {
		if rest := &b.Flows[flows+i]; rest.Observations > 0 {
			kept = append(kept, *rest)
		}
	}
	b.Flows = kept
}

// restOf is where the rest of a cell is, which it makes.
func (r *flowRows) restOf(b *Block, k cellKey) int {
	at, ok := r.rest[k]
	if !ok {
		at = len(b.Flows)
		r.rest[k] = at
		b.Flows = append(b.Flows, FlowRow{Signal: uint8(k.signal), Kind: uint8(k.kind), SrcGroup: uint64(k.src), DstGroup: uint64(k.dst)})
	}
	return at
}

func (f *FlowRow) cell() cellKey {
	return cellKey{csig.Signal(f.Signal), decode.Kind(f.Kind), GroupID(f.SrcGroup), GroupID(f.DstGroup)}
}

// add adds a row of the block to a rest.
func (f *FlowRow) add(r *summaryRow) {
	if r.measured > 0 && (f.Measured == 0 || r.min < f.Min) {
		f.Min = r.min
	}
	f.Max = max(f.Max, r.max)
	f.Observations += r.observations
	f.Bytes = addSat(f.Bytes, r.bytes)
	f.Measured += r.measured
	f.Sum = addSat(f.Sum, r.sum)
	f.Heavy += r.heavy
	f.HeavySum = addSat(f.HeavySum, r.heavySum)
}

// subtract takes a flow out of a rest that has it. Sums that are saturated stay what they
// are.
func (f *FlowRow) subtract(o *FlowRow) {
	f.Observations -= o.Observations
	f.Bytes = subSat(f.Bytes, o.Bytes)
	f.Measured -= o.Measured
	f.Sum = subSat(f.Sum, o.Sum)
	f.Heavy -= o.Heavy
	f.HeavySum = subSat(f.HeavySum, o.HeavySum)
}

func subSat(a, b uint64) uint64 {
	if a == math.MaxUint64 {
		return a
	}
	return a - min(a, b)
}

func (r *flowRows) bytes() uint64 {
	const rankBytes, restBytes = 24, 64
	return uint64(cap(r.order))*8 + uint64(cap(r.ranks))*rankBytes + uint64(len(r.rest))*restBytes
}
