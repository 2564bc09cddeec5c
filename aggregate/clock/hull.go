package clock

import (
	"cmp"
	"math"
	"slices"
)

// point is a packet: its time, in s, and B's timestamp minus A's, in ns.
type point struct {
	x, y float64
	kind uint32
}

// line is a candidate for the offset over time: its value at x = 0 in ns, and its slope in
// ns per s.
type line struct{ value, slope float64 }

func (l line) at(x float64) float64 { return l.value + l.slope*x }

// hull is the convex hull of one direction's packets, on the side of the offset: below the forward
// packets, above the backward ones.
type hull struct {
	side   direction
	points []point // in the order of x
	hull   []point // in the order of x
	meanX  float64 // of all packets
}

// newEdge subtracts the known minimum delay from each packet. Values are relative to at and first,
// so that they are exact as floating point numbers.
func newEdge(pairs []Pair, at, first int64, way float64, side direction) *hull {
	e := &hull{side: side}
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
			continue // the previous one is nearer to the offset
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

// hides reports whether between is not on the hull of itself and its neighbors.
func (e *hull) hides(before, after, between point) bool {
	cross := (between.x-before.x)*(after.y-before.y) - (after.x-before.x)*(between.y-before.y)
	return float64(e.side)*cross <= 0
}

// wide reports whether there are packets at different times; without them no line is known.
func (e *hull) wide() bool { return len(e.hull) > 1 }

// slopes returns the slopes of the hull's sides: the lines that touch two packets.
func (e *hull) slopes() []float64 {
	var list []float64
	for i := range len(e.hull) - 1 {
		list = append(list, (e.hull[i+1].y-e.hull[i].y)/(e.hull[i+1].x-e.hull[i].x))
	}
	return list
}

// touch returns the value at x = 0 of the line with that slope that touches the hull on the side of
// the offset.
func (e *hull) touch(slope float64) float64 {
	value := math.Inf(int(e.side))
	for _, p := range e.hull {
		if v := p.y - slope*p.x; float64(e.side)*(v-value) < 0 {
			value = v
		}
	}
	return value
}

// mean returns, up to a constant, how close the touching line is to all packets: their mean
// distance is smallest where mean is largest. It is concave in the slope.
func (e *hull) mean(slope float64) float64 {
	return float64(e.side) * (e.touch(slope) + slope*e.meanX)
}

// steepest returns the slope at which lines that touch the edges are closest to all packets; the
// middle if there are several.
func steepest(limit float64, edges ...*hull) float64 {
	return highest(limit, edges, func(slope float64) (sum float64) {
		for _, e := range edges {
			sum += e.mean(slope)
		}
		return sum
	})
}

// highest returns the slope that maximizes a concave function that is linear between the slopes of
// the edges; the middle if there are several.
func highest(limit float64, edges []*hull, f func(slope float64) float64) float64 {
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

// fitting returns the corners of the set of lines that pass between both hulls, each widened by
// slack. It is a polygon in (value, slope); without corners no line fits.
func fitting(above, below []point, slack, maxDrift float64) []line {
	// No fitting line has a larger value at x = 0. A larger bound would cost precision.
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

// cut keeps the part of a convex polygon where the linear function room is not negative.
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

// density is the smoothed histogram of residuals.
type density struct {
	low, bin float64 // of the first bin
	counts   []float64
	scratch  []float64
}

const (
	// binsOf is the number of bins in a width of the smoothing.
	binsOf = 4
	// margin is the number of bins on either side that smoothing reaches.
	margin = 8
)

// fill counts the residuals from low to high, smoothed by a kernel of about the width. It needs
// memory for four numbers per width.
func (d *density) fill(residuals []float64, low, high, width float64) {
	d.low, d.bin = low, width/binsOf
	n := int((high-low)/d.bin) + 1 + 2*margin
	if cap(d.counts) < n {
		d.counts, d.scratch = make([]float64, n), make([]float64, n)
	}
	d.counts, d.scratch = d.counts[:n], d.scratch[:n]
	clear(d.counts)
	for _, v := range residuals { // also those beyond the ends, which are no edges of the density
		if at := (v-low)/d.bin + margin; at >= 0 && at < float64(n) {
			d.counts[int(at)]++
		}
	}
	for range 3 { // three boxes approximate a bell curve
		d.smooth()
	}
}

func (d *density) at(rest float64) int { return int((rest-d.low)/d.bin) + margin }

// smooth spreads each count over five bins.
func (d *density) smooth() {
	const half = binsOf / 2
	var sum float64
	for i := range d.counts {
		sum += d.counts[i]
		if i > 2*half {
			sum -= d.counts[i-2*half-1]
		}
		if i >= half {
			d.scratch[i-half] = sum / (2*half + 1)
		}
	}
	d.counts, d.scratch = d.scratch, d.counts
	clear(d.counts[len(d.counts)-half:])
}

// score returns the rate at which the density falls at a residual, relative to the density, per ns:
// positive where shorter residuals are likelier. The added 1 is for sparse regions.
func (d *density) score(rest float64) float64 {
	i := d.at(rest)
	return (d.counts[i-1] - d.counts[i+1]) / (2 * d.bin) / (d.counts[i] + 1)
}

// noise is the mean square difference of smoothed counts two bins apart under a uniform density,
// relative to a count.
const noise = 490. / 15625

// information returns how much one residual says about the position of all: the mean of the squared
// score, per ns squared, minus its value by chance. signal is the share of the score that is not
// chance.
func (d *density) information() (signal, information float64) {
	var all, net, n float64
	for i := margin; i < len(d.counts)-margin; i++ {
		fall, count := d.counts[i-1]-d.counts[i+1], d.counts[i]
		all += fall * fall / (count + 1)
		net += (fall*fall - noise*count) / (count + 1)
		n += count
	}
	if net <= 0 {
		return 0, 0
	}
	return net / all, net / (4 * d.bin * d.bin) / n
}

// minKind is the number of packets that form a kind of their own. Those of rarer kinds form one
// kind together.
const minKind = 32

// kind is packets of one direction that take equally long, apart from queueing.
type kind struct {
	side   float64
	points []point
	// residuals are the residual delays of points at the current slope, up to a constant, in ns.
	residuals []float64
	// low and high bound the residuals that count.
	low, high float64
}

// kinds groups the packets of an edge by kind. It changes their order.
func (e *hull) kinds() (list []kind) {
	slices.SortStableFunc(e.points, func(a, b point) int { return cmp.Compare(a.kind, b.kind) })
	residuals := make([]float64, len(e.points))
	var rare []point
	for i := 0; i < len(e.points); {
		k := i + 1
		for k < len(e.points) && e.points[k].kind == e.points[i].kind {
			k++
		}
		if k-i >= minKind {
			list = append(list, kind{side: float64(e.side), points: e.points[i:k], residuals: residuals[i:k]})
		} else {
			rare = append(rare, e.points[i:k]...)
		}
		i = k
	}
	if len(rare) > 0 {
		list = append(list, kind{side: float64(e.side), points: rare, residuals: make([]float64, len(rare))})
	}
	return list
}

// set computes the residuals, and returns the least.
func (k *kind) set(slope float64) (least float64) {
	least = math.Inf(1)
	for i, p := range k.points {
		k.residuals[i] = k.side * (p.y - slope*p.x)
		least = min(least, k.residuals[i])
	}
	return least
}

// counts reports whether a residual counts.
func (k *kind) counts(rest float64) bool { return rest >= k.low && rest <= k.high }

// mean returns the number of residuals that count, the mean time of their packets, and their mean.
func (k *kind) mean() (near int, x, rest float64) {
	for i, v := range k.residuals {
		if k.counts(v) {
			near, x, rest = near+1, x+k.points[i].x, rest+v
		}
	}
	return near, x / float64(near), rest / float64(near)
}

// span lets all but one of a hundred residuals on either side count.
func (k *kind) span() {
	sorted := slices.Sorted(slices.Values(k.residuals))
	k.low, k.high = sorted[len(sorted)/100], sorted[len(sorted)-1-len(sorted)/100]
}
