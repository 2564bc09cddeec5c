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
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/decode/csig"
)

// maxRhythms is the maximum number of cells examined for periods, those with most heavy
// observations.
const maxRhythms = 32

// Periodicity describes the period of a cell's congestion, for example by the steps of a training job.
type Periodicity struct {
	Src      string  `json:"src"`
	Dst      string  `json:"dst"`
	PeriodNS int64   `json:"period_ns"` // from the start of one step to the start of the next
	Steps    int     `json:"steps"`     // observed steps; in a long capture, only those in its stretches
	Duty     float64 `json:"duty"`      // congested share of the time
	IdleNS   int64   `json:"idle_ns"`
	Strength float64 `json:"strength"` // autocorrelation after one period
	Chance   float64 `json:"chance"`   // correlation expected by chance
	// Significance is the probability, 0 to 1, that chance gives any cell of the report so strong a
	// period, for any signal and step length.
	Significance float64 `json:"significance"`
}

// rhythms searches the heavy shares of the worst cells for periods.
func (b *builder) rhythms(ctx context.Context, cells []aggregate.CellStats, worst []int, flows []FlowStats) ([]Periodicity, error) {
	out := []Periodicity{}
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
		out = append(out, Periodicity{
			Src: b.names.GroupName(c.Src), Dst: b.names.GroupName(c.Dst),
			PeriodNS: one.length(found.Period, one.steps), Steps: found.Steps, Duty: found.Duty, IdleNS: one.length(found.Idle, one.steps),
			Strength: found.Strength, Chance: found.Chance, Significance: min(found.Significance*tests, 1),
		})
	}
	return out, nil
}

// pairRates returns, by cell, the number of heavy observations of a typical pair of hosts per ns of
// the span: of the pair that the cell's median heavy observation belongs to.
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

// middle returns the number at which the running sum of ascending numbers reaches half of their
// total, or 0 without numbers.
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

// cellSeries holds the observations of a cell, step by step, over the whole time or in stretches of
// it. A window has the given number of steps.
type cellSeries struct {
	parts []cellPart
	step  time.Duration
	steps int

	pairRate float64 // heavy observations of a pair of hosts per ns; 0 if unknown
}

// cellPart is a stretch of time.
type cellPart struct{ heavy, all []uint64 }

// newPart returns the steps from first to last.
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

// scales returns the observations of cells at several step lengths: first the shortest, of which
// only some stretches are known, and last the one that covers the whole time.
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
			for _, s := range sample.Series {
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
	// fewPeriods is the minimum number of periods in a stretch for a measurement as accurate as
	// over the whole time.
	fewPeriods = 32
	// sameLength is the maximum relative difference between equal periods measured in stretches and
	// over the whole time.
	sameLength = 0.05
)

// findAmong returns the period of a cell and the series that shows it, or nil. The shortest steps
// have priority: in longer steps, a faster period appears as a slower one by aliasing. A period
// found only in longer steps must be long in these steps. If few periods fit into the stretches
// with the shortest steps, the same period is measured again over more time.
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

// few reports whether too few periods fit into the longest part for an accurate mean.
func (s *cellSeries) few(r *pattern.Periodicity) bool {
	return fewPeriods*r.Period > float64(s.windows())
}

func near(a, b int64) bool { return math.Abs(float64(a)/float64(b)-1) < sameLength }

// shares returns the heavy shares of windows of the given number of steps, part by part. A window
// without observations is not congested.
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
		out = append(out, query.ZeroNaN(float64(heavy)/float64(all)))
	}
	return out
}

// length returns the length of windows in ns.
func (s *cellSeries) length(windows float64, steps int) int64 {
	return int64(windows * float64(s.step) * float64(steps))
}

// leastPeriod is the minimum length of a detectable period in steps.
const leastPeriod = 2.5

// MissedPeriods describes the periods that may be missed. It is empty if the finest steps would not
// show more.
func MissedPeriods(ctx context.Context, data Steps, finest time.Duration) (string, error) {
	step := data.Span().Step
	if step <= finest {
		return "", nil
	}
	samples, err := data.Samples(ctx, 0, nil)
	if err != nil {
		return "", fmt.Errorf("find the periods that are missed: %w", err)
	}
	shortest := time.Duration(leastPeriod * float64(step))
	ways := "raise --max-steps, or read a part of the captures"
	if none := data.Unsampled(); len(none) > 0 {
		ways = fmt.Sprintf("there was not enough memory to look at parts of the time in steps of %s: raise --memory, or %s", none[0], ways)
	}
	if len(samples) == 0 || samples[0].Step >= step {
		return fmt.Sprintf("time steps are %s long: patterns that repeat faster than every %s are not found (%s)", step, shortest, ways), nil
	}
	var known time.Duration
	for _, s := range samples[0].Series {
		known += time.Duration(s.Last-s.First) + samples[0].Step
	}
	return fmt.Sprintf("time steps are %s long: patterns that repeat faster than every %s are looked for only in %d parts of the time, %s together (%s)",
		step, shortest, len(samples[0].Series), known.Round(time.Millisecond), ways), nil
}

