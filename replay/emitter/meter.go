package emitter

import "math/bits"

// meter measures how busy a port's link was in each interval (section 5.1.1, raw
// ABW): the bits that exited are the busy time times the speed, so the available
// share is one minus the busy share, exactly. Links were idle before the run began,
// and switches knew it: the interval before the first one is complete and idle.
type meter struct {
	interval int64 // ps
	end      int64 // of the interval that is being measured
	busy     int64 // ps, in that interval
	last     int64 // ps, in the one before

	// What the port offers in terms of the quantization tables, valid until the
	// next interval begins.
	coded bool
	codes [2]uint32 // by csig.MinABW, csig.MinABWRatio
}

// advance closes the intervals that end at or before the time t.
func (m *meter) advance(t int64) {
	if t < m.end {
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

// add counts the link as busy from start to end; advance(start) came before.
func (m *meter) add(start, end int64) {
	for end > m.end {
		m.busy += m.end - start
		start = m.end
		m.advance(start)
	}
	m.busy += end - start
}

// available is the bandwidth in kbit/s and in parts per million that the last
// complete interval left free.
func (m *meter) available(kbps uint64) (abw, ratio uint64) {
	free := uint64(m.interval - m.last)
	interval := uint64(m.interval)
	return mulDiv(free, kbps, interval), mulDiv(free, 1e6, interval)
}

// mulDiv is a*b/c without overflow; the result must fit.
func mulDiv(a, b, c uint64) uint64 {
	high, low := bits.Mul64(a, b)
	quotient, _ := bits.Div64(high, low, c)
	return quotient
}
