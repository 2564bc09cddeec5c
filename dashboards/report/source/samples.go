package source

import (
	"context"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/decode/csig"
)

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
func newSamples(fine time.Duration, l Limits) (list []*table.Stretches) {
	if l.Steps/maxStretches < leastStretch {
		return nil
	}
	for _, step := range []time.Duration{fine, longerSteps * fine} {
		list = append(list, table.NewStretches(fine, step, l.Steps/maxStretches, maxStretches, int(l.Bytes/100*samplesShare)))
	}
	return list
}

// samples are stretches of what was observed from first to last, Unix ns.
type samples struct {
	list        []*table.Stretches // the shortest steps first
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
