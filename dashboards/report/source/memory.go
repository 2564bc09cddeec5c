// Package source makes the report of captures: it reads them for their numbers, in memory of
// bounded size or in a store that it fills, which answer the same, and for what is wrong in them.
//
// It knows how much memory is for what, and how a report's numbers come about. It must never know
// how they are shown.
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
	pastBytes = 80 // of a cell and a window that it is judged by
)

// maxWindows is how many windows of distributions are told apart.
const maxWindows = 1024

// Memory adds up blocks in memory. It is a Sink and, once all blocks are written, a
// report.Data. Blocks may be written from several goroutines.
type Memory struct {
	total    *table.Table
	timeline *table.Table
	judged   *table.Judged
	places   *table.Table
	codes    *table.Distributions
	flows    *table.FlowTotals
	samples  []*table.SampledSeries // the shortest steps first
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

// NewMemory makes a Memory of blocks at the resolutions. Cells have their states by windows of
// Resolutions.Window and the thresholds.
func NewMemory(r Resolutions, t aggregate.Thresholds, l Limits) *Memory {
	entries := func(percent, bytes uint64) int { return int(max(l.Bytes/100*percent/bytes, 16)) }
	return &Memory{
		total:    table.New(table.Bounds{Resolution: r.Total, Rows: entries(15, rowBytes)}),
		timeline: table.New(table.Bounds{Resolution: r.Fine, Steps: l.Steps, Rows: entries(30, rowBytes)}),
		places:   table.New(table.Bounds{Resolution: r.Window, Steps: maxWindows, Rows: entries(10, rowBytes)}),
		judged:   table.NewJudged(t, r.Window, entries(5, pastBytes)),
		codes:    table.NewDistributions(r.Window, maxWindows, entries(20, codeBytes)),
		flows:    table.NewFlowTotals(r.Total, entries(10, flowBytes)),
		samples:  newSamples(r.Fine, l),
		maxSteps: l.Steps, fine: r.Fine, window: r.Window,
	}
}

// WriteBlock implements aggregate.Sink.
func (m *Memory) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	for _, sink := range []aggregate.Sink{m.total, m.timeline, m.places, m.judged, m.codes, m.flows} {
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
	if m.total.Full() {
		list = append(list, "there was no memory for all cells and locations: the last ones are in one row, overflow")
	}
	if m.timeline.Full() {
		list = append(list, fmt.Sprintf("there was no memory for steps shorter than %s", m.timeline.Step()))
	}
	if m.judged.Full() {
		list = append(list, "there was no memory for all windows that cells are judged by: the first ones are left out")
	}
	if m.places.Full() {
		list = append(list, fmt.Sprintf("there was no memory for windows of locations shorter than %s", m.places.Step()))
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
func (m *Memory) Signals(context.Context) ([]csig.Signal, error) {
	return m.total.Total().Signals(), nil
}

// Cells implements report.Totals.
func (m *Memory) Cells(_ context.Context, s csig.Signal) ([]aggregate.CellStats, error) {
	return m.judged.Judge(m.total.Total()).Cells(s, nil), nil
}

// Locations implements report.Totals.
func (m *Memory) Locations(_ context.Context, s csig.Signal) ([]aggregate.LocationStats, error) {
	return m.total.Total().Locations(s, nil), nil
}

// Places implements report.Totals.
func (m *Memory) Places(_ context.Context, s csig.Signal) ([]aggregate.CellLocation, error) {
	return m.total.Total().CellLocations(s), nil
}

// Span implements report.Steps.
func (m *Memory) Span() report.Span {
	first, last := m.timeline.Extent()
	return spanOf(first, last, m.timeline.Step(), m.codes.Step())
}

// chosen are the cells of the signal, each of the kind that it is made of.
func (m *Memory) chosen(s csig.Signal) map[aggregate.CellID]bool {
	chosen := map[aggregate.CellID]bool{}
	for _, c := range m.total.Total().Cells(s, nil) {
		chosen[c.ID()] = true
	}
	return chosen
}

// LocationSteps implements report.Steps.
func (m *Memory) LocationSteps(_ context.Context, s csig.Signal, step time.Duration) ([]aggregate.LocationWindow, error) {
	chosen := m.chosen(s)
	type key struct {
		start    int64
		location aggregate.LocationID
	}
	heavy := map[key]uint64{}
	for _, at := range m.timeline.Steps() {
		at.Each(s, func(c aggregate.CellID, l *aggregate.LocationStats) {
			if chosen[c] && l.Heavy > 0 {
				heavy[key{at.Start - at.Start%int64(step), l.Location}] += l.Heavy
			}
		})
	}
	list := make([]aggregate.LocationWindow, 0, len(heavy))
	for k, n := range heavy {
		list = append(list, aggregate.LocationWindow{Start: k.start, LocationStats: aggregate.LocationStats{Location: k.location, Heavy: n}})
	}
	return list, nil
}

// LocationWindows implements report.Steps.
func (m *Memory) LocationWindows(_ context.Context, s csig.Signal) ([]aggregate.LocationWindow, error) {
	chosen, window := m.chosen(s), int64(m.codes.Step())
	type key struct {
		start    int64
		location aggregate.LocationID
	}
	sums := map[key]*aggregate.LocationWindow{}
	for _, at := range m.places.Steps() {
		at.Each(s, func(c aggregate.CellID, l *aggregate.LocationStats) {
			if !chosen[c] {
				return
			}
			k := key{aligned(at.Start, time.Duration(window)), l.Location}
			if sums[k] == nil {
				sums[k] = &aggregate.LocationWindow{Start: k.start, LocationStats: aggregate.LocationStats{Location: l.Location}}
			}
			sums[k].Merge(l)
		})
	}
	list := make([]aggregate.LocationWindow, 0, len(sums))
	for _, w := range sums {
		list = append(list, *w)
	}
	return list, nil
}

// CellSteps implements report.Steps.
func (m *Memory) CellSteps(_ context.Context, s csig.Signal, cells []aggregate.CellID) ([][]report.CellStep, error) {
	index := indexOf(cells)
	lists := make([][]report.CellStep, len(cells))
	for _, at := range m.timeline.Steps() {
		at.Each(s, func(c aggregate.CellID, l *aggregate.LocationStats) {
			i, ok := index[c]
			if !ok {
				return
			}
			if n := len(lists[i]); n == 0 || lists[i][n-1].Start != at.Start {
				lists[i] = append(lists[i], report.CellStep{Start: at.Start})
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

// What is held of a capture that is too long to be known in its finest steps throughout:
// periods of few of these are found in stretches of them, longer ones in stretches of
// longer steps, and those that are longer yet in the timeline.
const (
	maxStretches = 4
	longerSteps  = 20 // times the finest
	samplesShare = 5  // percent of the memory, of each length of steps

	leastStretch = 128 // steps that are enough to find anything in
)

// newSamples are stretches that together are as many steps as the timeline has at most.
func newSamples(fine time.Duration, l Limits) (list []*table.SampledSeries) {
	if l.Steps/maxStretches < leastStretch {
		return nil
	}
	for _, step := range []time.Duration{fine, longerSteps * fine} {
		list = append(list, table.NewSampledSeries(fine, step, l.Steps/maxStretches, maxStretches, int(l.Bytes/100*samplesShare)))
	}
	return list
}

// samples are stretches of what was observed from first to last, Unix ns.
type samples struct {
	list        []*table.SampledSeries // the shortest steps first
	first, last int64
}

// Sampler knows the stretches of all blocks that are written, and holds nothing else of the
// Memory.
func (m *Memory) Sampler() report.Sampler {
	first, last := m.timeline.Extent()
	return &samples{m.samples, first, last}
}

// Samples implements report.Sampler.
func (m *Memory) Samples(ctx context.Context, signal csig.Signal, cells []aggregate.CellID) ([]report.Sample, error) {
	return m.Sampler().Samples(ctx, signal, cells)
}

// Unsampled implements report.Sampler.
func (m *Memory) Unsampled() []time.Duration { return m.Sampler().Unsampled() }

// Unsampled implements report.Sampler.
func (a *samples) Unsampled() (steps []time.Duration) {
	for _, s := range a.list {
		if s.Full() {
			steps = append(steps, s.Step())
		}
	}
	return steps
}

// Samples implements report.Sampler.
func (a *samples) Samples(_ context.Context, signal csig.Signal, cells []aggregate.CellID) ([]report.Sample, error) {
	var list []report.Sample
	for _, s := range a.list {
		one := report.Sample{Step: s.Step()}
		for _, start := range s.Starts() {
			stretch := report.Stretch{First: max(start, aligned(a.first, one.Step)), Last: min(start+int64(s.Length()), a.last+1) - 1}
			stretch.Last = aligned(stretch.Last, one.Step)
			for _, c := range cells {
				steps := s.Of(start, signal, c)
				of := make([]report.CellStep, len(steps))
				for i, n := range steps {
					of[i] = report.CellStep(n)
				}
				stretch.Cells = append(stretch.Cells, of)
			}
			one.Stretches = append(one.Stretches, stretch)
		}
		if len(one.Stretches) > 0 {
			list = append(list, one)
		}
	}
	return list, nil
}

// aligned is the start of the step that an instant is in.
func aligned(at int64, step time.Duration) int64 { return at - at%int64(step) }
