package aggregate

import (
	"math"

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

	// Location is the one that most of the heavy observations name, the lowest of several;
	// NoLocation without any.
	Location      uint64
	LocationHeavy uint64 // heavy observations that name it
}

// flowRows makes the rows of flows of a closed window. Its buffers serve all windows.
type flowRows struct {
	ranks []uint64        // the flows in their order: rankOf<<32 | entry
	rest  map[cellKey]int // where the rest of a cell is in the block
}

// Where other shards may have seen a part of a window, the top flows of one part need not
// be those of the whole. All flows are named there unless they are more than partFlows,
// and partTop times as many as else if they are: so the top flows of all parts together
// are exact up to partFlows, and beyond that what is named of one is what it had at least.
const (
	partFlows = 1024
	partTop   = 2
)

// writeFlows adds the rows of flows to those that the block has already. A shard names
// the top flows of what it has seen whole. Of flows that were heavy as often, those come
// first that were remembered first.
func (s *Shard) writeFlows(l *level, w *window) {
	b, r := &s.rows.block, &s.flowRows
	if s.cfg.Flows.Top == 0 || l.res < int64(fineBelow) {
		return
	}
	flows, top := &w.flows, s.cfg.Flows.Top
	if w.delta || s.flushing || w.start <= l.first {
		if top *= partTop; flows.Len() <= partFlows {
			top = partFlows
		}
	}
	r.ranks = r.ranks[:0]
	for i := range flows.Len() {
		r.ranks = append(r.ranks, uint64(s.rankOf(flows, i))<<32|uint64(i))
	}
	r.ranks = s.rows.radix.sort(r.ranks, math.MaxUint32)
	begin := 0
	for i, rank := range r.ranks {
		if group := uint32(rank>>32) >> rankBits; i > 0 && group != uint32(r.ranks[i-1]>>32)>>rankBits {
			begin = len(b.Flows)
		}
		if len(b.Flows)-begin < top {
			b.Flows = append(b.Flows, s.flowRow(flows, int(uint32(rank))))
		}
	}
	r.addRest(b)
}

// rankBits hold how often a flow was heavy in a rank, below its signal and kind.
const rankBits = 23

// rankOf is the lower the more often a flow was heavy, up to where differences do not
// matter.
func (s *Shard) rankOf(t *flow.Table, entry int) uint32 {
	const most = 1<<rankBits - 1
	sr := &s.series.list[t.Ref(entry)]
	return (uint32(sr.signal)<<1|uint32(sr.kind-decode.Tag))<<rankBits | uint32(most-min(t.Heavy(entry), most))
}

// flowRow is the row of a flow.
func (s *Shard) flowRow(t *flow.Table, entry int) FlowRow {
	e := t.Entry(entry)
	sr, weight := &s.series.list[e.Ref], s.cfg.Weight
	var worst flow.Place
	t.Places(entry, func(p flow.Place) {
		if p.ID != uint64(NoLocation) && (p.Heavy > worst.Heavy || p.Heavy == worst.Heavy && p.ID < worst.ID) {
			worst = p
		}
	})
	heavy, sum := e.Heavy*weight, mulSat(e.Sum, weight)
	return FlowRow{
		Flow: e.Flow, Signal: uint8(sr.signal), Kind: uint8(sr.kind), SrcGroup: uint64(sr.src), DstGroup: uint64(sr.dst),
		Observations: heavy, Bytes: mulSat(e.Bytes, weight), Measured: heavy, Sum: sum, Min: e.Min, Max: e.Max,
		Heavy: heavy, HeavySum: sum, Location: worst.ID, LocationHeavy: worst.Heavy * weight,
	}
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

// Add adds what another row counted: of the same flow in another window, or of a flow that
// goes into a rest. Totals saturate. Whose row it is, and its location, stay.
func (f *FlowRow) Add(o *FlowRow) {
	if o.Measured > 0 {
		if f.Measured == 0 || o.Min < f.Min {
			f.Min = o.Min
		}
		f.Max = max(f.Max, o.Max)
	}
	f.Observations = AddSat(f.Observations, o.Observations)
	f.Bytes = AddSat(f.Bytes, o.Bytes)
	f.Measured = AddSat(f.Measured, o.Measured)
	f.Sum = AddSat(f.Sum, o.Sum)
	f.Heavy = AddSat(f.Heavy, o.Heavy)
	f.HeavySum = AddSat(f.HeavySum, o.HeavySum)
}

// add adds a row of the block to a rest.
func (f *FlowRow) add(r *summaryRow) {
	if r.measured > 0 && (f.Measured == 0 || r.min < f.Min) {
		f.Min = r.min
	}
	f.Max = max(f.Max, r.max)
	f.Observations = AddSat(f.Observations, r.observations)
	f.Bytes = AddSat(f.Bytes, r.bytes)
	f.Measured = AddSat(f.Measured, r.measured)
	f.Sum = AddSat(f.Sum, r.sum)
	f.Heavy = AddSat(f.Heavy, r.heavy)
	f.HeavySum = AddSat(f.HeavySum, r.heavySum)
}

// subtract takes a flow out of a rest that has it. Sums that are saturated stay what they
// are.
func (f *FlowRow) subtract(o *FlowRow) {
	f.Observations = subSat(f.Observations, o.Observations)
	f.Bytes = subSat(f.Bytes, o.Bytes)
	f.Measured = subSat(f.Measured, o.Measured)
	f.Sum = subSat(f.Sum, o.Sum)
	f.Heavy = subSat(f.Heavy, o.Heavy)
	f.HeavySum = subSat(f.HeavySum, o.HeavySum)
}

func subSat(a, b uint64) uint64 {
	if a == math.MaxUint64 {
		return a
	}
	return a - min(a, b)
}

func (r *flowRows) bytes() uint64 {
	const restBytes = 64
	return uint64(cap(r.ranks))*8 + uint64(len(r.rest))*restBytes
}
