package clock

import (
	"cmp"
	"math"
	"slices"
)

// minKind is how many packets are a kind of their own. Those of rarer kinds are one kind
// together.
const minKind = 32

// kind is packets of one direction that take equally long, but for the queues that they meet.
type kind struct {
	side   float64
	points []point
	// rests are the delays of points by the slope at hand, but for a constant, in ns.
	rests []float64
	// low and high are between which rests count.
	low, high float64
}

// kinds takes the packets of an edge apart, of which it changes the order.
func (e *edge) kinds() (list []kind) {
	slices.SortStableFunc(e.points, func(a, b point) int { return cmp.Compare(a.kind, b.kind) })
	rests := make([]float64, len(e.points))
	var rare []point
	for i := 0; i < len(e.points); {
		k := i + 1
		for k < len(e.points) && e.points[k].kind == e.points[i].kind {
			k++
		}
		if k-i >= minKind {
			list = append(list, kind{side: float64(e.side), points: e.points[i:k], rests: rests[i:k]})
		} else {
			rare = append(rare, e.points[i:k]...)
		}
		i = k
	}
	if len(rare) > 0 {
		list = append(list, kind{side: float64(e.side), points: rare, rests: make([]float64, len(rare))})
	}
	return list
}

// set computes the rests, and returns the least.
func (k *kind) set(slope float64) (least float64) {
	least = math.Inf(1)
	for i, p := range k.points {
		k.rests[i] = k.side * (p.y - slope*p.x)
		least = min(least, k.rests[i])
	}
	return least
}

// counts tells whether a rest does.
func (k *kind) counts(rest float64) bool { return rest >= k.low && rest <= k.high }

// mean is how many rests count, the mean time of their packets, and their own.
func (k *kind) mean() (near int, x, rest float64) {
	for i, v := range k.rests {
		if k.counts(v) {
			near, x, rest = near+1, x+k.points[i].x, rest+v
		}
	}
	return near, x / float64(near), rest / float64(near)
}

// span lets all but one of a hundred rests on either side count.
func (k *kind) span() {
	sorted := slices.Sorted(slices.Values(k.rests))
	k.low, k.high = sorted[len(sorted)/100], sorted[len(sorted)-1-len(sorted)/100]
}
