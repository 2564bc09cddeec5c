package report

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/pattern"
)

// cellSeries are the observations of a cell, step by step, in all of the time or in some
// stretches of it, and how many steps make a window.
type cellSeries struct {
	parts []cellPart
	step  time.Duration
	steps int

	pairRate float64 // heavy observations of a pair of hosts in a ns, 0 if that is not known
}

// cellPart is a stretch of time.
type cellPart struct{ heavy, all []uint64 }

// newPart has the steps from the first to the last one.
func newPart(first, last int64, step time.Duration, steps []CellStep) cellPart {
	n := int((last-first)/int64(step)) + 1
	p := cellPart{make([]uint64, n), make([]uint64, n)}
	for _, at := range steps {
		if k := (at.Start - first) / int64(step); k >= 0 && k < int64(n) {
			p.heavy[k], p.all[k] = at.Heavy, at.Observations
		}
	}
	return p
}

// scales are the observations of cells, first in the shortest steps, of which only some
// stretches are known, and last over all of the time.
func (b *builder) scales(ctx context.Context, cells []aggregate.CellID) ([][]cellSeries, error) {
	span := b.data.Span()
	if len(cells) == 0 || span.Step <= 0 {
		return nil, nil
	}
	samples, err := b.data.Samples(ctx, b.signal, cells)
	if err != nil {
		return nil, err
	}
	var scales [][]cellSeries
	for _, sample := range samples {
		if sample.Step >= span.Step {
			continue
		}
		series := make([]cellSeries, len(cells))
		for i := range series {
			series[i].step = sample.Step
			for _, s := range sample.Stretches {
				series[i].parts = append(series[i].parts, newPart(s.First, s.Last, sample.Step, s.Cells[i]))
			}
		}
		scales = append(scales, series)
	}
	lists, err := b.data.CellSteps(ctx, b.signal, cells)
	if err != nil {
		return nil, err
	}
	series := make([]cellSeries, len(cells))
	for i, steps := range lists {
		series[i] = cellSeries{parts: []cellPart{newPart(span.First, span.Last, span.Step, steps)}, step: span.Step}
	}
	return append(scales, series), nil
}

const (
	// fewPeriods is how many periods have to fit into a stretch at least to be measured as
	// well in stretches as over all of the time.
	fewPeriods = 32
	// sameLength is how far what is measured in stretches and over all of the time may be
	// apart, as a share, to be the same.
	sameLength = 0.05
)

// findAmong is what repeats in a cell, and the series that shows it, nil where nothing does.
// The shortest steps are asked first: in longer ones, what is faster than these repeats as
// well, but more slowly, as a wheel does on film. What only longer ones show has to be long
// in them. The one in the shortest steps is measured over more time where few periods fit
// into the stretches that are known in these.
func findAmong(scales [][]cellSeries, cell int) (*cellSeries, *pattern.Rhythm) {
	var in *cellSeries
	var best *pattern.Rhythm
	for i := range scales {
		s := &scales[i][cell]
		found := s.find()
		switch {
		case found == nil || i > 0 && found.Period < fewWindows:
		case best == nil, in.few(best) && near(in.length(best.Period, in.steps), s.length(found.Period, s.steps)):
			in, best = s, found
		}
	}
	return in, best
}

// few tells whether so few periods fit into the longest part that their mean is not exact.
func (s *cellSeries) few(r *pattern.Rhythm) bool {
	return fewPeriods*r.Period > float64(s.windows())
}

func near(a, b int64) bool { return math.Abs(float64(a)/float64(b)-1) < sameLength }

// shares are the heavy shares of windows of so many steps, part by part; a window in which
// nothing was observed is not congested.
func (s *cellSeries) shares(steps int) [][]float64 {
	parts := make([][]float64, len(s.parts))
	for i, p := range s.parts {
		parts[i] = p.shares(steps)
	}
	return parts
}

func (p *cellPart) shares(steps int) []float64 {
	out := make([]float64, 0, len(p.all)/steps+1)
	for i := 0; i < len(p.all); i += steps {
		var heavy, all uint64
		for k := i; k < min(i+steps, len(p.all)); k++ {
			heavy, all = heavy+p.heavy[k], all+p.all[k]
		}
		out = append(out, zero(float64(heavy)/float64(all)))
	}
	return out
}

// length is how long so many windows of so many steps are, in ns.
func (s *cellSeries) length(windows float64, steps int) int64 {
	return int64(windows * float64(s.step) * float64(steps))
}

// leastPeriod is how many steps a period has to have at least to be found.
const leastPeriod = 2.5

// Missed says which periods may be missed, empty where that is none that the finest steps
// would show.
func Missed(ctx context.Context, data Steps, finest time.Duration) (string, error) {
	step := data.Span().Step
	if step <= finest {
		return "", nil
	}
	samples, err := data.Samples(ctx, 0, nil)
	if err != nil {
		return "", fmt.Errorf("tell which periods are missed: %w", err)
	}
	shortest := time.Duration(leastPeriod * float64(step))
	ways := "--steps, or a part of the captures"
	if none := data.Unsampled(); len(none) > 0 {
		ways = fmt.Sprintf("there was no memory for stretches in steps of %s: --memory, %s", none[0], ways)
	}
	if len(samples) == 0 || samples[0].Step >= step {
		return fmt.Sprintf("steps of time are of %s: what repeats faster than every %s is not found (%s)", step, shortest, ways), nil
	}
	var known time.Duration
	for _, s := range samples[0].Stretches {
		known += time.Duration(s.Last-s.First) + samples[0].Step
	}
	return fmt.Sprintf("steps of time are of %s: what repeats faster than every %s is looked for in %d stretches alone, %s together (%s)",
		step, shortest, len(samples[0].Stretches), known.Round(time.Millisecond), ways), nil
}
