package simulation

import (
	"cmp"

	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// packet is one packet in a queue or on the link behind it. Times are picoseconds since the start
// of the run.
type packet struct {
	entered  int64 // into the queue
	started  int64 // leaves the queue, first bit on the link
	arrives  int64 // reaches the next queue or the receiver
	flow     int32
	id       uint32 // number of the packet in its flow, both directions
	number   uint32 // sequence number of data, acknowledgement number of an acknowledgement
	stamp    uint32 // TCP timestamp of the sender
	echo     uint32 // TCP timestamp that it echoes
	sent     uint32 // when the data left its sender (see age); an acknowledgement copies it from its data
	behind   uint32 // bytes left in the queue when it started
	length   uint16 // of the frame, without frame check sequence
	hop      int8   // index of the present queue in the route
	ack      bool   // travels from the flow's receiver to its sender
	trimmed  bool   // cut to its headers
	ecn      uint8  // codepoint; an acknowledgement copies it from its data
	tag      truth.Tag
	reflects truth.Tag
}

// clock converts a time to the clock in packets, which wraps every 4.3 s.
func clock(now int64) uint32 { return uint32(now / 1000) }

// age returns the time since the packet, or the data that it acknowledges, was sent, in
// nanoseconds.
func (k *packet) age(now int64) int64 { return int64(clock(now) - k.sent) }

// port is an egress queue and the link behind it. Its ring holds packets in the order in which they
// leave, from their entry into the queue until they arrive at the other end of the link.
type port struct {
	kbps    uint64
	latency int64 // from the last bit on the link to the next queue, ps
	buffer  uint64
	reserve uint64 // extra buffer for trimmed packets only
	transit bool   // a switch port: it measures and updates tags

	ring              []packet // its length is a power of two
	head, begun, tail uint32   // running counts; packets before begun have left the queue
	waiting           uint64   // bytes of packets in [begun, tail)
	reserved          uint64   // bytes of trimmed packets in waiting
	busyUntil         int64    // when the last packet in the ring leaves the link

	policy *policy // nil: complete support

	meter meter
	stats [2]truth.PortStats // for the present and the next window of the truth
}

func (p *port) empty() bool         { return p.head == p.tail }
func (p *port) at(n uint32) *packet { return &p.ring[n&uint32(len(p.ring)-1)] }

// backlog returns the number of bytes not yet sent at now, including the packet on the link.
func (p *port) backlog(now int64) uint64 {
	if p.busyUntil <= now {
		return 0
	}
	return (uint64(p.busyUntil-now)*p.kbps + 8e9 - 1) / 8e9
}

// enqueue adds a packet if there is room. A trimmed packet uses the reserve and overtakes whole
// ones; other packets use the buffer.
func (p *port) enqueue(now int64, k *packet, stats *truth.PortStats) bool {
	p.catchUp(now)
	queue := p.backlog(now) + uint64(k.length)
	if k.trimmed && p.reserved+uint64(k.length) > p.reserve || !k.trimmed && queue-p.reserved > p.buffer {
		return false
	}
	stats.MaxQueue = max(stats.MaxQueue, queue)
	if int(p.tail-p.head) == len(p.ring) {
		p.grow()
	}
	took := exact.Serialization(uint32(k.length), p.kbps)
	index, start := p.tail, max(now, p.busyUntil)
	if k.trimmed {
		index, start = p.overtake(now, start, took)
		p.reserved += uint64(k.length)
	}
	slot := p.at(index)
	*slot = *k
	slot.entered, slot.started = now, start
	slot.arrives = start + took + p.latency
	p.busyUntil = max(now, p.busyUntil) + took
	p.waiting += uint64(k.length)
	p.tail++
	return true
}

// overtake makes room in the ring before all whole packets that wait at now, and delays them by the
// time that the new packet takes. last is when the link is free for another packet at the end.
func (p *port) overtake(now, last, took int64) (index uint32, start int64) {
	index = p.begun
	for index != p.tail && (p.at(index).started <= now || p.at(index).trimmed) {
		index++
	}
	if index == p.tail {
		return index, last
	}
	start = p.at(index).started
	for n := p.tail; n != index; n-- {
		k := p.at(n)
		*k = *p.at(n - 1)
		k.started += took
		k.arrives += took
	}
	return index, start
}

// grow doubles the ring. The ring's size is bounded by the buffer, the reserve and the packets that
// fit on the link, so a port grows only a few times.
func (p *port) grow() {
	ring := make([]packet, max(16, 2*len(p.ring)))
	for n := p.head; n != p.tail; n++ {
		ring[n&uint32(len(ring)-1)] = *p.at(n)
	}
	p.ring = ring
}

// catchUp sets behind of all packets that started before now: the bytes of packets that entered
// before they started. Later packets do not count.
func (p *port) catchUp(now int64) {
	for p.begun != p.tail {
		k := p.at(p.begun)
		if k.started >= now {
			return
		}
		p.waiting -= uint64(k.length)
		if k.trimmed {
			p.reserved -= uint64(k.length)
		}
		k.behind = uint32(p.waiting)
		p.begun++
	}
}

// dequeue removes the head, which arrives at now.
func (p *port) dequeue(now int64) packet {
	p.catchUp(now)
	p.head++
	return *p.at(p.head - 1)
}

// nextArrival returns when the head arrives at the other end, or never.
func (p *port) nextArrival() int64 {
	if p.empty() {
		return never
	}
	return p.at(p.head).arrives
}

// meter measures how busy a port's link is. Links were idle before the run began and switches know
// it: the interval before the first one is complete and idle.
type meter struct {
	interval int64 // ps
	step     int64 // raw: the interval; EWMA: time between samples; DRE: time between decrements
	end      int64 // end of the present step
	busy     int64 // ps, in the present step; DRE: the register
	last     int64 // raw: ps, in the previous step

	smooth bool // steps are parts of the interval
	dre    bool
	weight uint8  // n of the weight 1/2^n
	share  uint64 // EWMA: busy share in units of 1/2^32

	// Quantized available bandwidth, valid until the estimate changes.
	coded bool
	codes [2]uint32 // indexed by csig.MinABW, csig.MinABWRatio
}

// meters sets the ports' meters as the scenario and its abw-estimator behaviors define them.
func (l *timeline) meters(ports []port) {
	s := l.scenario
	for i := range ports {
		ports[i].meter = newMeter(s.ABW, exact.Picoseconds(s.ABWInterval), s.ABWWeight)
	}
	for i := range l.items {
		if b := &l.items[i]; b.Kind == scenario.ABWEstimator {
			for _, n := range l.ports[i] {
				ports[n].meter = newMeter(cmp.Or(b.ABW, s.ABW), exact.Picoseconds(cmp.Or(b.Every, s.ABWInterval)), s.ABWWeight)
			}
		}
	}
}

const wholeLink = 1 << 32

// newMeter returns the meter of an idle link.
func newMeter(e scenario.Estimator, interval int64, weight uint8) meter {
	m := meter{interval: interval, step: interval, smooth: e != scenario.Raw, dre: e == scenario.DRE, weight: weight}
	if m.smooth {
		m.step = interval >> weight
	}
	m.end = m.step
	return m
}

// advance closes the steps that end at or before the time t.
func (m *meter) advance(t int64) {
	if t >= m.end {
		m.close(t)
	}
}

// close does the work of advance. Most packets close nothing, so it is a separate function that
// lets advance and add be inlined.
func (m *meter) close(t int64) {
	idle := (t - m.end) / m.step
	m.end += (idle + 1) * m.step
	m.coded = false
	switch {
	case m.dre:
		for n := idle + 1; n > 0 && m.busy > 0; n-- {
			m.busy -= max(m.busy>>m.weight, 1)
		}
	case m.smooth:
		m.sample(exact.MulDiv(uint64(m.busy), wholeLink, uint64(m.step)))
		for ; idle > 0 && m.share > 0; idle-- {
			m.sample(0)
		}
		m.busy = 0
	default:
		m.last = m.busy
		if idle > 0 {
			m.last = 0
		}
		m.busy = 0
	}
}

// sample moves the EWMA toward the busy share of a step. Shifting a negative number rounds down, as
// in hardware registers.
func (m *meter) sample(share uint64) {
	m.share = uint64(int64(m.share) + (int64(share)-int64(m.share))>>m.weight)
}

// add counts the link as busy from start to end. The caller must have called advance(start).
func (m *meter) add(start, end int64) {
	if m.dre || end > m.end {
		m.split(start, end)
		return
	}
	m.busy += end - start
}

// split adds a packet that spans several steps, or updates the DRE register.
func (m *meter) split(start, end int64) {
	m.coded = m.coded && !m.dre
	if long := (end - start) / m.step; m.smooth && long > saturation<<m.weight {
		// The estimate of a link this busy is saturated, so earlier steps no longer matter.
		start += (long - saturation<<m.weight) * m.step
		m.end = start + m.step
		if !m.dre {
			m.busy = 0
		}
	}
	for end > m.end {
		m.busy += m.end - start
		start = m.end
		m.close(start)
	}
	m.busy += end - start
}

// saturation is the number of intervals after which a smooth estimate has forgotten its past: after
// 16 a ten-millionth is left.
const saturation = 16

// available returns the free bandwidth by the estimate, in kbit/s and in parts per million.
func (m *meter) available(kbps uint64) (abw, ratio uint64) {
	free, whole := uint64(m.interval-m.last), uint64(m.interval)
	switch {
	case m.dre:
		free = uint64(max(m.interval-m.busy, 0))
	case m.smooth:
		free, whole = wholeLink-m.share, wholeLink
	}
	return exact.MulDiv(free, kbps, whole), exact.MulDiv(free, 1e6, whole)
}

// ECN codepoints (RFC 3168) of data packets.
const (
	ecnCapable     = 2
	ecnExperienced = 3
)

// markECN sets the ECN mark of a packet that leaves behind bytes in a switch's queue: never up to
// ECNMin, always from ECNMax, and with linearly growing probability in between. The IETF 124 slides
// ("max(nQD)") compare the queue at the same moment.
func (s *sim) markECN(k *packet, behind int64) {
	least, most := int64(s.scenario.ECNMin), int64(s.scenario.ECNMax)
	if behind <= least {
		return
	}
	if behind >= most || int64(s.marking.Below(uint64(most-least))) < behind-least {
		k.ecn = ecnExperienced
	}
}
