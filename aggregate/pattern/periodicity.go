package pattern

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Bounds of a series.
const (
	// MinWindows is the least number of windows for finding a period.
	MinWindows = 32
	// MaxWindows bounds time and memory: that many take some seconds and 100 MB.
	MaxWindows = 1 << 20
)

// ErrLength says that a series is too short or too long.
var ErrLength = errors.New("expected 32 to 1048576 windows")

const (
	// falseAlarm is the approximate probability that aperiodic traffic looks periodic by chance.
	falseAlarm = 1e-3
	// fewest is the least number of periods in the series.
	fewest = 4
	// nearBest is the share of the highest peak that the first period's peak has to reach, so that
	// a multiple of it does not replace it.
	nearBest = 0.7
	// again is the share of its peak that the peak at twice the period has to reach.
	again = 0.35
	// onGrid is the multiple of a period that shows whether steps keep to a grid; then its peak
	// reaches the share stillThere of the first.
	onGrid     = 8
	stillThere = 0.8
	// farthest is the largest multiple at which a period's length is measured.
	farthest = 64
)

// Periodicity is the periodicity of a series. Times are in windows, and need not be whole.
type Periodicity struct {
	Period float64 // mean, from the start of a step to the start of the next
	// Strength is the correlation of the series with itself a period later, above 0 and at most
	// about 1; Chance is the Strength above which it is not chance.
	Strength, Chance float64
	// Significance is the probability that an aperiodic series has as strong a period by chance, at
	// any lag, 0 to 1. A search over several series multiplies it by their number (Bonferroni).
	Significance float64
	Steps        int     // that began in the series, without the first one
	Duty         float64 // share of the time that is busy, 0 to 1
	Idle         float64 // median quiet time between steps
}

// Find returns the periodicity of a series, given as its known parts in order, with gaps between
// them: the value of each window; NaN is unknown. It returns nil if no period stands out from
// chance: a period has at least 2 windows, and usually has to occur eight times in the longest part.
// ErrLength is the error for a longest part of fewer than MinWindows, and for more than MaxWindows
// in all.
func Find(parts ...[]float64) (*Periodicity, error) {
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
	out := &Periodicity{Strength: strength, Chance: by.level(), Significance: by.of(strength)}
	steady := false
	out.Period, steady = lengthOf(r, period, out.Chance)
	out.measure(parts, !steady)
	return out, nil
}

// cutLike cuts a series into parts of the same lengths as the given ones.
func cutLike(series []float64, like [][]float64) [][]float64 {
	parts := make([][]float64, len(like))
	for i, p := range like {
		parts[i], series = series[:len(p)], series[len(p):]
	}
	return parts
}

// fundamental returns the lag of the first of the highest peaks of a series' autocorrelation, if it
// is above the level of chance; else 0.
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

// chance describes the autocorrelation of aperiodic traffic.
//
// Its mean is 0, with the variance by Bartlett (1946), from the lags over which it falls off, the
// memory: the more correlation is left there, the fewer independent values there are. Bernstein's
// inequality bounds its deviations, and takes into account that two rare bursts at that distance by
// chance are a large part of the sum.
type chance struct{ variance, term, lags float64 }

// newChance returns the chance model of all lags up to most, and the peaks among them.
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

// level returns the value that the autocorrelation exceeds at any of the lags with only the
// probability falseAlarm.
func (c *chance) level() float64 {
	odds := math.Log(c.lags / falseAlarm)
	return odds*c.term/3 + math.Sqrt(odds*c.term/3*odds*c.term/3+2*odds*c.variance)
}

// of returns the probability that it exceeds a level at any of the lags.
func (c *chance) of(level float64) float64 {
	return min(c.lags*math.Exp(-level*level/(2*(c.variance+level*c.term/3))), 1)
}

// peaksOf returns the highest lag of each positive stretch after the first.
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
		if top >= 2 && k < len(r) { // a stretch that continues beyond the end may be higher there
			list = append(list, top)
		}
	}
	return list
}

// highest returns the highest lag within reach of a middle, -1 if that is out of range.
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

// centroid returns the middle of the peak about a lag: the weighted mean of the lags around it that
// are above half of its height over the lowest lag within reach. Jitter affects both sides of a
// peak alike.
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

// lengthOf measures a period at its multiples, as long as they stand out: each is as exact as the
// first, but covers several periods. The period is steady if they stand out as much as the first:
// steps that keep to a grid, however late each one is, are still on it after many periods, while
// the peaks of wandering periods blur.
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
