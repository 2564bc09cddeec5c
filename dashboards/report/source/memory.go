// Package source builds the report on captures. It reads them once for their numbers, in
// bounded memory, and once for findings. If the memory does not suffice, it reads them once more through a store, with
// the same results.
//
// It knows how a report's numbers are computed and how memory is divided. It must never know how
// they are shown.
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

// Size of one entry in bytes, including the empty slots of its map.
const (
	rowBytes  = 256 // a cell and location, in the total or in a step
	codeBytes = 120 // a cell, window and code
	flowBytes = 1024
	pastBytes = 80 // a cell and window of judged states
)

// maxWindows is the maximum number of distribution windows.
const maxWindows = 1024

// Memory aggregates blocks in memory. It is a Sink and, after all blocks are written, a
// report.Data. Blocks may be written from several goroutines.
type Memory struct {
	total     *table.Table
	timeline  *table.Table
	judged    *table.Judged
	locations *table.Table
	codes     *table.Distributions
	flows     *table.FlowTotals
	samples   []*table.SampledSeries // the shortest steps first
	maxSteps  int
	fine      time.Duration
	window    time.Duration // shortest window of distributions
}

// Limits bound a Memory.
type Limits struct {
	Bytes uint64 // of everything it holds, approximately
	Steps int    // of the timeline, at least 2
}

// Resolutions are the block resolutions that a Memory or the store of a Stored needs. Blocks must
// cover all cells.
type Resolutions struct {
	Fine   time.Duration // step: a divisor of Window, or Window itself
	Window time.Duration // window of distributions
	Total  time.Duration
}

// List returns each resolution once, ascending.
func (r Resolutions) List() []time.Duration {
	return slices.Compact([]time.Duration{r.Fine, r.Window, r.Total})
}

// NewMemory returns a Memory for blocks at these resolutions. Cell states follow from windows of
// Resolutions.Window and the thresholds.
func NewMemory(r Resolutions, t aggregate.Thresholds, l Limits) *Memory {
	entries := func(percent, bytes uint64) int { return int(max(l.Bytes/100*percent/bytes, 16)) }
	return &Memory{
		total:     table.New(table.Bounds{Resolution: r.Total, Rows: entries(15, rowBytes)}),
		timeline:  table.New(table.Bounds{Resolution: r.Fine, Steps: l.Steps, Rows: entries(30, rowBytes)}),
		locations: table.New(table.Bounds{Resolution: r.Window, Steps: maxWindows, Rows: entries(10, rowBytes)}),
		judged:    table.NewJudged(t, r.Window, entries(5, pastBytes)),
		codes:     table.NewDistributions(r.Window, maxWindows, entries(20, codeBytes)),
		flows:     table.NewFlowTotals(r.Total, entries(10, flowBytes)),
		samples:   newSamples(r.Fine, l),
		maxSteps:  l.Steps, fine: r.Fine, window: r.Window,
	}
}

// WriteBlock implements aggregate.Sink.
func (m *Memory) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	for _, sink := range []aggregate.Sink{m.total, m.timeline, m.locations, m.judged, m.codes, m.flows} {
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

// Limited lists, in words, the data that exceeded the memory; it is empty if everything fit.
func (m *Memory) Limited() []string {
	var list []string
	if m.total.Full() {
		list = append(list, "there was no memory for all cells and locations: the last ones are in one row, overflow")
	}
	if m.timeline.Full() {
		list = append(list, fmt.Sprintf("there was no memory for steps shorter than %s", m.timeline.Step()))
	}
	if m.judged.Full() {
		list = append(list, "there was no memory for all windows by which cells are judged: the first ones are left out")
	}
	if m.locations.Full() {
		list = append(list, fmt.Sprintf("there was no memory for windows of locations shorter than %s", m.locations.Step()))
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

// Wanted returns the span as it would be with enough memory.
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

// CellLocations implements report.Totals.
func (m *Memory) CellLocations(_ context.Context, s csig.Signal) ([]aggregate.CellLocation, error) {
	return m.total.Total().CellLocations(s), nil
}

// Span implements report.Steps.
func (m *Memory) Span() report.Span {
	first, last := m.timeline.Extent()
	return spanOf(first, last, m.timeline.Step(), m.codes.Step())
}

// chosen returns the signal's cells, each with the kind (tags or reflections) that it consists of.
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
	for _, at := range m.locations.Steps() {
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

// Distributions implements report.Details.
func (m *Memory) Distributions(_ context.Context, s csig.Signal, cells []aggregate.CellID) (all []table.CodeCount, of [][]table.CodeCount, err error) {
	chosen, index := m.chosen(s), indexOf(cells)
	sums := map[table.CodeCount]uint64{} // keyed by code, with N 0
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

// Samples of a capture that is too long for the finest steps throughout. Short periods are found in
// stretches of the finest steps, longer ones in stretches of longer steps, and the longest in the
// timeline.
const (
	maxStretches = 4
	longerSteps  = 20 // times the finest step
	samplesShare = 5  // percent of the memory for each step length

	leastStretch = 128 // minimum number of steps in a useful stretch
)

// newSamples returns series whose stretches together have as many steps as the timeline's maximum.
func newSamples(fine time.Duration, l Limits) (list []*table.SampledSeries) {
	if l.Steps/maxStretches < leastStretch {
		return nil
	}
	for _, step := range []time.Duration{fine, longerSteps * fine} {
		list = append(list, table.NewSampledSeries(fine, step, l.Steps/maxStretches, maxStretches, int(l.Bytes/100*samplesShare)))
	}
	return list
}

// samples holds stretches of the time from first to last, Unix ns.
type samples struct {
	list        []*table.SampledSeries // the shortest steps first
	first, last int64
}

// Sampler returns the sampled stretches of time, after all blocks are written. It keeps no other part
// of the Memory alive.
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
			stretch := report.SampledSeries{First: max(start, aligned(a.first, one.Step)), Last: min(start+int64(s.Length()), a.last+1) - 1}
			stretch.Last = aligned(stretch.Last, one.Step)
			for _, c := range cells {
				steps := s.Of(start, signal, c)
				of := make([]report.CellStep, len(steps))
				for i, n := range steps {
					of[i] = report.CellStep(n)
				}
				stretch.Cells = append(stretch.Cells, of)
			}
			one.Series = append(one.Series, stretch)
		}
		if len(one.Series) > 0 {
			list = append(list, one)
		}
	}
	return list, nil
}

// aligned returns the start of the step that contains an instant.
func aligned(at int64, step time.Duration) int64 { return at - at%int64(step) }
