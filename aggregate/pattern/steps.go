package pattern

import (
	"math"
	"slices"
)

// pause is the share of a period below which quiet time is part of a step.
const pause = 0.1

// smooth is the share of a period over which windows are averaged, so that a single outlier is no
// step.
const smooth = 0.05

// averaged returns the means of the known values over width windows around each; width is odd. NaN
// if none is known.
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

// threshold returns the middle between the limit of the quietest tenth and the limit of the busiest
// tenth of the known windows.
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

// run is a stretch of busy windows: from the first to after the last.
type run struct{ from, to int }

// stepsOf returns the busy stretches of each part of a series, joined if less than a pause is
// between them. An unknown window counts as the previous one.
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

// busyRuns returns the stretches above a level, joined if less than short is between them.
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

// measure counts steps, and measures them and the quiet time between them. It leaves out a step at
// the start of a part, which is cut. If periods wander, count corrects the period.
func (r *Periodicity) measure(parts [][]float64, wanders bool) {
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

// Where steps stand out, they are counted: the approximate period shows missing steps and steps
// split in two.
const (
	leastCounted = 8    // steps
	clear        = 0.25 // of a period: largest deviation of intervals from whole periods
	mostClear    = 0.9  // share of the intervals that must be within it
)

// count corrects the period to the mean of the clear intervals: the autocorrelation covers only few
// of the periods that wander.
func (r *Periodicity) count(lists [][]run) {
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
