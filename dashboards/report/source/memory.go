// Package source has the numbers of a report: those of a replay in memory of bounded size,
// or those of a store that it filled. Both answer the same.
//
// It knows how much memory is for what. It must never know how numbers are shown, or where
// packets came from.
package source

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// What one entry takes, in bytes, with the empty slots of its map.
const (
	rowBytes  = 256 // of a cell and a location, in the total or in a step
	codeBytes = 120 // of a cell, a window and a code
	flowBytes = 1024
)

// maxWindows is how many windows of distributions are told apart.
const maxWindows = 1024

// Memory adds up blocks in memory. It is a Sink and, once all blocks are written, a
// report.Data. Blocks may be written from several goroutines.
type Memory struct {
	total    *table.Summary
	timeline *table.Timeline
	codes    *table.Codes
	flows    *table.FlowTotals
	samples  []*table.Stretches // the shortest steps first
	maxRows  int
	maxSteps int
	fine     time.Duration
	window   time.Duration // of distributions, at best
}

// Limits bound a Memory.
type Limits struct {
	Bytes uint64 // of all it holds, about
	Steps int    // of the timeline, at least 2
}

// Resolutions are those of the blocks that a Memory, or the store of a Stored, is made of.
// Blocks are to be of all cells.
type Resolutions struct {
	Fine   time.Duration // of steps: a part of Window, or Window itself
	Window time.Duration // of distributions
	Total  time.Duration
}

// List has each of them once, ascending.
func (r Resolutions) List() []time.Duration {
	return slices.Compact([]time.Duration{r.Fine, r.Window, r.Total})
}

// NewMemory makes a Memory of blocks at the resolutions.
func NewMemory(r Resolutions, l Limits) *Memory {
	entries := func(percent, bytes uint64) int { return int(max(l.Bytes/100*percent/bytes, 16)) }
	m := &Memory{maxRows: entries(15, rowBytes), maxSteps: l.Steps, fine: r.Fine, window: r.Window}
	m.total = table.NewSummary(r.Total, m.maxRows)
	m.timeline = table.NewTimeline(r.Fine, l.Steps, entries(35, rowBytes))
	m.samples = newSamples(r.Fine, l)
	m.codes = table.NewCodes(r.Window, maxWindows, entries(30, codeBytes))
	m.flows = table.NewFlowTotals(r.Total, entries(10, flowBytes))
	return m
}

