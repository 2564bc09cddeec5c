package window

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
)

// FlowLimits bound the flows that blocks name.
type FlowLimits struct {
	// Top is the number of flows of each signal and kind that a window names, those with the most
	// heavy observations first; 0 for none. At most MaxTopFlows.
	Top int
	// Budget is the number of flows remembered in a window, each for every signal and kind: at
	// least Top, at most MaxFlowBudget. Default: 4096, or four times Top if that is more. Past it,
	// the shard forgets the flows with the fewest heavy observations, and a named flow may have had
	// more heavy observations than its row has: the rest includes those.
	Budget int
}

// Bounds and default of FlowLimits.
const (
	MaxTopFlows   = 10_000
	MaxFlowBudget = flow.MaxBudget

	// DefaultFlowBudget is the least default budget.
	DefaultFlowBudget = 4096
)

// WithDefaults returns the limits with defaults filled in, or an error.
func (l FlowLimits) WithDefaults() (FlowLimits, error) {
	if l.Top < 0 || l.Top > MaxTopFlows {
		return l, fmt.Errorf("top flows %d: expected 0 to %d", l.Top, MaxTopFlows)
	}
	if l.Top > 0 {
		setDefault(&l.Budget, max(DefaultFlowBudget, 4*l.Top))
		if l.Budget < max(l.Top, 2) || l.Budget > MaxFlowBudget {
			return l, fmt.Errorf("flow budget %d: expected %d, the top flows, to %d", l.Budget, max(l.Top, 2), MaxFlowBudget)
		}
	}
	return l, nil
}

// heavyItems are the heavy pending items, by number, and their flow counts.
type heavyItems struct {
	list    [pendingItems]uint8
	counted [pendingItems]flow.Heavy
}

// countFlows counts pending items, all of them heavy, in the flows of their windows. An item
// without addresses belongs to no flow.
func (s *Shard) countFlows(heavy []uint8) {
	if s.cfg.Flows.Top == 0 || len(heavy) == 0 {
		return
	}
	list, seeds := s.heavy.counted[:len(heavy)], s.seeds
	items, batch, brief := &s.items, s.batch, s.series.brief
	slot, apart := items[heavy[0]].slot, uint32(0)
	touched := uint32(0)
	for _, i := range heavy {
		touched |= brief[items[i].series].cell
	}
	s.touched |= uint64(touched)
	for k, i := range heavy {
		it, h := &items[i], &list[k]
		o, b := &batch[it.obs], &brief[it.series]
		apart |= it.slot ^ slot
		against := int(o.Kind>>1) & 1
		ports := bits.RotateLeft32(uint32(o.SrcPort)<<16|uint32(o.DstPort), 16*against)
		addresses := uint64(0)
		if o.Flags&decode.HasAddrs != 0 {
			addresses = seeds.Addresses(o.Measured())
		}
		h.Hash = seeds.Hash(addresses, ports, o.Proto, b.cell)
		h.Place, h.Value, h.Bytes = uint64(b.loc), it.value, it.bytes
	}
	windows := s.levels[0].all
	if apart == 0 {
		s.countFlowsOf(&windows[slot].flows, heavy, list)
		return
	}
	for k, i := range heavy {
		s.countFlowsOf(&windows[items[i].slot].flows, heavy[k:k+1], list[k:k+1])
	}
}

// countFlowsOf counts heavy items of one window.
func (s *Shard) countFlowsOf(flows *flow.Table, heavy []uint8, list []flow.Heavy) {
	flows.Find(list)
	for k := flows.CountKnown(list); k < len(list); {
		s.remember(flows, &s.items[heavy[k]], &list[k])
		k += 1 + flows.CountKnown(list[k+1:])
	}
}

// remember makes an entry for the flow of an item, if it has one, and counts it.
func (s *Shard) remember(flows *flow.Table, it *pendingItem, h *flow.Heavy) {
	o := &s.batch[it.obs]
	if o.Flags&decode.HasAddrs == 0 {
		return
	}
	f := flowOf(o)
	s.counts.FlowsForgotten += uint64(flows.Insert(h, it.series, &f))
}

// flowRows makes the flow rows of a closed window. All windows share its buffers.
type flowRows struct {
	ranks []uint64                  // the flows in order: rankOf<<32 | entry
	rest  map[aggregate.CellKey]int // position in the block of a cell's rest
}

// If other shards may have seen a part of a window, the top flows of one part need not be those of
// the whole. Then a shard names all flows up to partFlows, and partTop times the usual number
// beyond that. So the top flows of all parts together are exact up to partFlows; beyond, a flow's
// total is a lower bound.
const (
	partFlows = 1024
	partTop   = 2
)

// writeFlows adds the rows of flows to the block's rows. Of windows that a shard has seen whole, it
// names the top flows. Equally heavy flows come in the order in which they were remembered.
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

// rankBits is the number of bits of a rank for the count of heavy observations, below signal and
// kind.
const rankBits = 23

// rankOf returns a lower number for a flow with more heavy observations, up to a limit beyond which
// differences do not matter.
func (s *Shard) rankOf(t *flow.Table, entry int) uint32 {
	const most = 1<<rankBits - 1
	sr := &s.series.list[t.Ref(entry)]
	return (uint32(sr.signal)<<1|uint32(sr.kind-decode.Tag))<<rankBits | uint32(most-min(t.Heavy(entry), most))
}

// flowRow returns the row of a flow.
func (s *Shard) flowRow(t *flow.Table, entry int) aggregate.FlowRow {
	e := t.Entry(entry)
	sr, weight := &s.series.list[e.Ref], s.cfg.Weight
	var worst flow.LocationCount
	t.Places(entry, func(p flow.LocationCount) {
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

// addRest adds the rows of the rest: for each cell with named flows, and for all other cells
// together.
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

// restOf returns the position of a cell's rest, and adds the row if it is missing.
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
