package window

import (
	"math"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
)

// flowRows makes the rows of flows of a closed window. Its buffers serve all windows.
type flowRows struct {
	ranks []uint64                  // the flows in their order: rankOf<<32 | entry
	rest  map[aggregate.CellKey]int // where the rest of a cell is in the block
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
func (s *Shard) flowRow(t *flow.Table, entry int) aggregate.FlowRow {
	e := t.Entry(entry)
	sr, weight := &s.series.list[e.Ref], s.cfg.Weight
	var worst flow.Place
	t.Places(entry, func(p flow.Place) {
		if p.ID != uint64(aggregate.NoLocation) && (p.Heavy > worst.Heavy || p.Heavy == worst.Heavy && p.ID < worst.ID) {
			worst = p
		}
	})
	heavy, sum := e.Heavy*weight, aggregate.MulSat(e.Sum, weight)
	return aggregate.FlowRow{
		Flow: e.Flow, Signal: uint8(sr.signal), Kind: uint8(sr.kind), SrcGroup: uint64(sr.src), DstGroup: uint64(sr.dst),
		Observations: heavy, Bytes: aggregate.MulSat(e.Bytes, weight), Measured: heavy, Sum: sum, Min: e.Min, Max: e.Max,
		Heavy: heavy, HeavySum: sum, Location: worst.ID, LocationHeavy: worst.Heavy * weight,
	}
}

// addRest adds what the flows leave of the block: of each of their cells, and of all
// other cells together.
func (r *flowRows) addRest(b *aggregate.Block) {
	if r.rest == nil {
		r.rest = make(map[aggregate.CellKey]int)
	}
	clear(r.rest)
	flows := len(b.Flows)
	for i := range flows {
		r.restOf(b, b.Flows[i].Cell())
	}
	last, at := aggregate.CellKey{}, -1
	for i := range b.Len() {
		if k := b.Cell(i); at < 0 || k != last {
			var named bool
			if at, named = r.rest[k]; !named {
				at = r.restOf(b, aggregate.CellKey{Signal: k.Signal, Kind: k.Kind, Src: aggregate.OverflowGroup, Dst: aggregate.OverflowGroup})
			}
			last = k
		}
		sums := b.Sums(i)
		b.Flows[at].AddSums(&sums)
	}
	for i := range flows {
		f := &b.Flows[i]
		b.Flows[r.rest[f.Cell()]].Subtract(f)
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
func (r *flowRows) restOf(b *aggregate.Block, k aggregate.CellKey) int {
	at, ok := r.rest[k]
	if !ok {
		at = len(b.Flows)
		r.rest[k] = at
		b.Flows = append(b.Flows, aggregate.FlowRow{Signal: uint8(k.Signal), Kind: uint8(k.Kind), SrcGroup: uint64(k.Src), DstGroup: uint64(k.Dst)})
	}
	return at
}

func (r *flowRows) bytes() uint64 {
	const restBytes = 64
	return uint64(cap(r.ranks))*8 + uint64(len(r.rest))*restBytes
}