// WriteBlock implements aggregate.Sink.
func (m *Memory) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	for _, sink := range []aggregate.Sink{m.total, m.timeline, m.codes, m.flows} {
		if err := sink.WriteBlock(ctx, b); err != nil {
			return err
		}
	}
	for _, s := range m.samples {
		if err := s.WriteBlock(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// Limited is what there was no room for, in words; empty if there was for everything.
func (m *Memory) Limited() []string {
	var list []string
	if m.total.Len() >= m.maxRows {
		list = append(list, "there was no memory for all cells and locations: the last ones are in one row, overflow")
	}
	if m.timeline.Full() {
		list = append(list, fmt.Sprintf("there was no memory for steps shorter than %s", m.timeline.Step()))
	}
	if m.codes.Full() {
		list = append(list, fmt.Sprintf("there was no memory for the distributions of windows shorter than %s", m.codes.Step()))
	}
	if n := m.codes.Overflow(); n > 0 {
		list = append(list, fmt.Sprintf("there was no memory for all codes: %d observations are in no cell's distribution", n))
	}
	if m.flows.Full() {
		list = append(list, "there was no memory for all flows: the last ones are among the others")
	}
	return list
}

// Wanted is the span that there would have been with memory enough.
func (m *Memory) Wanted() report.Span {
	first, last := m.timeline.Extent()
	return spanOf(first, last, table.StepFor(first, last, m.fine, m.maxSteps), table.StepFor(first, last, m.window, maxWindows))
}

func spanOf(first, last int64, step, window time.Duration) report.Span {
	return report.Span{First: first - first%int64(step), Last: last - last%int64(step), Step: step, Window: window}
}

// Signals implements report.Totals.
func (m *Memory) Signals(context.Context) ([]csig.Signal, error) { return m.total.Signals(), nil }

// Cells implements report.Totals.
func (m *Memory) Cells(_ context.Context, s csig.Signal) ([]aggregate.CellStats, error) {
	return m.total.Cells(s, nil), nil
}

// Locations implements report.Totals.
func (m *Memory) Locations(_ context.Context, s csig.Signal) ([]aggregate.LocationStats, error) {
	return m.total.Locations(s, nil), nil
}

// Span implements report.Steps.
func (m *Memory) Span() report.Span {
	first, last := m.timeline.Extent()
	return spanOf(first, last, m.timeline.Step(), m.codes.Step())
}

// chosen are the cells of the signal, each of the kind that it is made of.
func (m *Memory) chosen(s csig.Signal) map[aggregate.CellID]bool {
	chosen := map[aggregate.CellID]bool{}
	for _, c := range m.total.Cells(s, nil) {
		chosen[c.ID()] = true
	}
	return chosen
}

// LocationSteps implements report.Steps.
func (m *Memory) LocationSteps(_ context.Context, s csig.Signal, step time.Duration) ([]report.LocationStep, error) {
	chosen := m.chosen(s)
	type key struct {
		start    int64
		location aggregate.LocationID
	}
	heavy := map[key]uint64{}
	starts, steps := m.timeline.Steps()
	for _, at := range starts {
		steps[at].Each(s, func(c aggregate.CellID, l *aggregate.LocationStats) {
			if chosen[c] && l.Heavy > 0 {
				heavy[key{at - at%int64(step), l.Location}] += l.Heavy
			}
		})
	}
	list := make([]report.LocationStep, 0, len(heavy))
	for k, n := range heavy {
		list = append(list, report.LocationStep{Start: k.start, Location: k.location, Heavy: n})
	}
	return list, nil
}

// CellSteps implements report.Steps.
func (m *Memory) CellSteps(_ context.Context, s csig.Signal, cells []aggregate.CellID) ([][]report.CellStep, error) {
	index := indexOf(cells)
	lists := make([][]report.CellStep, len(cells))
	starts, steps := m.timeline.Steps()
	for _, at := range starts {
		steps[at].Each(s, func(c aggregate.CellID, l *aggregate.LocationStats) {
			i, ok := index[c]
			if !ok {
				return
			}
			if n := len(lists[i]); n == 0 || lists[i][n-1].Start != at {
				lists[i] = append(lists[i], report.CellStep{Start: at})
			}
			last := &lists[i][len(lists[i])-1]
			last.Observations, last.Heavy = last.Observations+l.Observations, last.Heavy+l.Heavy
		})
	}
	return lists, nil
}

func indexOf(cells []aggregate.CellID) map[aggregate.CellID]int {
	index := make(map[aggregate.CellID]int, len(cells))
	for i, c := range cells {
		index[c] = i
	}
	return index
}

// Codes implements report.Details.
func (m *Memory) Codes(_ context.Context, s csig.Signal, cells []aggregate.CellID) (all []table.CodeCount, of [][]table.CodeCount, err error) {
	chosen, index := m.chosen(s), indexOf(cells)
	sums := map[table.CodeCount]uint64{} // by what is no count
	of = make([][]table.CodeCount, len(cells))
	m.codes.Each(s, func(c aggregate.CellID, n table.CodeCount) {
		if !chosen[c] {
			return
		}
		sums[table.CodeCount{Encoding: n.Encoding, Code: n.Code}] += n.N
		if i, ok := index[c]; ok {
			of[i] = append(of[i], n)
		}
	})
	for k, n := range sums {
		k.N = n
		all = append(all, k)
	}
	return all, of, nil
}

// Flows implements report.Details.
func (m *Memory) Flows(_ context.Context, s csig.Signal) ([]report.FlowStats, error) {
	rows := m.flows.Flows(s)
	list := make([]report.FlowStats, len(rows))
	for i := range rows {
		f := &rows[i]
		list[i] = report.FlowStats{
			Flow: f.Flow, Cell: aggregate.CellID{Src: aggregate.GroupID(f.SrcGroup), Dst: aggregate.GroupID(f.DstGroup), Kind: decode.Kind(f.Kind)},
			Heavy: f.Heavy, Bytes: f.Bytes, Mean: float64(f.Sum) / float64(f.Measured) * s.Unit().PerStored(),
			Location: aggregate.LocationID(f.Location), LocationHeavy: f.LocationHeavy,
		}
	}
	return list, nil
}
