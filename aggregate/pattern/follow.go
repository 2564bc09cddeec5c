package pattern

import (
	"fmt"
	"math"
	"slices"
)

// Lag is how two series follow each other.
type Lag struct {
	// Windows is by how much the second is later than the first, negative where it is
	// earlier, at most half a period either way: what is periodic has no other answer.
	Windows float64
	// Strength is their correlation at that lag, at most about 1.
	Strength float64
}

// Follow gives the lag of b behind a, which have the period in common (Rhythm.Period). It
// is nil where they have nothing in common. The error is ErrLength, also where their
// lengths differ.
func Follow(a, b []float64, period float64) (*Lag, error) {
	n := len(a)
	half, reach := int(period/2), int(math.Ceil(period*3/4)) // a peak at half a period has another side
	if n != len(b) || n < MinWindows || n > MaxWindows || half < 1 || 3*reach > n {
		return nil, fmt.Errorf("compare %d windows with %d over a period of %.1f: %w", n, len(b), period, ErrLength)
	}
	x, y := ranked(a), ranked(b)
	later, earlier := correlate(x, y, reach), correlate(y, x, reach)
	if later == nil || earlier == nil {
		return nil, nil
	}
	// Lags from -reach to reach, lag 0 in the middle.
	both := slices.Clone(earlier)
	slices.Reverse(both)
	both = append(both, later[1:]...)
	top := highest(both, float64(reach), float64(half))
	memory := period / 4
	chance := math.Sqrt(2*math.Log(4/falseAlarm)) * math.Sqrt(memory/float64(n))
	if both[top] < chance {
		return nil, nil
	}
	return &Lag{Windows: centroid(both, float64(top), period/4) - float64(reach), Strength: both[top]}, nil
}

// Late is who keeps the others of a job waiting.
type Late struct {
	Series int     // index of the series
	Share  float64 // of the steps that it ends last
	By     float64 // windows, by which it ends after the median of the others, the median of all steps
	Steps  int     // that were looked at
}

// leastSteps is how many steps somebody has to be late in, to be called so.
const leastSteps = 8

// Straggler is which of several series of a job ends its steps last, oftener than chance
// has it and by more than a window. It is nil where nobody does, or there are less than 3
// series or 8 steps. All have the length of the first, else the error is ErrLength.
func Straggler(series [][]float64, r *Rhythm) (*Late, error) {
	if len(series) < 3 {
		return nil, nil
	}
	n := len(series[0])
	total := make([]float64, n)
	for _, s := range series {
		if len(s) != n || n < MinWindows || n > MaxWindows {
			return nil, fmt.Errorf("compare series of %d and %d windows: %w", n, len(s), ErrLength)
		}
		for i, v := range s {
			if !math.IsNaN(v) {
				total[i] += v
			}
		}
	}
	ends := endsOf(series, r.Period, beginnings(total, r.Period))
	last := make([]int, len(series))
	by := make([][]float64, len(series))
	steps := 0
	for _, step := range ends {
		if len(step) < len(series) {
			continue // somebody did nothing, or nobody knows
		}
		steps++
		order := slices.Clone(step)
		slices.Sort(order)
		slowest := slices.Index(step, order[len(order)-1])
		others := order[:len(order)-1]
		if order[len(order)-1] > order[len(order)-2] {
			last[slowest]++
		}
		by[slowest] = append(by[slowest], float64(order[len(order)-1])-float64(others[(len(others)-1)/2]+others[len(others)/2])/2)
	}
	who := slices.Index(last, slices.Max(last))
	if steps < leastSteps || !oftener(last[who], steps, len(series)) {
		return nil, nil
	}
	late := &Late{Series: who, Share: float64(last[who]) / float64(steps), By: median(by[who]), Steps: steps}
	if late.By <= 1 {
		return nil, nil
	}
	return late, nil
}

// beginnings are the windows in which steps of a job begin, but for a cut first one, and
// behind the last whole one.
func beginnings(total []float64, period float64) (list []int) {
	for _, r := range stepsOf([][]float64{total}, period)[0] {
		if r.from == 0 || len(list) > 0 && float64(r.from-list[len(list)-1]) < period/2 {
			continue // cut, or the rest of a step whose last part is somebody's alone
		}
		list = append(list, r.from)
	}
	return list
}

// endsOf are the windows in which each series ends its part of each step; a step that one
// of them has no part in is shorter. A part is of the step that its middle is in: some begin
// a little before the others do. What is busy for longer than a period has no end.
func endsOf(series [][]float64, period float64, begins []int) [][]int {
	ends := make([][]int, max(len(begins)-1, 0))
	for _, s := range series {
		runs := stepsOf([][]float64{s}, period)[0]
		for i := range ends {
			end := -1
			for _, r := range runs {
				middle := (r.from + r.to) / 2
				if middle >= begins[i] && middle < begins[i+1] && float64(r.to-r.from) <= period {
					end = r.to
				}
			}
			if end >= 0 {
				ends[i] = append(ends[i], end)
			}
		}
	}
	return ends
}

// oftener tells whether k of n draws of one of m are more than chance: the binomial tail
// is below falseAlarm for each of the m (Hoeffding's bound, which needs no tables).
func oftener(k, n, m int) bool {
	p, q := float64(k)/float64(n), 1/float64(m)
	if p <= q {
		return false
	}
	divergence := p * math.Log(p/q)
	if p < 1 {
		divergence += (1 - p) * math.Log((1-p)/(1-q))
	}
	return math.Exp(-float64(n)*divergence)*float64(m) < falseAlarm
}
