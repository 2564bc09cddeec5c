package table

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// FlowTotals adds up the flows that blocks of one resolution name, over all their windows.
// It is a Sink, safe for concurrent use. Its memory is bounded: what comes after a number
// of flows is not told apart from the others.
type FlowTotals struct {
	resolution int64
	maxFlows   int

	mu    sync.Mutex
	flows map[flowKey]*flowTotal
	full  bool
}

type flowKey struct {
	flow flow.Flow
	cell aggregate.CellKey
}

type flowTotal struct {
	row    aggregate.FlowRow
	places map[uint64]uint64 // heavy observations that name a location
}

// NewFlowTotals makes a FlowTotals of the blocks at the resolution, of at most maxFlows
// flows: one counts for each signal, kind and cell that it has.
func NewFlowTotals(resolution time.Duration, maxFlows int) *FlowTotals {
	return &FlowTotals{resolution: int64(resolution), maxFlows: maxFlows, flows: make(map[flowKey]*flowTotal)}
}

// WriteBlock adds the block's flows, if it is of the resolution. It never fails.
func (t *FlowTotals) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if b.Resolution != t.resolution {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range b.Flows {
		if f := &b.Flows[i]; f.Flow != (flow.Flow{}) {
			t.add(f)
		}
	}
	return nil
}

func (t *FlowTotals) add(f *aggregate.FlowRow) {
	k := flowKey{f.Flow, f.Cell()}
	have := t.flows[k]
	switch {
	case have != nil:
		have.row.Add(f)
	case len(t.flows) >= t.maxFlows:
		t.full = true
		return
	default:
		have = &flowTotal{row: *f, places: make(map[uint64]uint64, 1)}
		t.flows[k] = have
	}
	if f.LocationHeavy > 0 {
		have.places[f.Location] = aggregate.AddSat(have.places[f.Location], f.LocationHeavy)
	}
}

// Full tells whether there was no room for all flows.
func (t *FlowTotals) Full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.full
}

// Flows are those of the signal, the most heavy observations first, then by addresses,
// ports and cell. A flow is made of its tags where it has any in its cell, else of its
// reflections. Location is the one that most of its heavy observations name, window by
// window, the lowest of several.
func (t *FlowTotals) Flows(sig csig.Signal) []aggregate.FlowRow {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []aggregate.FlowRow
	for k, f := range t.flows {
		if k.cell.Signal != sig {
			continue
		}
		if k.cell.Kind == decode.Reflection {
			tag := k
			tag.cell.Kind = decode.Tag
			if t.flows[tag] != nil {
				continue
			}
		}
		list = append(list, f.located())
	}
	slices.SortFunc(list, func(a, b aggregate.FlowRow) int {
		return cmp.Or(cmp.Compare(b.Heavy, a.Heavy), a.Compare(&b.Flow),
			cmp.Compare(a.SrcGroup, b.SrcGroup), cmp.Compare(a.DstGroup, b.DstGroup))
	})
	return list
}

func (t *flowTotal) located() aggregate.FlowRow {
	row := t.row
	row.Location, row.LocationHeavy = uint64(aggregate.NoLocation), 0
	for id, heavy := range t.places {
		if heavy > row.LocationHeavy || heavy == row.LocationHeavy && id < row.Location {
			row.Location, row.LocationHeavy = id, heavy
		}
	}
	return row
}
