package pattern

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Bounds of a series.
const (
	// MinWindows is the least that a period can be found in.
	MinWindows = 32
	// MaxWindows bounds time and memory: some seconds and 100 MB for as many.
	MaxWindows = 1 << 20
)

// ErrLength says that a series is too short or too long.
var ErrLength = errors.New("expected 32 to 1048576 windows")

const (
	// falseAlarm is about how often aperiodic traffic may look periodic by chance.
	falseAlarm = 1e-3
	// fewest is how many periods have to fit into the series at least.
	fewest = 4
	// nearBest is the share of the highest peak that the first period's has to reach, so
	// that no multiple of it is taken for it.
	nearBest = 0.7
	// again is the share of its peak that twice the period has to reach.
	again = 0.35
	// onGrid is the multiple of a period that shows whether steps keep to a grid, and
	// stillThere the share of the first peak that it reaches then.
	onGrid     = 8
	stillThere = 0.8
	// farthest is at most how many periods the length of one is measured over.
	farthest = 64
)

// Rhythm is what repeats in a series. Times are in windows, and need not be whole.
type Rhythm struct {
	Period float64 // mean, from the beginning of a step to that of the next
	// Strength is the correlation of the series with itself a period later, above 0 and at
	// most about 1; Chance is what that would have to reach to be no chance.
	Strength, Chance float64
	// Significance is how likely an aperiodic series would have as strong a period by chance, at
	// any lag, 0 to 1. Whoever searches several multiplies it by their number (Bonferroni).
	Significance float64
	Steps        int     // that began in the series, the first one apart
	Duty         float64 // share of the time that is busy, 0 to 1
	Idle         float64 // how long it is quiet between steps, the median
}

// Find gives the rhythm of a series, the value of each window in order; NaN is unknown. It
// is nil where there is no period that is more than chance: at least 2 windows long, and
// as a rule eight times in the series. The error is ErrLength.
func Find(values []float64) (*Rhythm, error) { return FindIn([][]float64{values}) }

// FindIn is Find of a series of which parts are known, some time apart, in their order. A
// period has to fit into the longest of them as it has to into a series. The windows of all
// parts together are bounded as those of a series are, else the error is ErrLength.
func FindIn(parts [][]float64) (*Rhythm, error) {
	total, longest := 0, 0
	for _, p := range parts {
		total, longest = total+len(p), max(longest, len(p))
	}
	if longest < MinWindows || total > MaxWindows {
		return nil, fmt.Errorf("find period in %d windows: %w", total, ErrLength)
	}
	series := cutLike(ranked(slices.Concat(parts...)), parts)
	r := autocorrelate(series, longest/2)
	if r == nil {
		return nil, nil
	}
	by, peaks := newChance(r, series, longest/fewest)
	period, strength := fundamental(r, peaks, by.level())
	if period == 0 {
		return nil, nil
	}
	out := &Rhythm{Strength: strength, Chance: by.level(), Significance: by.of(strength)}
	steady := false
	out.Period, steady = lengthOf(r, period, out.Chance)
	out.measure(parts, !steady)
	return out, nil
}

// cutLike cuts a series into parts as long as others are.
func cutLike(series []float64, like [][]float64) [][]float64 {
	parts := make([][]float64, len(like))
	for i, p := range like {
		parts[i], series = series[:len(p)], series[len(p):]
	}
	return parts
}

// fundamental returns the lag of the first of the highest peaks of a series' autocorrelation, if
// it is above the level of chance; else 0.
func fundamental(r []float64, peaks []int, level float64) (period, strength float64) {
	best := 0.0
	for _, p := range peaks {
		best = max(best, r[p])
	}
	for _, p := range peaks {
		if r[p] < nearBest*best || r[p] < level {
			continue
		}
		center := centroid(r, float64(p), float64(p)/2)
		if twice := highest(r, 2*center, center/4); twice < 0 || r[twice] < again*r[p] {
			return 0, 0
		}
		return center, r[p]
	}
	return 0, 0
}

// chance is what the autocorrelation of aperiodic traffic comes to.
//
// It is 0 but for chance, with the variance that Bartlett (1946) gives it from the lags
// that it takes to fall off, the memory: the more is left there, the fewer independent
// values there are. How far it gets from 0 by chance is bounded by Bernstein's inequality,
// which knows that two rare bursts which happen to be so far apart are a large part of all.
type chance struct{ variance, term, lags float64 }

