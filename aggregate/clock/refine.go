package clock

import "math"

// What two packets decide is what luck made of them. A drift is told better by what many
// packets have in common: that those of one kind which meet no queue take equally long. Their
// delays are a peak as wide as the timestamps are off, and a slope that is wrong smears it.
// So it is by all that is sharp in the delays: queues that are always full have their peak,
// too, but nobody knows that they are.

// fit looks for the slope by which the delays of kinds repeat themselves the best.
type fit struct {
	kinds     []kind
	half      float64 // of the time, s: points lie between -half and half
	low, high float64 // slopes that may be
	off       float64 // ns by which timestamps are off at most, above 0
	density   density
}

// estimate is a slope and its standard error.
type estimate struct{ slope, error float64 }

// Slots of time are taken to depend on each other as far as lag ones apart: what load does
// lasts longer than packets do.
const (
	slots = 20
	lag   = 4
)

// pull is what packets say of how the slope should change, by slots of time.
type pull struct{ force, weight [slots]float64 }

func (f *fit) slot(x float64) int {
	return min(max(int((x/f.half+1)/2*slots), 0), slots-1)
}

// step returns the change of the slope, and its standard error: that of sums over slots with what
// neighbours have in common (Newey and West 1987), and more where few slots decide.
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

// window is which rests of a kind count, and how finely they are looked at: from the least
// one on up to reach, in ns, or nearly all of them with 0. With a blur of 1 it is as finely as
// they are many enough for, with more so much less finely, and with 0 only their mean counts.
type window struct{ reach, blur float64 }

// pulled sums up what all kinds say at a slope, in their windows, the first time or again.
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

// minNear is how many packets of a kind say something.
const minNear = 8

// pull adds what the rests of a kind that count say, and returns how many they are.
func (f *fit) pull(p *pull, k *kind, blur float64) (near int) {
	near, x, rest := k.mean()
	if near < minNear {
		return near
	}
	score, signal, information := func(v float64) float64 { return v - rest }, 1.0, 1.0
	if blur > 0 {
		// Finer, the noise of the density would be more than what it tells.
		finest := max(f.off/6, (k.high-k.low)/2/math.Cbrt(float64(near)))
		f.density.fill(k.rests, k.low, k.high, blur*finest)
		score = f.density.score
		signal, information = f.density.information()
	}
	var force, moved [slots]float64
	var mean float64
	for i, v := range k.rests {
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

// follow changes a slope as the packets in a window say, again and again: which they are
// changes with it. It takes the windows one after the other.
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
	// minFloor is how many packets next to the least delays tell a slope.
	minFloor = 200
	// distrust is how much better queues have to tell a slope than those for being believed.
	distrust = 2
)

// best returns the slope that repeats delays the best, of those that several slopes lead to.
// Packets that met no queue tell it, and those that met a little; where they are few, all do.
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

// with weighs two estimates from nearly the same packets by how sure they are.
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

// refine sets the drift, which has to be within its bound, and how sure it is.
func (r *Relation) refine(o *Options, edges ...*edge) {
	starts := []float64{steepest(o.MaxDrift, edges...)}
	r.Drift, r.DriftError = min(max(starts[0], r.DriftLow), r.DriftHigh), math.Inf(1)
	if o.Error == 0 {
		return // the packets that meet no queue are on the line
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
