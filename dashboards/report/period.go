package report

import (
	"math"
	"slices"

	"github.com/csigscope/csigscope/aggregate/pattern"
)

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
func (s *cellSeries) find() *pattern.Rhythm {
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
func (s *cellSeries) search(ofPair float64) *pattern.Rhythm {
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
func (s *cellSeries) stands(r *pattern.Rhythm) bool {
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
func (s *cellSeries) mayBeat(r *pattern.Rhythm) bool {
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
