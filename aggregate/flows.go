package aggregate

import (
	"fmt"

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

// heavyItems are the pending items that are heavy, by number, and the hashes of their
// flows.
type heavyItems struct {
	list   [pendingItems]uint8
	hashes [pendingItems]uint64
}

// countFlows counts pending items, all of them heavy, in the flows of their windows. One
// without addresses is of no flow.
func (s *Shard) countFlows(heavy []uint8) {
	if s.cfg.Flows.Top == 0 {
		return
	}
	windows, touched := s.levels[0].all, uint64(0)
	for k, i := range heavy {
		it := &s.items[i]
		o := &s.batch[it.obs]
		hash := s.seeds.Hash(&o.Src, &o.Dst, o.SrcPort, o.DstPort, o.Proto, o.Kind == decode.Reflection, s.series.brief[it.series].cell)
		s.heavy.hashes[k] = hash
		touched |= windows[it.slot].flows.Touch(hash)
	}
	for k, i := range heavy {
		touched |= windows[s.items[i].slot].flows.TouchEntry(s.heavy.hashes[k])
	}
	s.touched |= touched
	for k, i := range heavy {
		it := &s.items[i]
		hash, flows := s.heavy.hashes[k], &windows[it.slot].flows
		e := flows.At(hash)
		if e == nil {
			if e = s.remember(it, hash); e == nil {
				continue
			}
		}
		flows.Count(e, uint64(s.series.brief[it.series].loc), it.bytes, s.valueOf(it))
	}
}

// remember makes an entry for the flow of an item, nil where it is of none or there is no
// room for it.
func (s *Shard) remember(it *pendingItem, hash uint64) *flow.Entry {
	o := &s.batch[it.obs]
	flows := &s.levels[0].all[it.slot].flows
	if o.Flags&decode.HasAddrs == 0 || !flows.Admits() {
		return nil
	}
	f := flow.Flow{Src: o.Src, Dst: o.Dst, SrcPort: o.SrcPort, DstPort: o.DstPort, Proto: o.Proto}
	if o.Kind == decode.Reflection {
		f.Src, f.Dst, f.SrcPort, f.DstPort = f.Dst, f.Src, f.DstPort, f.SrcPort
	}
	e, forgotten := flows.Insert(hash, it.series, &f)
	s.counts.FlowsForgotten += uint64(forgotten)
	return e
}

// valueOf is the value of an item that has one.
func (s *Shard) valueOf(it *pendingItem) uint64 {
	tr := &s.traits[it.key.traits()]
	if it.code&itemWide != 0 {
		return tr.table.Value(it.code &^ itemWide)
	}
	return tr.value[it.code&31]
}
