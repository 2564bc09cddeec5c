package clock

import "math"

// A result that two packets decide is mostly chance. The common property of many packets gives a
// better drift: packets of one kind that meet no queue take equally long. Their delays form a peak
// as wide as the timestamp errors, and a wrong slope smears it. The same holds for everything sharp
// in the delays: queues that are always full form a peak, too, but nothing shows that they are
// full.

// fit searches the slope at which the delays of each kind coincide best.
type fit struct {
	kinds     []kind
	half      float64 // half of the time span, s: points lie between -half and half
	low, high float64 // allowed slopes
	off       float64 // largest timestamp error, ns, above 0
	density   density
}

// estimate is a slope and its standard error.
type estimate struct{ slope, error float64 }

// Time slots at most lag apart count as dependent on each other: the effects of load last longer
// than packets do.
const (
	slots = 20
	lag   = 4
)

// pull is the packets' evidence for changing the slope, by slots of time.
type pull struct{ force, weight [slots]float64 }

func (f *fit) slot(x float64) int {
	return min(max(int((x/f.half+1)/2*slots), 0), slots-1)
}

// step returns the change of the slope and its standard error, which accounts for correlation
// between neighboring slots (Newey and West 1987) and is larger if few slots decide.
func (p *pull) step() estimate {
	var force, weight, squares, concentration float64
	for i := range slots {
		force, weight = force+p.force[i], weight+p.weight[i]
		squares += p.force[i] * p.force[i]
		concentration += p.weight[i] * p.weight[i]
	}
	if !(weight > 0) {
		return estimate{0, math.Inf(1)}
	}
	var common float64
	for apart := 1; apart <= lag; apart++ {
		for i := range slots - apart {
			common += 2 * (1 - float64(apart)/(lag+1)) * p.force[i] * p.force[i+apart]
		}
	}
	squares += max(common, 0)
	few := 4 * concentration / (weight * weight)
	return estimate{force / weight, math.Sqrt(squares) / weight * (1 + few*few)}
}

// window selects the residuals of a kind that count: from the least one up to reach, in ns, or
// nearly all with 0. With a blur of 1 the density is as fine as their number allows, a larger blur
// makes it that much coarser, and with 0 only their mean counts.
type window struct{ reach, blur float64 }

// pulled sums the evidence of all kinds at a slope, in their windows; first is set for the first
// round.
func (f *fit) pulled(slope float64, w window, first bool) (p pull, packets int) {
	for i := range f.kinds {
		k := &f.kinds[i]
		least := k.set(slope)
		switch {
		case w.reach > 0:
			k.low, k.high = least, least+w.reach
		case first:
			k.span()
		}
		packets += f.pull(&p, k, w.blur)
	}
	return p, packets
}

// minNear is the number of packets that a kind needs to count.
const minNear = 8

// pull adds the evidence of a kind's counted residuals, and returns their number.
func (f *fit) pull(p *pull, k *kind, blur float64) (near int) {
	near, x, rest := k.mean()
	if near < minNear {
		return near
	}
	score, signal, information := func(v float64) float64 { return v - rest }, 1.0, 1.0
	if blur > 0 {
		// With finer bins, noise would dominate the density.
		finest := max(f.off/6, (k.high-k.low)/2/math.Cbrt(float64(near)))
		f.density.fill(k.residuals, k.low, k.high, blur*finest)
		score = f.density.score
		signal, information = f.density.information()
	}
	var force, moved [slots]float64
	var mean float64
	for i, v := range k.residuals {
		if !k.counts(v) {
			continue
		}
		slot, away, score := f.slot(k.points[i].x), k.points[i].x-x, score(v)
		force[slot] += score * away
		moved[slot] += away
		mean += score / float64(near)
		p.weight[slot] += signal * information * away * away
	}
	for i := range slots {
		p.force[i] += signal * k.side * (force[i] - mean*moved[i])
	}
	return near
}

// follow changes a slope by the evidence in a window, repeatedly, because the slope changes which
// packets are in the window. It takes the windows one after the other.
func (f *fit) follow(slope float64, windows ...window) (out estimate, packets int) {
	const (
		rounds = 6 // of each window
		enough = 0.02
	)
	out = estimate{slope, math.Inf(1)}
	most := (f.high - f.low) / 4
	for _, w := range windows {
		for round := range rounds {
			var p pull
			p, packets = f.pulled(out.slope, w, round == 0)
			step := p.step()
			next := min(max(out.slope+min(max(step.slope, -most), most), f.low), f.high)
			out = estimate{next, step.error}
			if math.Abs(step.slope) < enough*step.error {
				break
			}
		}
	}
	return out, packets
}

const (
	// minFloor is the number of packets next to the least delays that determine a slope.
	minFloor = 200
	// distrust is how many times better than the packets without a queue those with one have to
	// determine a slope to be trusted.
	distrust = 2
)

// best returns the slope at which delays coincide best, among those reached from several starts.
// Packets that met no queue or a short one determine it; where they are few, all packets do.
func (f *fit) best(starts []float64) (out estimate, queued bool) {
	total := 0
	for i := range f.kinds {
		total += len(f.kinds[i].points)
	}
	enough := min(minFloor, total/2)
	mean := estimate{starts[0], math.Inf(1)}
	for _, start := range starts {
		e, packets := f.follow(min(max(start, f.low), f.high), window{2 * f.off, 0})
		if packets >= enough && e.error < mean.error {
			mean = e
		}
	}
	sharp, packets := f.follow(mean.slope, window{5 * f.off, 3}, window{5 * f.off, 1})
	if packets < enough {
		sharp.error = math.Inf(1)
	}
	floor := mean.with(sharp)
	steady, _ := f.follow(mean.slope, window{0, 8}, window{0, 3}, window{0, 1})
	if steady.error*distrust < floor.error {
		return steady, true
	}
	return floor, false
}

// with averages two estimates from nearly the same packets, weighted by their errors.
func (a estimate) with(b estimate) estimate {
	switch {
	case math.IsInf(b.error, 1):
		return a
	case math.IsInf(a.error, 1) || b.error == 0:
		return b
	}
	weight := b.error * b.error / (a.error*a.error + b.error*b.error) // of a
	return estimate{weight*a.slope + (1-weight)*b.slope, min(a.error, b.error)}
}

// refine sets the drift, within its bound, and its standard error.
func (r *Relation) refine(o *Options, edges ...*hull) {
	starts := []float64{steepest(o.MaxDrift, edges...)}
	r.Drift, r.DriftError = min(max(starts[0], r.DriftLow), r.DriftHigh), math.Inf(1)
	if o.Error == 0 {
		return // the packets without a queue are on the line
	}
	f := fit{low: r.DriftLow, high: r.DriftHigh, off: float64(o.Error)}
	for _, e := range edges {
		if len(edges) > 1 {
			starts = append(starts, steepest(o.MaxDrift, e)) // queues of the other direction may grow
		}
		f.half = max(f.half, math.Abs(e.points[0].x), math.Abs(e.points[len(e.points)-1].x))
		f.kinds = append(f.kinds, e.kinds()...)
	}
	best, queued := f.best(starts)
	r.Drift, r.DriftError, r.Queued = best.slope, best.error, queued
}
