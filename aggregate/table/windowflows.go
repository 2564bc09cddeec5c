package table

import (
	"cmp"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// flowShare is the fraction of MemoryOptions.MaxRows that bounds the flows of all windows together,
// each of about 300 bytes.
const flowShare = 8

// The flows of windows. Past the bounds flows are part of the rest of the overflow group, so that
// totals stay exact, and the oldest windows lose theirs.
type (
	flowSteps = steps[flow.Flow, flowTotal]
	flowRows  = rows[flow.Flow, flowTotal]
)

func newFlowSteps(o *MemoryOptions) flowSteps {
	return newSteps(Bounds{Resolution: o.Resolution, Steps: o.Windows, Rows: max(o.MaxRows/flowShare, 1), Sliding: true},
		(*flowTotal).merge, func(flow.Flow) flow.Flow { return flow.Flow{} })
}

// writeFlows adds the flows of a counted block. The caller holds m.mu.
func (m *Memory) writeFlows(b *aggregate.Block) {
	if len(b.Flows) == 0 {
		return
	}
	s := m.flows.at(b.WindowStart)
	if s == nil {
		return // forgotten before the window: Flows reports it
	}
	var total flowTotal // escapes: once a block
	for i := range b.Flows {
		f := &b.Flows[i]
		total.row = *f
		s = m.flows.add(s, rowKey[flow.Flow]{f.Cell(), f.Flow}, &total)
	}
	m.flows.slide()
}

// sharedFlows returns the flows of a window for readers, nil if there are none; forgotten reports
// whether they were dropped to make room. The caller holds m.mu.
func (m *Memory) sharedFlows(start int64) (list *flowRows, forgotten bool) {
	i, found := m.flows.find(start)
	if !found {
		return nil, start < m.flows.floor
	}
	return m.flows.list[i].share(), false
}

// WindowFlow is a flow of some windows, or the rest of a cell.
type WindowFlow struct {
	aggregate.FlowRow
	Windows uint64 // number of windows that name it
}

// Flows adds up the flows of the signal that windows name, and for each cell the rest, whose Flow
// is zero: the most heavy observations first, then by addresses, ports and cell. A flow consists of
// its tags if it has any in its cell, else of its reflections. Cells may be left out; see
// State.Old. complete is false if a window's flows were dropped to make room.
func Flows(windows []*Window, sig csig.Signal, without map[aggregate.CellKey]bool) (list []WindowFlow, complete bool) {
	type total struct {
		flowTotal
		windows uint64
	}
	all := make(map[rowKey[flow.Flow]]*total)
	complete = true
	for _, w := range windows {
		complete = complete && !w.flowsForgotten
		if w.flows == nil {
			continue
		}
		for k, f := range w.flows.all {
			if k.cell.Signal != sig || without[k.cell] {
				continue
			}
			if have := all[k]; have != nil {
				have.merge(f)
				have.windows++
				continue
			}
			all[k] = &total{*f, 1}
		}
	}
	for key, f := range all {
		if tags := key; key.cell.Kind == decode.Reflection {
			tags.cell.Kind = decode.Tag
			if all[tags] != nil {
				continue
			}
		}
		row := f.located()
		row.Flow, row.SrcGroup, row.DstGroup = key.key, uint64(key.cell.Src), uint64(key.cell.Dst) // an overflow row still has the fields of the flow that came first
		if key.key == (flow.Flow{}) {
			row.Location, row.LocationHeavy = uint64(aggregate.NoLocation), 0
		}
		list = append(list, WindowFlow{row, f.windows})
	}
	slices.SortFunc(list, func(a, b WindowFlow) int { return compareFlows(&a.FlowRow, &b.FlowRow) })
	return list, complete
}

// compareFlows puts the flow with more heavy observations first.
func compareFlows(a, b *aggregate.FlowRow) int {
	return cmp.Or(cmp.Compare(b.Heavy, a.Heavy), a.Compare(&b.Flow),
		cmp.Compare(a.SrcGroup, b.SrcGroup), cmp.Compare(a.DstGroup, b.DstGroup))
}
