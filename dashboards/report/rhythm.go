package report

import (
	"context"
	"maps"
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
	Steps     int     `json:"steps"`     // that were seen: of a long capture, in stretches of it
	Duty      float64 `json:"duty"`      // share of the time that is congested
	IdleNS    int64   `json:"idle_ns"`
	Strength  float64 `json:"strength"`   // correlation with itself a period later
	Chance    float64 `json:"chance"`     // what chance would reach
	BehindNS  *int64  `json:"behind_ns"`  // later than the first cell of the same period; null for that one
	Straggles bool    `json:"straggles"`  // ends the steps of those with its period last
	LateNS    int64   `json:"late_ns"`    // by which it ends them after the others
	LateShare float64 `json:"late_share"` // of the steps

	series cellSeries // that it was found in
}

// rhythms looks for periods in the heavy shares of the worst cells, step by step, and
// in cells with one period for who follows whom.
func (b *builder) rhythms(ctx context.Context, cells []aggregate.CellStats, worst []int, flows []FlowStats) ([]Rhythm, error) {
	out := []Rhythm{}
	worst = worst[:min(len(worst), maxRhythms)]
	scales, err := b.scales(ctx, ids(cells, worst))
	if err != nil {
		return nil, err
	}
	span := b.data.Span()
	rates := pairRates(flows, time.Duration(span.Last-span.First)+span.Step)
	for i, k := range worst {
		for _, scale := range scales {
			scale[i].pairRate = rates[cells[k].ID()]
		}
		one, found := findAmong(scales, i)
		if found == nil {
			continue
		}
		c := &cells[k]
		out = append(out, Rhythm{
			Src: b.names.GroupName(c.Src), Dst: b.names.GroupName(c.Dst),
			PeriodNS: one.length(found.Period, one.steps), Steps: found.Steps, Duty: found.Duty, IdleNS: one.length(found.Idle, one.steps),
			Strength: found.Strength, Chance: found.Chance, series: *one,
		})
	}
	relate(out)
	return out, nil
}

// pairRates are how many heavy observations of a pair of hosts there are in a ns of the span, by
// cell: those of the pair that half of the cell's are of, or of pairs that have as many.
func pairRates(flows []FlowStats, span time.Duration) map[aggregate.CellID]float64 {
	type pair struct{ src, dst [16]byte }
	of := map[aggregate.CellID]map[pair]uint64{}
	for i := range flows {
		f := &flows[i]
		if f.Heavy == 0 {
			continue
		}
		if of[f.Cell] == nil {
			of[f.Cell] = map[pair]uint64{}
		}
		of[f.Cell][pair{f.Src, f.Dst}] += f.Heavy
	}
	rates := make(map[aggregate.CellID]float64, len(of))
	for cell, pairs := range of {
		rates[cell] = float64(middle(slices.Sorted(maps.Values(pairs)))) / float64(span)
	}
	return rates
}

// middle is the number that half of the sum of ascending ones is reached with, 0 of none.
func middle(numbers []uint64) uint64 {
	var all, below uint64
	for _, n := range numbers {
		all += n
	}
	for _, n := range numbers {
		if below += n; 2*below >= all {
			return n
		}
	}
	return 0
}

// samePeriod is how far periods of one job may be apart.
const samePeriod = 0.02

// relate tells, of cells with the period of the first one, who follows whom and who is
// late. Stretches of time are put one behind the other for that: the steps at their seams
// are few.
func relate(list []Rhythm) {
	if len(list) == 0 {
		return
	}
	first := &list[0]
	var job []*Rhythm
	width := 1 // of windows that all of them have
	for i := range list {
		ratio := float64(list[i].PeriodNS) / float64(first.PeriodNS)
		if list[i].series.step == first.series.step && ratio > 1-samePeriod && ratio < 1+samePeriod {
			job, width = append(job, &list[i]), max(width, list[i].series.steps)
		}
	}
	series := make([][]float64, len(job))
	for i, r := range job {
		series[i] = slices.Concat(r.series.shares(width)...)
	}
	common, err := pattern.FindIn(first.series.shares(width))
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
