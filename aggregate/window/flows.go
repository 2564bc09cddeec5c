package window

import (
	"fmt"
	"math/bits"

	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
)

// FlowLimits say how many flows blocks name.
type FlowLimits struct {
	// Top is how many flows of each signal and kind a window names, those with the most
	// heavy observations first; 0 for none. At most MaxTopFlows.
	Top int
	// Budget is how many flows are remembered in a window, each for every signal and kind:
	// at least Top, at most MaxFlowBudget. Default: 4096, or four times Top if that is more.
	// Past it the flows that were heavy least often are forgotten, and those that are named
	// may have had more heavy observations than their rows say: the rest has those.
	Budget int
}

// Bounds and default of FlowLimits.
const (
	MaxTopFlows   = 10_000
	MaxFlowBudget = flow.MaxBudget

	// DefaultFlowBudget is the least budget that is taken where none is given.
	DefaultFlowBudget = 4096
)

// WithDefaults are the limits with the default for what is left out, or what is wrong with
// them.
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

// heavyItems are the pending items that are heavy, by number, and what is counted of them.
type heavyItems struct {
	list    [pendingItems]uint8
	counted [pendingItems]flow.Heavy
}

// countFlows counts pending items, all of them heavy, in the flows of their windows. One
// without addresses is of no flow.
func (s *Shard) countFlows(heavy []uint8) {
	if s.cfg.Flows.Top == 0 || len(heavy) == 0 {
		return
	}
	list, seeds := s.heavy.counted[:len(heavy)], s.seeds
	items, batch, brief := &s.items, s.batch, s.series.brief
	slot, apart := items[heavy[0]].slot, uint32(0)
	for k, i := range heavy {
		it, h := &items[i], &list[k]
		o, b := &batch[it.obs], &brief[it.series]
		apart |= it.slot ^ slot
		against := int(o.Kind>>1) & 1
		ports := bits.RotateLeft32(uint32(o.SrcPort)<<16|uint32(o.DstPort), 16*against)
		h.Hash = seeds.Hash(it.addresses, ports, o.Proto, b.cell)
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

// remember makes an entry for the flow of an item, unless it is of none, and counts it.
func (s *Shard) remember(flows *flow.Table, it *pendingItem, h *flow.Heavy) {
	o := &s.batch[it.obs]
	if o.Flags&decode.HasAddrs == 0 {
		return
	}
	f := flow.Flow{Src: o.Src, Dst: o.Dst, SrcPort: o.SrcPort, DstPort: o.DstPort, Proto: o.Proto}
	if o.Kind == decode.Reflection {
		f.Src, f.Dst, f.SrcPort, f.DstPort = f.Dst, f.Src, f.DstPort, f.SrcPort
	}
	s.counts.FlowsForgotten += uint64(flows.Insert(h, it.series, &f))
}
