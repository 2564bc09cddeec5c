package pattern

import (
	"errors"
	"math"
	"slices"
)

// Load describes the use of a link within one window.
type Load uint8

// Kinds of load.
const (
	// Unclear means that the distribution does not show it, or that there are too few values.
	Unclear Load = iota
	// Steady load measures about the same all the time.
	Steady
	// Bursty load alternates between high and low: bursts that are shorter than the window.
	Bursty
)

// Count is a value with the number of its measurements. The value is a share of the maximum, from 0
// to 1, such as available bandwidth divided by capacity.
type Count struct {
	Value float64
	Times uint64
}

// LoadProfile describes the values of one window.
type LoadProfile struct {
	Load Load
	// Low and High are the means of the two parts into which the values divide, and Duty is the
	// share of them in the upper one. For steady load they are nearly equal. Upper is the least
	// value of the upper part, 0 if there is none.
	Low, High, Duty, Upper float64
	// Apart is the share of the variance that is between the parts: 1 for two values, 0.64 for a
	// normal and 0.75 for a uniform distribution.
	Apart float64
}

const (
	leastTimes = 20   // least number of observations for a result
	steadySpan = 0.1  // standard deviation up to which load is steady
	burstSpan  = 0.4  // least distance between the two parts of a bursty load
	burstApart = 0.85 // least Apart of a bursty load
	burstShare = 0.05 // least share of the smaller part
)

// ErrValue says that a value is not a share.
var ErrValue = errors.New("describe window: expected values from 0 to 1")

// Describe distinguishes bursts from steady load by the values of one window, in any order. A link
// that is half used all the time and one that is full half of the time have the same mean but
// different distributions. Bursts have to be longer than the averaging interval of the switches,
// which smooths out shorter ones.
func Describe(values []Count) (LoadProfile, error) {
	sorted := slices.Clone(values)
	var times, sum, squares float64
	for _, c := range sorted {
		if !(c.Value >= 0 && c.Value <= 1) {
			return LoadProfile{}, ErrValue
		}
		n := float64(c.Times)
		times, sum, squares = times+n, sum+n*c.Value, squares+n*c.Value*c.Value
	}
	if times < leastTimes {
		return LoadProfile{}, nil
	}
	slices.SortFunc(sorted, func(a, b Count) int {
		switch {
		case a.Value < b.Value:
			return -1
		case a.Value > b.Value:
			return 1
		}
		return 0
	})
	mean := sum / times
	variance := math.Max(squares/times-mean*mean, 0)
	w := split(sorted, times, sum, variance)
	switch {
	case math.Sqrt(variance) <= steadySpan:
		w.Load = Steady
	case w.Apart >= burstApart && w.High-w.Low >= burstSpan && min(w.Duty, 1-w.Duty) >= burstShare:
		w.Load = Bursty
	}
	return w, nil
}

// split finds the two parts with the largest between-class variance (Otsu 1979).
func split(sorted []Count, times, sum, variance float64) LoadProfile {
	mean := sum / times
	best := LoadProfile{Low: mean, High: mean}
	between := 0.0
	var below, belowSum float64
	for i, c := range sorted {
		below, belowSum = below+float64(c.Times), belowSum+float64(c.Times)*c.Value
		if below == 0 || below == times || sorted[i+1].Value == c.Value {
			continue
		}
		low, high := belowSum/below, (sum-belowSum)/(times-below)
		if v := below / times * (1 - below/times) * (high - low) * (high - low); v > between {
			between = v
			best = LoadProfile{Low: low, High: high, Duty: 1 - below/times, Upper: sorted[i+1].Value}
		}
	}
	if variance > 0 {
		best.Apart = min(between/variance, 1)
	}
	return best
}
