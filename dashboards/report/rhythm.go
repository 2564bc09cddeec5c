package report

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/pattern"
)

// maxRhythms is how many cells are looked at, those with most heavy observations.
const maxRhythms = 32

// Rhythm is how the congestion of a cell repeats, such as with the steps of a training job.
type Rhythm struct {
	Src       string  `json:"src"`
	Dst       string  `json:"dst"`
	PeriodNS  int64   `json:"period_ns"` // from the beginning of one step to that of the next
	Steps     int     `json:"steps"`
	Duty      float64 `json:"duty"` // share of the time that is congested
	IdleNS    int64   `json:"idle_ns"`
	Strength  float64 `json:"strength"`   // correlation with itself a period later
	Chance    float64 `json:"chance"`     // what chance would reach
	BehindNS  *int64  `json:"behind_ns"`  // later than the first cell of the same period; null for that one
	Straggles bool    `json:"straggles"`  // ends the steps of those with its period last
	LateNS    int64   `json:"late_ns"`    // by which it ends them after the others
	LateShare float64 `json:"late_share"` // of the steps

	series cellSeries
	rhythm *pattern.Rhythm // in windows of series
}

// cellSeries are the observations of a cell, step by step, and how many steps make a window.
type cellSeries struct {
	heavy, all []uint64
	step       time.Duration
	steps      int
}

// perWindow is how many observations a window has to have, where there are any: what is
// seen less often beats with the times of observations.
const perWindow = 12

// widen makes windows long enough.
func (s *cellSeries) widen() {
	var busy []uint64
	for _, n := range s.all {
		if n > 0 {
			busy = append(busy, n)
		}
	}
	if s.steps = 1; len(busy) > 0 {
		slices.Sort(busy)
		s.steps = int((perWindow + busy[len(busy)/2] - 1) / busy[len(busy)/2])
	}
}

// find is what repeats, nil where nothing does or the series is too short to tell. In windows
// that are too long for a period, several of them together repeat. So a period is looked for in
// shorter windows as well: one that is a part of it, and that the longer ones cannot show,
// takes its place, and its windows are the series'; where there is neither that nor the same
// one, a period of few windows is none.
func (s *cellSeries) find() *pattern.Rhythm {
	found, err := pattern.Find(s.shares(s.steps))
	if err != nil || found == nil || !s.dense(found.Period, s.steps) {
		return nil
	}
	long := s.steps
	sure := long == 1 || found.Period >= fewWindows
	for steps := long - 1; steps > 0; steps-- {
		shorter, err := pattern.Find(s.shares(steps))
		if err != nil || shorter == nil || !s.dense(shorter.Period, steps) {
			continue
		}
		ratio := found.Period * float64(s.steps) / (shorter.Period * float64(steps))
		whole := math.Round(ratio)
		if whole < 1 || math.Abs(ratio-whole) > min(sameMultiple*whole, offMultiple) {
			continue
		}
		sure = true
		if whole > 1 && shorter.Period*float64(steps) < fewWindows*float64(long) {
			found, s.steps = shorter, steps
		}
	}
	if !sure {
		return nil
	}
	return found
}

// dense tells whether there are enough observations in a period, so many windows of so many
// steps long, for it to be one of load: what comes less often shows when senders send.
func (s *cellSeries) dense(period float64, steps int) bool {
	var all uint64
	for _, n := range s.all {
		all += n
	}
	return float64(all)*period*float64(steps) >= perWindow*float64(len(s.all))
}

const (
	// sameMultiple is how far one period may be from a multiple of another, as a share of the
	// multiple, and offMultiple at most, as a share of the period: any is near some multiple.
	sameMultiple = 0.01
	offMultiple  = 0.1
	// fewWindows is how long a period has to be to be no mixture of a shorter one with
	// windows.
	fewWindows = 8
)

// shares are the heavy shares of windows of so many steps; a window in which nothing was
// observed is not congested.
func (s *cellSeries) shares(steps int) []float64 {
	out := make([]float64, 0, len(s.all)/steps+1)
	for i := 0; i < len(s.all); i += steps {
		var heavy, all uint64
		for k := i; k < min(i+steps, len(s.all)); k++ {
			heavy, all = heavy+s.heavy[k], all+s.all[k]
		}
		out = append(out, zero(float64(heavy)/float64(all)))
	}
	return out
}

// length is how long so many windows of so many steps are, in ns.
func (s *cellSeries) length(windows float64, steps int) int64 {
	return int64(windows * float64(s.step) * float64(steps))
}

// rhythms looks for periods in the heavy shares of the worst cells, step by step, and
// in cells with one period for who follows whom.
func (b *builder) rhythms(ctx context.Context, cells []aggregate.CellStats, worst []int) ([]Rhythm, error) {
	out := []Rhythm{}
	worst = worst[:min(len(worst), maxRhythms)]
	series, err := b.series(ctx, ids(cells, worst))
	if err != nil {
		return nil, err
	}
	for i, one := range series {
		one.widen()
		found := one.find()
		if found == nil {
			continue
		}
		c := &cells[worst[i]]
		out = append(out, Rhythm{
			Src: b.names.GroupName(c.Src), Dst: b.names.GroupName(c.Dst),
			PeriodNS: one.length(found.Period, one.steps), Steps: found.Steps, Duty: found.Duty, IdleNS: one.length(found.Idle, one.steps),
			Strength: found.Strength, Chance: found.Chance, series: one, rhythm: found,
		})
	}
	relate(out)
	return out, nil
}

// series are the observations of cells in each step.
func (b *builder) series(ctx context.Context, cells []aggregate.CellID) ([]cellSeries, error) {
	span := b.data.Span()
	if len(cells) == 0 || span.Step <= 0 {
		return nil, nil
	}
	lists, err := b.data.CellSteps(ctx, b.signal, cells)
	if err != nil {
		return nil, err
	}
	n := int((span.Last-span.First)/int64(span.Step)) + 1
	series := make([]cellSeries, len(cells))
	for i, steps := range lists {
		series[i] = cellSeries{heavy: make([]uint64, n), all: make([]uint64, n), step: span.Step}
		for _, at := range steps {
			if k := (at.Start - span.First) / int64(span.Step); k >= 0 && k < int64(n) {
				series[i].heavy[k], series[i].all[k] = at.Heavy, at.Observations
			}
		}
	}
	return series, nil
}

// samePeriod is how far periods of one job may be apart.
const samePeriod = 0.02

// relate tells, of cells with the period of the first one, who follows whom and who is
// late.
func relate(list []Rhythm) {
	if len(list) == 0 {
		return
	}
	first := &list[0]
	var job []*Rhythm
	width := 1 // of windows that all of them have
	for i := range list {
		if ratio := float64(list[i].PeriodNS) / float64(first.PeriodNS); ratio > 1-samePeriod && ratio < 1+samePeriod {
			job, width = append(job, &list[i]), max(width, list[i].series.steps)
		}
	}
	series := make([][]float64, len(job))
	for i, r := range job {
		series[i] = r.series.shares(width)
	}
	common, err := pattern.Find(series[0])
	if err != nil || common == nil {
		return // in windows of others, it does not show
	}
	for i, r := range job[1:] {
		if lag, err := pattern.Follow(series[0], series[i+1], common.Period); err == nil && lag != nil {
			behind := r.series.length(lag.Windows, width)
			r.BehindNS = &behind
		}
	}
	if late, err := pattern.Straggler(series, common); err == nil && late != nil {
		r := job[late.Series]
		r.Straggles, r.LateNS, r.LateShare = true, r.series.length(late.By, width), late.Share
	}
}
