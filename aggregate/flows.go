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
	// Budget is how many flows are remembered in a window, each with every location that
	// its heavy observations name: at least Top, at most MaxFlowBudget. Default: 4096, or
	// four times Top if that is more.
	Budget int
}

// Bounds of FlowLimits.
const (
	MaxTopFlows   = 10_000
	MaxFlowBudget = 1 << 20

	defaultFlowBudget = 4096
)

func (l FlowLimits) withDefaults() (FlowLimits, error) {
	if l.Top < 0 || l.Top > MaxTopFlows {
		return l, fmt.Errorf("top flows %d: expected 0 to %d", l.Top, MaxTopFlows)
	}
	if l.Top > 0 {
		setDefault(&l.Budget, max(defaultFlowBudget, 4*l.Top))
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
	n      int
	hashes [pendingItems]uint64
}

// add lists an item if it is heavy, 1. It does not branch, since that cannot be
// predicted.
func (h *heavyItems) add(i int, heavy uint32) {
	h.list[h.n&(pendingItems-1)] = uint8(i)
	h.n += int(heavy)
}

// countFlows counts the pending items that are heavy in the flows of their windows. One
// without addresses is of no flow.
func (s *Shard) countFlows() {
	heavy := s.heavy.list[:s.heavy.n]
	if s.cfg.Flows.Top == 0 {
		return
	}
	windows, touched := s.levels[0].all, uint64(0)
	for k, i := range heavy {
		it := &s.items[i]
		o := &s.batch[it.obs]
		src, dst, tail := &o.Src, &o.Dst, flow.Tail(o.SrcPort, o.DstPort, o.Proto)
		if o.Kind == decode.Reflection {
			src, dst, tail = dst, src, flow.Tail(o.DstPort, o.SrcPort, o.Proto)
		}
		hash := s.seeds.Hash(src, dst, tail, it.series)
		s.heavy.hashes[k] = hash
		touched |= windows[it.slot].flows.Touch(hash)
	}
	s.touched |= touched
	for k, i := range heavy {
		it := &s.items[i]
		hash := s.heavy.hashes[k]
		e := windows[it.slot].flows.At(hash)
		if e == nil {
			if e = s.remember(it, hash); e == nil {
				continue
			}
		}
		e.Count(it.bytes, s.valueOf(it))
	}
}

// remember makes an entry for the flow of an item, nil where it is of none.
func (s *Shard) remember(it *pendingItem, hash uint64) *flow.Entry {
	o := &s.batch[it.obs]
	if o.Flags&decode.HasAddrs == 0 {
		return nil
	}
	f := flow.Flow{Src: o.Src, Dst: o.Dst, SrcPort: o.SrcPort, DstPort: o.DstPort, Proto: o.Proto}
	if o.Kind == decode.Reflection {
		f.Src, f.Dst, f.SrcPort, f.DstPort = f.Dst, f.Src, f.DstPort, f.SrcPort
	}
	e, forgotten := s.levels[0].all[it.slot].flows.Insert(hash, it.series, &f)
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
