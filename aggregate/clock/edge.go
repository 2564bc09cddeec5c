package clock

import (
	"cmp"
	"math"
	"slices"
)

// point is a packet: when, in s, and what B's clock showed more than A's, in ns.
type point struct {
	x, y float64
	kind uint32
}

// line is a candidate for the offset over time: its value at x = 0 in ns, and its slope in
// ns per s.
type line struct{ value, slope float64 }

func (l line) at(x float64) float64 { return l.value + l.slope*x }

// edge is the convex hull of one direction's packets, on the side of the offset: below the
// packets that went forward, above those that went backward.
type edge struct {
	side   direction
	points []point // in the order of x
	hull   []point // in the order of x
	meanX  float64 // of all packets
}

// newEdge takes what the way is known to take off each packet. Values are relative to at
// and first, so that they are exact as floating point numbers.
func newEdge(pairs []Pair, at, first int64, way float64, side direction) *edge {
	e := &edge{side: side}
	points := make([]point, len(pairs))
	for i, p := range pairs {
		points[i] = point{seconds(p.A, at), float64(p.B-p.A-first) - float64(side)*way, p.Kind}
		e.meanX += points[i].x / float64(len(pairs))
	}
	e.points = points
	slices.SortFunc(points, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.x, b.x), cmp.Compare(float64(side)*a.y, float64(side)*b.y), cmp.Compare(a.kind, b.kind))
	})
	for i, p := range points {
		if i > 0 && p.x == points[i-1].x {
			continue // the one before is nearer to the offset
		}
		for len(e.hull) > 1 && e.hides(e.hull[len(e.hull)-2], p, e.hull[len(e.hull)-1]) {
			e.hull = e.hull[:len(e.hull)-1]
		}
		e.hull = append(e.hull, p)
	}
	if len(pairs) < minPairs {
		e.hull = nil
	}
	return e
}

// hides tells whether between is not on the hull of it and its neighbours.
func (e *edge) hides(before, after, between point) bool {
	cross := (between.x-before.x)*(after.y-before.y) - (after.x-before.x)*(between.y-before.y)
	return float64(e.side)*cross <= 0
}

// wide tells whether there are packets at different times, without which no line is known.
func (e *edge) wide() bool { return len(e.hull) > 1 }

// slopes are those of the hull's sides: the lines that touch two packets.
func (e *edge) slopes() []float64 {
	var list []float64
	for i := range len(e.hull) - 1 {
		list = append(list, (e.hull[i+1].y-e.hull[i].y)/(e.hull[i+1].x-e.hull[i].x))
	}
	return list
}

// touch is the value at x = 0 of the line of a slope that touches the hull from the side
// of the offset.
func (e *edge) touch(slope float64) float64 {
	value := math.Inf(int(e.side))
	for _, p := range e.hull {
		if v := p.y - slope*p.x; float64(e.side)*(v-value) < 0 {
			value = v
		}
	}
	return value
}

// mean is, but for a constant, how near the touching line is to all packets: their mean
// distance is the least where this is the most. It is concave in the slope.
func (e *edge) mean(slope float64) float64 {
	return float64(e.side) * (e.touch(slope) + slope*e.meanX)
}

// steepest is the slope along which lines that touch the edges are the nearest to all packets;
// the middle where there are several.
func steepest(limit float64, edges ...*edge) float64 {
	return highest(limit, edges, func(slope float64) (sum float64) {
		for _, e := range edges {
			sum += e.mean(slope)
		}
		return sum
	})
}

// highest is the slope at which a function that is concave, and straight between the slopes of
// the edges, is the most; the middle where there are several.
func highest(limit float64, edges []*edge, f func(slope float64) float64) float64 {
	best, low, high := math.Inf(-1), 0.0, 0.0
	for _, e := range edges {
		for _, c := range e.slopes() {
			c = min(max(c, -limit), limit)
			switch v := f(c); {
			case v > best:
				best, low, high = v, c, c
			case v == best:
				low, high = min(low, c), max(high, c)
			}
		}
	}
	return (low + high) / 2
}

// fitting are the corners of the set of lines that pass between both hulls, each of which
// gives way by slack. It is a polygon in (value, slope); without corners no line fits.
func fitting(above, below []point, slack, maxDrift float64) []line {
	// No line that fits is further off at x = 0. A larger number would cost precision.
	far := slack
	for _, p := range slices.Concat(above, below) {
		far = max(far, slack+math.Abs(p.y)+maxDrift*math.Abs(p.x))
	}
	polygon := []line{{-far, -maxDrift}, {far, -maxDrift}, {far, maxDrift}, {-far, maxDrift}}
	for _, p := range above {
		polygon = cut(polygon, func(l line) float64 { return p.y + slack - l.at(p.x) })
	}
	for _, p := range below {
		polygon = cut(polygon, func(l line) float64 { return l.at(p.x) - (p.y - slack) })
	}
	return polygon
}

// cut keeps the part of a convex polygon where room, which is linear, is not negative.
func cut(polygon []line, room func(line) float64) (kept []line) {
	for i, to := range polygon {
		from := polygon[(i+len(polygon)-1)%len(polygon)]
		a, b := room(from), room(to)
		if (a < 0) != (b < 0) {
			t := a / (a - b)
			kept = append(kept, line{from.value + t*(to.value-from.value), from.slope + t*(to.slope-from.slope)})
		}
		if b >= 0 {
			kept = append(kept, to)
		}
	}
	return kept
}
