package emitter

import (
	"cmp"
	"fmt"
	"math/bits"
)

// Estimator is how switches compute available bandwidth (section 5.1.1).
type Estimator string

// The estimators. In all of them the bits that exited are the time in which the link
// was busy times its speed, so the available share is one minus the busy share,
// exactly.
const (
	// Raw is the busy share of the last complete interval (section 5.1.1; slides "CSIG
	// at IEEE 802 Nendica", November 2023, "BW Measure").
	Raw Estimator = "raw"
	// EWMA moves by a weight of 1/2^n with every packet toward the busy share of the time
	// since the packet before it ended. It has no interval.
	EWMA Estimator = "ewma"
	// DRE adds every packet's busy time to a register that loses 1/2^n of itself every
	// interval/2^n: the Discounted Rate Estimator of CONGA, whose time constant is the
	// interval.
	DRE Estimator = "dre"
)

func (e Estimator) check() error {
	if e != Raw && e != EWMA && e != DRE {
		return fmt.Errorf("abw %q: expected %s, %s or %s", e, Raw, EWMA, DRE)
	}
	return nil
}

// meter measures how busy a port's link is. Links were idle before the run began, and
// switches knew it: the interval before the first one is complete and idle.
type meter struct {
	interval int64 // ps
	end      int64 // of the interval that is being measured; DRE: next loss; EWMA: never
	busy     int64 // ps, in that interval; DRE: the register
	last     int64 // ps, in the one before; EWMA: end of the last packet

	smooth bool // estimates change with every packet
	dre    bool
	weight uint8  // n of 1/2^n
	share  uint64 // EWMA: busy share in units of 1/2^32

	// What the port offers in terms of the quantization tables, valid until the
	// next interval begins.
	coded bool
	codes [2]uint32 // by csig.MinABW, csig.MinABWRatio
}

// meters gives ports their meters, as the scenario and its metering say.
func (l *timeline) meters(ports []port) {
	s := l.scenario
	for i := range ports {
		ports[i].meter = newMeter(s.ABW, ps(s.ABWInterval), s.ABWWeight)
	}
	for i := range l.items {
		if b := &l.items[i]; b.Kind == Metering {
			for _, n := range l.ports[i] {
				ports[n].meter = newMeter(cmp.Or(b.ABW, s.ABW), ps(cmp.Or(b.Every, s.ABWInterval)), s.ABWWeight)
			}
		}
	}
}

const wholeLink = 1 << 32

// newMeter is the meter of an idle link.
func newMeter(e Estimator, interval int64, weight uint8) meter {
	m := meter{interval: interval, end: interval, smooth: e != Raw, dre: e == DRE, weight: weight}
	switch e {
	case DRE:
		m.end = interval >> weight
	case EWMA:
		m.end = never
	}
	return m
}

// advance closes the intervals that end at or before the time t.
func (m *meter) advance(t int64) {
	if t >= m.end {
		m.close(t)
	}
}

// close does what advance has to do. Most packets have nothing to close: apart, advance
// and add cost no call.
func (m *meter) close(t int64) {
	if m.dre {
		m.discount(t)
		return
	}
	skipped := (t - m.end) / m.interval
	m.last = m.busy
	if skipped > 0 {
		m.last = 0
	}
	m.end += (skipped + 1) * m.interval
	m.busy, m.coded = 0, false
}

// discount lets the register of DRE lose what it does up to the time t.
func (m *meter) discount(t int64) {
	step := m.interval >> m.weight
	losses := (t-m.end)/step + 1
	m.end += losses * step
	for ; losses > 0 && m.busy > 0; losses-- {
		m.lose()
	}
	m.coded = false
}

func (m *meter) lose() { m.busy -= max(m.busy>>m.weight, 1) }

// add counts the link as busy from start to end; advance(start) came before.
func (m *meter) add(start, end int64) {
	if m.smooth || end > m.end {
		m.split(start, end)
		return
	}
	m.busy += end - start
}

// split adds a packet that is on the link in more than one interval, or moves a smooth
// estimate.
func (m *meter) split(start, end int64) {
	if m.smooth {
		m.take(start, end)
		return
	}
	for end > m.end {
		m.busy += m.end - start
		start = m.end
		m.advance(start)
	}
	m.busy += end - start
}

// take moves a smooth estimate by a packet.
func (m *meter) take(start, end int64) {
	m.coded = false
	if m.dre {
		m.takeDiscounted(start, end)
		return
	}
	now := mulDiv(uint64(end-start), wholeLink, uint64(end-m.last))
	m.last = end
	// The shift of a negative number rounds down, as registers do.
	m.share = uint64(int64(m.share) + (int64(now)-int64(m.share))>>m.weight)
}

// takeDiscounted adds a packet to the register of DRE while it loses.
func (m *meter) takeDiscounted(start, end int64) {
	step := m.interval >> m.weight
	if long := (end - start) / step; long > saturation<<m.weight {
		// A busy register does not change any more: what comes before is forgotten.
		start += (long - saturation<<m.weight) * step
		m.end = start + step
	}
	for ; end > m.end; m.end += step {
		m.busy += m.end - start
		start = m.end
		m.lose()
	}
	m.busy += end - start
}

// saturation is how many intervals of DRE forget everything: 16 leave a ten-millionth.
const saturation = 16

// available is the bandwidth in kbit/s and in parts per million that is free by the
// estimate.
func (m *meter) available(kbps uint64) (abw, ratio uint64) {
	free, whole := uint64(m.interval-m.last), uint64(m.interval)
	switch {
	case m.dre:
		free = uint64(max(m.interval-m.busy, 0))
	case m.smooth:
		free, whole = wholeLink-m.share, wholeLink
	}
	return mulDiv(free, kbps, whole), mulDiv(free, 1e6, whole)
}

// mulDiv is a*b/c without overflow; the result must fit.
func mulDiv(a, b, c uint64) uint64 {
	high, low := bits.Mul64(a, b)
	quotient, _ := bits.Div64(high, low, c)
	return quotient
}
