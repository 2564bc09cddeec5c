package pattern

import (
	"math"
	"slices"
)

// pause is the share of a period below which quiet is part of a step.
const pause = 0.1

// smooth is the share of a period that windows are averaged over, so that one that sticks
// out is no step.
const smooth = 0.05

// averaged are means over width windows about each, which is odd, of those that are known;
// NaN where none is.
func averaged(values []float64, width int) []float64 {
	out := make([]float64, len(values))
	sum, known := 0.0, 0
	take := func(i, sign int) {
		if i >= 0 && i < len(values) && !math.IsNaN(values[i]) {
			sum, known = sum+float64(sign)*values[i], known+sign
		}
	}
	reach := width / 2
	for i := range reach {
		take(i, 1)
	}
	for i := range out {
		take(i+reach, 1)
		take(i-reach-1, -1)
		out[i] = math.NaN()
		if known > 0 {
			out[i] = sum / float64(known)
		}
	}
	return out
}

// threshold is half of the way from what the quietest tenth of the known windows does not
// exceed to what the busiest tenth reaches.
func threshold(parts [][]float64) float64 {
	var known []float64
	for _, values := range parts {
		for _, v := range values {
			if !math.IsNaN(v) {
				known = append(known, v)
			}
		}
	}
	if len(known) == 0 {
		return 0
	}
	slices.Sort(known)
	return (known[len(known)/10] + known[len(known)-1-len(known)/10]) / 2
}

// run is a stretch of busy windows: from the first to behind the last.
type run struct{ from, to int }

// stepsOf returns the busy stretches of each part of a series, those together that less than a
// pause is between. An unknown window is as the one before.
func stepsOf(parts [][]float64, period float64) [][]run {
	smoothed := make([][]float64, len(parts))
	for i, values := range parts {
		smoothed[i] = averaged(values, int(smooth*period)/2*2+1)
	}
	half := threshold(smoothed)
	lists := make([][]run, len(parts))
	for i, values := range smoothed {
		lists[i] = busyRuns(values, half, int(math.Max(pause*period, 1)))
	}
	return lists
}

// busyRuns returns the stretches above a level, those together that less than short is between.
func busyRuns(values []float64, level float64, short int) (list []run) {
	busy := false
	for i, v := range values {
		if !math.IsNaN(v) {
			busy = v > level
		}
		if !busy {
			continue
		}
		if last := len(list) - 1; last >= 0 && i-list[last].to < short {
			list[last].to = i + 1
		} else {
			list = append(list, run{i, i + 1})
		}
	}
	return list
}

// measure counts steps, and how long they and the quiet between them take. The step that
// a part begins in is left out, since it is cut. Periods that wander are counted.
func (r *Rhythm) measure(parts [][]float64, wanders bool) {
	var idle []float64
	quiet, whole := 0, 0
	lists := stepsOf(parts, r.Period)
	for i, list := range lists {
		if len(list) > 0 && list[0].from == 0 {
			list = list[1:]
			lists[i] = list
		}
		if len(list) == 0 {
			continue
		}
		for k := range list[1:] {
			gap := list[k+1].from - list[k].to
			idle = append(idle, float64(gap))
			quiet += gap
		}
		whole += list[len(list)-1].from - list[0].from
	}
	if len(idle) == 0 {
		return
	}
	r.Steps = len(idle)
	if wanders {
		r.count(lists)
	}
	r.Duty = 1 - float64(quiet)/float64(whole)
	r.Idle = median(idle)
}

// Where steps stand out, they are counted: misses and steps in two are told by the period
// that is known nearly.
const (
	leastCounted = 8    // steps
	clear        = 0.25 // of a period: how far intervals are from whole periods at most
	mostClear    = 0.9  // share of the intervals that have to be so
)

// count corrects the period to the mean of those that are clear: the autocorrelation sees
// few of periods that wander.
func (r *Rhythm) count(lists [][]run) {
	var windows, periods float64
	good := 0
	for _, list := range lists {
		for i := 1; i < len(list); i++ {
			length := float64(list[i].from - list[i-1].from)
			whole := math.Round(length / r.Period)
			if whole > 0 && math.Abs(length/r.Period-whole) <= clear {
				windows, periods, good = windows+length, periods+whole, good+1
			}
		}
	}
	if good >= leastCounted && float64(good) >= mostClear*float64(r.Steps) {
		r.Period = windows / periods
	}
}

// median sorts the list, which must not be empty.
func median(list []float64) float64 {
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}
