package emitter

// serialization is how long a link of kbps is busy with so many bytes, in
// picoseconds, rounded up so that no link ever carries more than its speed.
func serialization(bytes uint32, kbps uint64) int64 {
	return int64((uint64(bytes)*8e9 + kbps - 1) / kbps)
}

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
	stats [2]portStats // of the present and the next window of the truth
}

// portStats is the truth about a port in one window.
type portStats struct {
	bytes    uint64
	busy     int64  // ps
	drops    uint64 // by a full buffer
	maxQueue uint64

	discards, stripped, inserted, trimmed uint64
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
func (p *port) enqueue(now int64, k *packet, room uint64, stats *portStats) bool {
	queue := p.backlog(now) + uint64(k.length)
	if queue > room {
		return false
	}
	stats.maxQueue = max(stats.maxQueue, queue)
	if int(p.tail-p.head) == len(p.ring) {
		p.grow()
	}
	slot := p.at(p.tail)
	*slot = *k
	slot.entered = now
	slot.started = max(now, p.busyUntil)
	p.busyUntil = slot.started + serialization(uint32(k.length), p.kbps)
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
