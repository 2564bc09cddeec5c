package report

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/pattern"
	"github.com/csigscope/csigscope/decode/csig"
)

// maxRhythms is how many cells are looked at, those with most heavy observations.
const maxRhythms = 32

// Rhythm is how the congestion of a cell repeats, such as with the steps of a training job.
type Rhythm struct {
	Src      string  `json:"src"`
	Dst      string  `json:"dst"`
	PeriodNS int64   `json:"period_ns"` // from the beginning of one step to that of the next
	Steps    int     `json:"steps"`     // that were seen: of a long capture, in stretches of it
	Duty     float64 `json:"duty"`      // share of the time that is congested
	IdleNS   int64   `json:"idle_ns"`
	Strength float64 `json:"strength"` // correlation with itself a period later
	Chance   float64 `json:"chance"`   // what chance would reach
	// Significance is how likely any cell of the report would have as strong a period by chance,
	// for any signal and in steps of any length, 0 to 1.
	Significance float64 `json:"significance"`
}

// rhythms looks for periods in the heavy shares of the worst cells, step by step.
func (b *builder) rhythms(ctx context.Context, cells []aggregate.CellStats, worst []int, flows []FlowStats) ([]Rhythm, error) {
	out := []Rhythm{}
	worst = worst[:min(len(worst), maxRhythms)]
	scales, err := b.scales(ctx, ids(cells, worst))
	if err != nil {
		return nil, err
	}
	span := b.data.Span()
	rates := pairRates(flows, time.Duration(span.Last-span.First)+span.Step)
	tests := float64(len(worst) * len(scales) * csig.NumKnown)
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
			Strength: found.Strength, Chance: found.Chance, Significance: min(found.Significance*tests, 1),
		})
	}
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
func findAmong(scales [][]cellSeries, cell int) (*cellSeries, *pattern.Periodicity) {
	var in *cellSeries
	var best *pattern.Periodicity
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
func (s *cellSeries) few(r *pattern.Periodicity) bool {
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
	ways := "--max-steps, or a part of the captures"
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

// perWindow is how many observations the window of an observation has to have, half of the
// time: what is seen less often beats with the times of observations, and where nothing is seen
// for as long as that, nothing was sent.
const perWindow = 12

// widen makes windows long enough, by a quarter too long at most.
func (s *cellSeries) widen() {
	s.steps = 1
	for n := s.crowd(s.steps); n > 0 && n < perWindow && s.windows() >= pattern.MinWindows; n = s.crowd(s.steps) {
		enough := int((perWindow*uint64(s.steps) + n - 1) / n)
		s.steps = min(enough, s.steps+max(s.steps/4, 1))
	}
}

// crowd is how many observations share a window with one, the median of all of them.
func (s *cellSeries) crowd(steps int) uint64 {
	return middle(s.busy(steps))
}

// sparse is how many steps have enough observations as far as they have any in each.
func (s *cellSeries) sparse() int {
	busy := s.busy(1)
	if len(busy) == 0 {
		return 1
	}
	n := busy[len(busy)/2]
	return int((perWindow + n - 1) / n)
}

// busy is how many observations windows have, ascending, those without any left out.
func (s *cellSeries) busy(steps int) (counts []uint64) {
	for i := range s.parts {
		counts = append(counts, s.parts[i].counts(steps)...)
	}
	slices.Sort(counts)
	for len(counts) > 0 && counts[0] == 0 {
		counts = counts[1:]
	}
	return counts
}

// counts are how many observations windows of so many steps have.
func (p *cellPart) counts(steps int) []uint64 {
	out := make([]uint64, 0, len(p.all)/steps+1)
	for in := range slices.Chunk(p.all, steps) {
		var n uint64
		for _, one := range in {
			n += one
		}
		out = append(out, n)
	}
	return out
}

// windows is how many the longest part has.
func (s *cellSeries) windows() int {
	longest := 0
	for _, p := range s.parts {
		longest = max(longest, len(p.all)/s.steps)
	}
	return longest
}

// find is what repeats, nil where nothing does or the series is too short to tell. Where no
// windows of enough observations show it, shorter ones may, unless observations come at regular
// times: then it would be these, or what they make together with windows.
func (s *cellSeries) find() *pattern.Periodicity {
	s.widen()
	long := s.steps
	if found := s.search(perPair); found != nil && s.stands(found) {
		return found
	}
	s.steps = s.sparse()
	if s.steps >= long || s.regular() {
		return nil
	}
	return s.search(perWindow)
}

// regular tells whether the times of observations repeat, in windows of the series' length or
// shorter ones.
func (s *cellSeries) regular() bool {
	for _, steps := range append(shorterThan(s.steps), s.steps) {
		parts := make([][]float64, len(s.parts))
		for i := range s.parts {
			for _, n := range s.parts[i].counts(steps) {
				parts[i] = append(parts[i], float64(n))
			}
		}
		if found, err := pattern.FindIn(parts); err != nil || found != nil {
			return true
		}
	}
	return false
}

// search is what repeats in windows. In those that are too long for a period, several of them
// together repeat. So a period is looked for in shorter windows as well: one that is a part of
// it, and that the longer ones cannot show, takes its place, and its windows are the series';
// where there is neither that nor the same one, a period of few windows is none. Nor is one
// that beats with something shorter, which is stronger, and which windows long enough cannot
// show. There are to be so many heavy observations of each pair of hosts in a period.
func (s *cellSeries) search(ofPair float64) *pattern.Periodicity {
	found, err := pattern.FindIn(s.shares(s.steps))
	if err != nil || found == nil || !s.dense(found.Period, s.steps, ofPair) {
		return nil
	}
	long := s.steps
	sure, confirmed := long == 1 || found.Period >= fewWindows, false
	for _, steps := range shorterThan(long) {
		shorter, err := pattern.FindIn(s.shares(steps))
		if err != nil || shorter == nil {
			continue
		}
		ratio := found.Period * float64(s.steps) / (shorter.Period * float64(steps))
		whole := math.Round(ratio)
		same := whole >= 1 && math.Abs(ratio-whole) <= min(sameMultiple*whole, offMultiple)
		hidden := shorter.Period*float64(steps) < fewWindows*float64(long)
		switch dense := s.dense(shorter.Period, steps, ofPair); {
		case same && dense:
			confirmed = true
			if whole > 1 && hidden {
				found, s.steps = shorter, steps
			}
		case same && whole <= fewTurns:
			return nil
		case dense && hidden && shorter.Strength > found.Strength:
			sure = false
		}
	}
	if !sure && !confirmed || s.mayBeat(found) {
		return nil
	}
	return found
}

// stands tells whether the part of the shares' variance that repeats is more than twice what as
// many observations have by chance: which connections they are of repeats as well, and the
// states of these differ.
func (s *cellSeries) stands(r *pattern.Periodicity) bool {
	var n, sum, squares float64
	for _, shares := range s.shares(s.steps) {
		for _, v := range shares {
			n, sum, squares = n+1, sum+v, squares+v*v
		}
	}
	mean := sum / n
	return r.Strength*(squares/n-mean*mean)*float64(s.crowd(s.steps)) >= 2*mean*(1-mean)
}

// shorterThan are the lengths of windows that are tried beside long ones, the longest first.
func shorterThan(long int) (list []int) {
	parts := min(long, perWindow)
	for k := parts - 1; k > 0; k-- {
		list = append(list, long*k/parts)
	}
	return list
}

// dense tells whether there are enough observations in a period, so many windows of so many
// steps long, for it to be one of load: of all pairs of hosts together and, as far as flows are
// known, of each. What comes less often shows when senders send, and to whom: probes that take
// turns meet a bottleneck whenever it is the turn of a pair behind it, however steady that is.
func (s *cellSeries) dense(period float64, steps int, ofPair float64) bool {
	var all uint64
	known := 0
	for _, p := range s.parts {
		known += len(p.all)
		for _, n := range p.all {
			all += n
		}
	}
	return float64(all)*period*float64(steps) >= perWindow*float64(known) &&
		(s.pairRate == 0 || s.pairRate*float64(s.length(period, steps)) >= ofPair)
}

// mayBeat tells whether a period may be what turns of probes make together with windows that
// are about as long, of which several fit into it.
func (s *cellSeries) mayBeat(r *pattern.Periodicity) bool {
	inWindow := s.pairRate * float64(s.length(1, s.steps))
	return s.steps > 1 && inWindow > beatsWith && inWindow*r.Period < manyOfPair
}

const (
	// perPair is how many heavy observations of a pair of hosts there have to be in a period:
	// more than one, which a turn of probes has.
	perPair = 1.25
	// fewTurns is how many turns may be taken for a period, where one is no whole number of
	// windows.
	fewTurns = 8
	// beatsWith is how many heavy observations of a pair in a window are so many that their
	// times may beat with windows, and manyOfPair more than beats have.
	beatsWith  = 0.2
	manyOfPair = 10
	// sameMultiple is how far one period may be from a multiple of another, as a share of the
	// multiple, and offMultiple at most, as a share of the period: any is near some multiple.
	sameMultiple = 0.01
	offMultiple  = 0.1
	// fewWindows is how long a period has to be to be no mixture of a shorter one with
	// windows.
	fewWindows = 8
)
