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
	behind   uint32 // bytes that were left in the queue when it started
	length   uint16 // of the frame, without check sequence
	hop      int8   // index of the present queue in the route
	ack      bool   // travels from the flow's receiver to its sender
	trimmed  bool   // cut to its headers
	ecn      uint8  // codepoint; of acknowledgements: of the data that they answer
	tag      truth.Mark
	reflects truth.Mark
}

// clock is the time on the clock that packets carry: it wraps every 4.3 s.
func clock(now int64) uint32 { return uint32(now / 1000) }

// age is the time since the packet was sent, or that which it acknowledges, in
// nanoseconds.
func (k *packet) age(now int64) int64 { return int64(clock(now) - k.sent) }

// port is an egress queue and the link behind it. Packets stay in its ring, in the order
// in which they leave, from the time they enter the queue until they arrive at the other
// end of the link.
type port struct {
	kbps    uint64
	latency int64 // from the last bit on the link to the next queue, ps
	buffer  uint64
	reserve uint64 // room beside the buffer that trimmed packets alone take
	transit bool   // a switch's port: measures and updates tags

	ring              []packet // its length is a power of two
	head, begun, tail uint32   // running counts; packets before begun have left the queue
	waiting           uint64   // bytes of packets in [begun, tail)
	reserved          uint64   // of these, of trimmed ones
	busyUntil         int64    // end of the last packet in the ring on the link

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

// enqueue takes a packet in if there is room: in the reserve for a trimmed packet, which
// overtakes the others, else in the buffer.
func (p *port) enqueue(now int64, k *packet, stats *truth.PortStats) bool {
	p.settle(now)
	queue := p.backlog(now) + uint64(k.length)
	if k.trimmed && p.reserved+uint64(k.length) > p.reserve || !k.trimmed && queue-p.reserved > p.buffer {
		return false
	}
	stats.MaxQueue = max(stats.MaxQueue, queue)
	if int(p.tail-p.head) == len(p.ring) {
		p.grow()
	}
	took := exact.Serialization(uint32(k.length), p.kbps)
	place, start := p.tail, max(now, p.busyUntil)
	if k.trimmed {
		place, start = p.overtake(now, start, took)
		p.reserved += uint64(k.length)
	}
	slot := p.at(place)
	*slot = *k
	slot.entered, slot.started = now, start
	slot.arrives = start + took + p.latency
	p.busyUntil = max(now, p.busyUntil) + took
	p.waiting += uint64(k.length)
	p.tail++
	return true
}

// overtake makes room in the ring before all whole packets that wait at the time now, and
// delays these by the time that the new one takes. last is when the link is free for
// another packet behind them.
func (p *port) overtake(now, last, took int64) (place uint32, start int64) {
	place = p.begun
	for place != p.tail && (p.at(place).started <= now || p.at(place).trimmed) {
		place++
	}
	if place == p.tail {
		return place, last
	}
	start = p.at(place).started
	for n := p.tail; n != place; n-- {
		k := p.at(n)
		*k = *p.at(n - 1)
		k.started += took
		k.arrives += took
	}
	return place, start
}

// grow doubles the ring. Its size is bounded by the buffer and the reserve, and what fits
// on the link, so this happens a few times in the life of a port.
func (p *port) grow() {
	ring := make([]packet, max(16, 2*len(p.ring)))
	for n := p.head; n != p.tail; n++ {
		ring[n&uint32(len(ring)-1)] = *p.at(n)
	}
	p.ring = ring
}

// settle says of packets that started before the time now how many bytes they left behind:
// what entered up to their start, and no later packet, is in the queue.
func (p *port) settle(now int64) {
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

// dequeue removes the head, which arrives at the time now.
func (p *port) dequeue(now int64) packet {
	p.settle(now)
	p.head++
	return *p.at(p.head - 1)
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
	step     int64 // raw: the interval; EWMA: between samples; DRE: between losses
	end      int64 // of the step that is being measured
	busy     int64 // ps, in that step; DRE: the register
	last     int64 // raw: ps, in the step before

	smooth bool // steps are parts of the interval
	dre    bool
	weight uint8  // n of 1/2^n
	share  uint64 // EWMA: busy share in units of 1/2^32

	// What the port offers in terms of the quantization tables, valid until the estimate
	// changes.
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

// close does the work of advance. Most packets have nothing to close: apart, advance
// and add cost no call.
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

// sample moves the estimate of EWMA toward the busy share of a step. The shift of a
// negative number rounds down, as registers do.
func (m *meter) sample(share uint64) {
	m.share = uint64(int64(m.share) + (int64(share)-int64(m.share))>>m.weight)
}

// add counts the link as busy from start to end; advance(start) came before.
func (m *meter) add(start, end int64) {
	if m.dre || end > m.end {
		m.split(start, end)
		return
	}
	m.busy += end - start
}

// split adds a packet that is on the link in more than one step, or moves the register
// of DRE.
func (m *meter) split(start, end int64) {
	m.coded = m.coded && !m.dre
	if long := (end - start) / m.step; m.smooth && long > saturation<<m.weight {
		// The estimate of a busy link does not change any more: it forgets earlier steps.
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

// saturation is after how many intervals a smooth estimate forgets: 16 leave a
// ten-millionth.
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