// newChance returns the chance of all lags up to most, and the peaks among them.
func newChance(r []float64, series [][]float64, most int) (c chance, peaks []int) {
	memory := 1
	for memory < len(r) && r[memory] > 0 {
		memory++
	}
	inflation := 1.0
	for _, v := range r[1:min(memory, len(r))] {
		inflation += 2 * v * v
	}
	var sum, largest float64
	total := 0
	for _, part := range series {
		sum, total = sum+power(part), total+len(part)
		for _, v := range part {
			largest = max(largest, v*v)
		}
	}
	n := float64(pairs(series, most))
	lags := max(float64(most)/float64(memory), 2)
	return chance{inflation / n, inflation * largest / sum * float64(total) / n, lags}, peaksOf(r[:most+1], memory)
}

// level is what the autocorrelation passes at none of the lags, but with the probability
// falseAlarm.
func (c *chance) level() float64 {
	odds := math.Log(c.lags / falseAlarm)
	return odds*c.term/3 + math.Sqrt(odds*c.term/3*odds*c.term/3+2*odds*c.variance)
}

// of returns the probability that it passes a level at any of the lags.
func (c *chance) of(level float64) float64 {
	return min(c.lags*math.Exp(-level*level/(2*(c.variance+level*c.term/3))), 1)
}

// peaksOf returns the highest lags of each stretch above 0, after the first.
func peaksOf(r []float64, memory int) (list []int) {
	for k := memory; k < len(r); k++ {
		if r[k] <= 0 {
			continue
		}
		top := k
		for ; k < len(r) && r[k] > 0; k++ {
			if r[k] > r[top] {
				top = k
			}
		}
		if top >= 2 && k < len(r) { // a stretch that goes on beyond may be higher there
			list = append(list, top)
		}
	}
	return list
}

// highest returns the highest lag within reach of a middle, -1 where that is out of range.
func highest(r []float64, middle, reach float64) int {
	low, high := int(math.Round(middle-reach)), int(math.Round(middle+reach))
	if low < 1 || high >= len(r) {
		return -1
	}
	top := low
	for k := low; k <= high; k++ {
		if r[k] > r[top] {
			top = k
		}
	}
	return top
}

// centroid returns the middle of the peak about a lag: the mean of the lags around it that are
// above half of its height over the lowest lag within reach, weighted by how much. What
// jitter does to a peak it does to both sides.
func centroid(r []float64, lag, reach float64) float64 {
	top := int(math.Round(lag))
	low, high := max(int(math.Floor(lag-reach)), 0), min(int(math.Ceil(lag+reach)), len(r)-1)
	lowest := r[top]
	for _, v := range r[low : high+1] {
		lowest = min(lowest, v)
	}
	half := (r[top] + lowest) / 2
	var sum, weighted float64
	add := func(k int) bool {
		w := r[k] - half
		if w <= 0 {
			return false
		}
		sum, weighted = sum+w, weighted+w*float64(k)
		return true
	}
	for k := top; k >= low && add(k); k-- {
	}
	for k := top + 1; k <= high && add(k); k++ {
	}
	if sum == 0 {
		return lag
	}
	return weighted / sum
}

// lengthOf measures a period at its multiples, as far as they stand out: each is as exact
// as the first, and measures several periods. It is steady where they stand out as the
// first does: steps that keep to a grid, however late each is, are still on it after many,
// while periods that wander blur.
func lengthOf(r []float64, period, level float64) (length float64, steady bool) {
	first := r[int(math.Round(period))]
	var times, lags float64
	length, steady = period, true
	for m := 1; m <= farthest; m++ {
		top := highest(r, float64(m)*length, length/4)
		if top < 0 || float64(top)+length/2 >= float64(len(r)) {
			break
		}
		if m <= onGrid {
			steady = r[top] >= stillThere*first
		}
		if r[top] < first/2 || r[top] < level {
			break
		}
		center := centroid(r, float64(top), length/2)
		times, lags = times+float64(m*m), lags+float64(m)*center
		length = lags / times
	}
	return length, steady
}
