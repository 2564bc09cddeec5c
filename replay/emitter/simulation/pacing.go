package simulation

import (
	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// pacing decides when a sender sends. Times are picoseconds.
type pacing struct {
	gap           int64 // mean time between packets
	irregular     bool  // gaps vary from 0 to twice the mean instead of by a tenth
	start, end    int64
	period, burst int64 // period 0: always active
	steps         steps
	random        exact.Random
}

// first returns the time of the first packet. Senders of a workload do not start in the same
// picosecond.
func (p *pacing) first() int64 {
	return p.within(p.begin(0) + p.phase())
}

// after returns the time of the packet after the one at t, or never.
func (p *pacing) after(t int64) int64 {
	next := t + p.jittered()
	if p.period == 0 {
		return p.within(next)
	}
	step := (t - p.start) / p.period
	if next < p.begin(step)+p.burst {
		return p.within(next)
	}
	return p.within(p.begin(step+1) + p.phase())
}

// resume returns the first time from t on at which the sender is active, or never.
func (p *pacing) resume(t int64) int64 {
	if t == never {
		return never
	}
	t = max(t, p.begin(0))
	if p.period == 0 {
		return p.within(t)
	}
	step := (t - p.start) / p.period
	switch begin := p.begin(step); {
	case t < begin:
		t = begin
	case t >= begin+p.burst:
		t = p.begin(step + 1)
	}
	return p.within(t)
}

// begin returns the start of the sender's part of a step. The part ends within the step's period.
func (p *pacing) begin(step int64) int64 {
	return p.start + step*p.period + p.steps.delay(step)
}

// phase stays inside the burst, so that every step has a packet.
func (p *pacing) phase() int64 {
	span := p.gap
	if p.period > 0 {
		span = min(span, p.burst)
	}
	return int64(p.random.Below(uint64(span)))
}

func (p *pacing) jittered() int64 {
	if p.irregular {
		return int64(p.random.Below(uint64(2*p.gap)) + 1)
	}
	return p.gap - p.gap/10 + int64(p.random.Below(uint64(p.gap/5+1)))
}

func (p *pacing) within(t int64) int64 {
	if t >= p.end {
		return never
	}
	return t
}

// steps describes a flow's part of a training step, and how steps differ. Times are picoseconds.
type steps struct {
	offset int64  // start of the flow's part after the start of the step
	jitter int64  // maximum delay of a step
	seed   uint64 // seed of the jitter, shared by the flows of a workload
	late   int64  // additional delay of a straggler
	every  int64  // a straggler is late in one of this many steps
}

// delay returns the delay of the flow's part after the step's nominal start.
func (s *steps) delay(step int64) int64 {
	d := s.offset
	if s.jitter > 0 {
		r := exact.Derive(s.seed, uint64(step))
		d += int64(r.Below(uint64(s.jitter + 1)))
	}
	if s.late > 0 && step%s.every == s.every-1 {
		d += s.late
	}
	return d
}

// transfers divides a flow's data into transfers with pauses between them.
type transfers struct {
	sizes  sizes
	think  int64 // mean pause, ps
	left   int64 // bytes of the present transfer
	count  int64 // transfers that are still to come; negative: without end
	random exact.Random
}

// begin draws the next transfer when one ends at now. It returns when the transfer may start, or
// never if there is no other. Pauses vary from 0 to twice the mean.
func (t *transfers) begin(now int64) int64 {
	if t.count == 0 {
		return never
	}
	if t.count > 0 {
		t.count--
	}
	t.left = int64(t.sizes.draw(&t.random))
	if t.think == 0 {
		return now
	}
	return now + int64(t.random.Below(uint64(2*t.think)))
}

// take takes the bytes for a packet from the present transfer and returns their number.
func (t *transfers) take(payload uint32) uint32 {
	n := min(int64(payload), t.left)
	t.left -= n
	return uint32(n)
}

// sizes draws from a distribution. It uses integers only, so that equal seeds draw equal sizes on
// every machine.
type sizes struct {
	low, high uint64 // bounds of a bounded Pareto distribution, unless points are set
	points    []scenario.SizePoint
}

// webSearch is the distribution of DCTCP's figure 4, as tabulated by later public simulators.
var webSearch = []scenario.SizePoint{
	{Bytes: 1, Share: 0},
	{Bytes: 10_000, Share: 150_000},
	{Bytes: 20_000, Share: 200_000},
	{Bytes: 30_000, Share: 300_000},
	{Bytes: 50_000, Share: 400_000},
	{Bytes: 80_000, Share: 530_000},
	{Bytes: 200_000, Share: 600_000},
	{Bytes: 1_000_000, Share: 700_000},
	{Bytes: 2_000_000, Share: 800_000},
	{Bytes: 5_000_000, Share: 900_000},
	{Bytes: 10_000_000, Share: 970_000},
	{Bytes: 30_000_000, Share: 1_000_000},
}

// newSizes compiles a distribution that has been checked.
func newSizes(s *scenario.Sizes) sizes {
	switch s.Distribution {
	case scenario.FixedSize:
		return sizes{low: s.MinBytes, high: s.MinBytes}
	case scenario.WebSearch:
		return sizes{points: webSearch}
	}
	return sizes{low: s.MinBytes, high: s.MaxBytes, points: s.Points}
}

// draw returns the size of a transfer.
func (s *sizes) draw(rng *exact.Random) uint64 {
	if len(s.points) > 0 {
		return s.between(rng.Below(scenario.SizeScale))
	}
	if s.low == s.high {
		return s.low
	}
	return s.pareto(rng.Below(1 << 32))
}

// pareto inverts the cumulative share F(x) = (1 - low/x) / (1 - low/high) at u/2^32:
// x = low / (1 - F (1 - low/high)).
func (s *sizes) pareto(u uint64) uint64 {
	// All terms are multiplied by high: the denominator falls from high to low.
	denominator := s.high - exact.MulDiv(s.high-s.low, u, 1<<32)
	return exact.MulDiv(s.low, s.high, denominator)
}

// between inverts the table at a share.
func (s *sizes) between(share uint64) uint64 {
	i := 1
	for s.points[i].Share <= share {
		i++
	}
	a, b := s.points[i-1], s.points[i]
	return a.Bytes + exact.MulDiv(b.Bytes-a.Bytes, share-a.Share, b.Share-a.Share)
}
