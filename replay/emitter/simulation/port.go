package simulation

import (
	"cmp"

	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// packet is one packet in a queue or on the link behind it. Times are picoseconds
// since the start of the run.
type packet struct {
	entered  int64 // into the queue
	started  int64 // left the queue, first bit on the link
	arrives  int64 // in the next queue, or at the receiver
	flow     int32
	id       uint32 // number of the packet in its flow, both directions
	number   uint32 // of data: sequence number; of acknowledgements: acknowledgement number
	stamp    uint32 // TCP timestamp of the sender
	echo     uint32 // TCP timestamp that it answers
	sent     uint32 // when the data left its sender, see age; of acknowledgements: that which they answer
	length   uint16 // of the frame, without check sequence
	hop      int8   // index of the present queue in the route
	ack      bool   // travels from the flow's receiver to its sender
	ecn      uint8  // codepoint; of acknowledgements: of the data that they answer
	tag      truth.Mark
	reflects truth.Mark
}

// clock is the time on the clock that packets carry: it wraps every 4.3 s.
func clock(now int64) uint32 { return uint32(now / 1000) }

// age is the time since the packet was sent, or that which it acknowledges, in
// nanoseconds.
func (k *packet) age(now int64) int64 { return int64(clock(now) - k.sent) }

// port is an egress queue and the link behind it. Packets stay in its ring from
// the time they enter the queue until they arrive at the other end of the link.
type port struct {
	kbps    uint64
	latency int64 // from the last bit on the link to the next queue, ps
	buffer  uint64
	transit bool // a switch's port: measures and updates tags

	ring             []packet // its length is a power of two
	head, tail, seen uint32   // running counts; seen is how far departures have looked ahead
	behind           int64    // bytes of packets in [head, seen)
	busyUntil        int64    // end of the last packet in the ring on the link

	policy *policy // nil: complete support

	meter meter
	stats [2]truth.PortStats // of the present and the next window of the truth
}

func (p *port) empty() bool         { return p.head == p.tail }
func (p *port) at(n uint32) *packet { return &p.ring[n&uint32(len(p.ring)-1)] }

// backlog is the bytes that wait or are on their way out at the time now.
func (p *port) backlog(now int64) uint64 {
	if p.busyUntil <= now {
		return 0
	}
	return (uint64(p.busyUntil-now)*p.kbps + 8e9 - 1) / 8e9
}

// enqueue takes a packet in unless the queue would be longer than room.
func (p *port) enqueue(now int64, k *packet, room uint64, stats *truth.PortStats) bool {
	queue := p.backlog(now) + uint64(k.length)
	if queue > room {
		return false
	}
	stats.MaxQueue = max(stats.MaxQueue, queue)
	if int(p.tail-p.head) == len(p.ring) {
		p.grow()
	}
	slot := p.at(p.tail)
	*slot = *k
	slot.entered = now
	slot.started = max(now, p.busyUntil)
	p.busyUntil = slot.started + exact.Serialization(uint32(k.length), p.kbps)
	slot.arrives = p.busyUntil + p.latency
	p.tail++
	return true
}

// grow doubles the ring. Its size is bounded by the buffer and what fits on the
// link, so this happens a few times in the life of a port.
func (p *port) grow() {
	ring := make([]packet, max(16, 2*len(p.ring)))
	for n := p.head; n != p.tail; n++ {
		ring[n&uint32(len(ring)-1)] = *p.at(n)
	}
	p.ring = ring
}

// dequeue removes the head, which the caller has used, and returns how many bytes
// it left behind in the queue when it started: arrivals up to that time are in the
// ring, since they entered before the head arrives at its next hop.
func (p *port) dequeue(k *packet) (behind int64) {
	for p.seen != p.tail {
		next := p.at(p.seen)
		if next.entered > k.started {
			break
		}
		p.behind += int64(next.length)
		p.seen++
	}
	p.behind -= int64(k.length)
	p.head++
	return p.behind
}

// nextArrival is when the head arrives at the other end, or never.
func (p *port) nextArrival() int64 {
	if p.empty() {
		return never
	}
	return p.at(p.head).arrives
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
		ports[i].meter = newMeter(s.ABW, exact.Picoseconds(s.ABWInterval), s.ABWWeight)
	}
	for i := range l.items {
		if b := &l.items[i]; b.Kind == scenario.Metering {
			for _, n := range l.ports[i] {
				ports[n].meter = newMeter(cmp.Or(b.ABW, s.ABW), exact.Picoseconds(cmp.Or(b.Every, s.ABWInterval)), s.ABWWeight)
			}
		}
	}
}

const wholeLink = 1 << 32

// newMeter is the meter of an idle link.
func newMeter(e scenario.Estimator, interval int64, weight uint8) meter {
	m := meter{interval: interval, end: interval, smooth: e != scenario.Raw, dre: e == scenario.DRE, weight: weight}
	switch e {
	case scenario.DRE:
		m.end = interval >> weight
	case scenario.EWMA:
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
	now := exact.MulDiv(uint64(end-start), wholeLink, uint64(end-m.last))
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
	return exact.MulDiv(free, kbps, whole), exact.MulDiv(free, 1e6, whole)
}

// ECN codepoints (RFC 3168) that data packets have.
const (
	ecnCapable     = 2
	ecnExperienced = 3
)

// mark is what a switch's queue does to a packet that leaves so many bytes behind: up
// to ECNMin none is marked, from ECNMax on every one, and between them the more the
// longer the queue. The IETF 124 slides ("max(nQD)") compare it at the same moment.
func (s *sim) mark(k *packet, behind int64) {
	least, most := int64(s.scenario.ECNMin), int64(s.scenario.ECNMax)
	if behind <= least {
		return
	}
	if behind >= most || int64(s.marking.Below(uint64(most-least))) < behind-least {
		k.ecn = ecnExperienced
	}
}