// perWindow is the minimum number of observations that share a window with the median observation.
// Rarer observations beat with the windows. If nothing is observed for that long, nothing was sent.
const perWindow = 12

// widen lengthens windows until they are long enough, at most a quarter too long.
func (s *cellSeries) widen() {
	s.steps = 1
	for n := s.crowd(s.steps); n > 0 && n < perWindow && s.windows() >= pattern.MinWindows; n = s.crowd(s.steps) {
		enough := int((perWindow*uint64(s.steps) + n - 1) / n)
		s.steps = min(enough, s.steps+max(s.steps/4, 1))
	}
}

// crowd returns the median number of observations that share a window with an observation.
func (s *cellSeries) crowd(steps int) uint64 {
	return middle(s.busy(steps))
}

// sparse returns the window length, in steps, that has enough observations if each step has the
// median count of non-empty steps.
func (s *cellSeries) sparse() int {
	busy := s.busy(1)
	if len(busy) == 0 {
		return 1
	}
	n := busy[len(busy)/2]
	return int((perWindow + n - 1) / n)
}

// busy returns the observation counts of windows, ascending, without empty windows.
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

// counts returns the observation counts of windows of the given number of steps.
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

// windows returns the number of windows in the longest part.
func (s *cellSeries) windows() int {
	longest := 0
	for _, p := range s.parts {
		longest = max(longest, len(p.all)/s.steps)
	}
	return longest
}

// find returns the period, or nil if there is none or the series is too short. If windows with
// enough observations show none, shorter windows may, unless observations come at regular times:
// their own period, or its beat with the windows, would then be found instead.
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

// regular reports whether the observation times have a period, in windows of the series' length or
// shorter ones.
func (s *cellSeries) regular() bool {
	for _, steps := range append(shorterThan(s.steps), s.steps) {
		parts := make([][]float64, len(s.parts))
		for i := range s.parts {
			for _, n := range s.parts[i].counts(steps) {
				parts[i] = append(parts[i], float64(n))
			}
		}
		if found, err := pattern.Find(parts...); err != nil || found != nil {
			return true
		}
	}
	return false
}

// search returns the period in windows. If windows are too long for a period, several periods
// together repeat, so search tries shorter windows as well. A shorter period that divides the found
// one and that the long windows cannot show replaces it, and its windows become the series'
// windows. If shorter windows show neither such a period nor the same one, a period of few windows
// is rejected. A period is also rejected if it may be a beat with a stronger, shorter one that the
// long windows cannot show. Each pair of hosts must have ofPair heavy observations per period.
func (s *cellSeries) search(ofPair float64) *pattern.Periodicity {
	found, err := pattern.Find(s.shares(s.steps)...)
	if err != nil || found == nil || !s.dense(found.Period, s.steps, ofPair) {
		return nil
	}
	long := s.steps
	sure, confirmed := long == 1 || found.Period >= fewWindows, false
	for _, steps := range shorterThan(long) {
		shorter, err := pattern.Find(s.shares(steps)...)
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

// stands reports whether the periodic part of the shares' variance is more than twice the variance
// that this many observations have by chance. The order of connections can repeat as well, and
// connections differ in state.
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

// shorterThan returns the shorter window lengths to try, the longest first.
func shorterThan(long int) (list []int) {
	parts := min(long, perWindow)
	for k := parts - 1; k > 0; k-- {
		list = append(list, long*k/parts)
	}
	return list
}

// dense reports whether a period, given in windows of steps, has enough observations to be a period
// of load: of all pairs of hosts together and, as far as flows are known, of each pair. Rarer
// observations show when senders send and to whom. For example, probes that take turns meet a
// bottleneck whenever a pair behind it has its turn, however steady the bottleneck is.
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

// mayBeat reports whether the period may be a beat between probe turns and windows of similar
// length. Several windows fit into such a period.
func (s *cellSeries) mayBeat(r *pattern.Periodicity) bool {
	inWindow := s.pairRate * float64(s.length(1, s.steps))
	return s.steps > 1 && inWindow > beatsWith && inWindow*r.Period < manyOfPair
}

const (
	// perPair is the minimum number of heavy observations of a pair of hosts per period: more than
	// the single one in a turn of probes.
	perPair = 1.25
	// fewTurns is the maximum number of turns that may look like one period if a turn is not a
	// whole number of windows.
	fewTurns = 8
	// From beatsWith heavy observations of a pair per window on, their times may beat with the
	// windows; a beat has fewer than manyOfPair per period.
	beatsWith  = 0.2
	manyOfPair = 10
	// sameMultiple is the maximum distance of a period from a multiple of another one, as a share of
	// the multiple. offMultiple is the maximum as a share of the other period: without it, every
	// period would be near some large multiple.
	sameMultiple = 0.01
	offMultiple  = 0.1
	// fewWindows is the minimum length, in windows, of a period that cannot be an alias of a
	// shorter one.
	fewWindows = 8
)
