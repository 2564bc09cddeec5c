package emitter

// pacing decides when a sender sends. Times are picoseconds.
type pacing struct {
	gap           int64 // mean time between packets
	irregular     bool  // gaps vary from 0 to twice the mean instead of by a tenth
	start, end    int64
	period, burst int64 // period 0: always active
	steps         steps
	random        random
}

// first is the time of the first packet: senders of a workload do not start on the
// same picosecond.
func (p *pacing) first() int64 {
	return p.within(p.begin(0) + p.phase())
}

// after is the time of the packet after the one at t, or never.
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

// resume is the first time from t on at which the sender is active, or never.
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

// begin is when the sender's part of a step begins. It ends within the step's period.
func (p *pacing) begin(step int64) int64 {
	return p.start + step*p.period + p.steps.delay(step)
}

// phase stays inside the burst, so that every step has a packet.
func (p *pacing) phase() int64 {
	span := p.gap
	if p.period > 0 {
		span = min(span, p.burst)
	}
	return int64(p.random.below(uint64(span)))
}

func (p *pacing) jittered() int64 {
	if p.irregular {
		return int64(p.random.below(uint64(2*p.gap)) + 1)
	}
	return p.gap - p.gap/10 + int64(p.random.below(uint64(p.gap/5+1)))
}

func (p *pacing) within(t int64) int64 {
	if t >= p.end {
		return never
	}
	return t
}
