package emitter

// send makes the next data packet of a flow.
func (s *sim) send(number int32, now int64) {
	f := &s.flows[number]
	if f.window != nil && !s.wake(f, now) {
		s.schedule(number, f, now)
		return
	}
	k := packet{
		flow: number, number: f.sequence, stamp: s.stamp(now), echo: f.heard, length: f.dataLength,
		sent: clock(max(now, s.ports[f.forward.ports[0]].busyUntil)),
	}
	if f.marks {
		k.ecn = ecnCapable
	}
	payload := f.payload
	if f.transfers != nil {
		payload = f.transfers.take(payload)
		k.length -= uint16(f.payload - payload)
	}
	if f.tagEvery > 0 {
		if f.untilTag == 0 {
			f.untilTag = f.tagEvery
			s.tag(&k, &f.tags)
		}
		f.untilTag--
	}
	f.sequence += payload
	s.start(f, &f.forward, now, &k)
	if f.window != nil {
		s.pace(number, f, now)
		return
	}
	next := f.pace.after(now)
	if f.transfers != nil {
		next = f.following(now, next)
	}
	s.sending.set(number, next)
}

// following is when the packet after the one sent at the time now leaves, if its
// sender could do it at next: not before the transfer that it belongs to.
func (f *flow) following(now, next int64) int64 {
	if f.transfers != nil && f.transfers.left == 0 {
		f.urgent = f.sequence
		next = max(next, f.transfers.begin(now))
	}
	return f.pace.resume(next)
}

// tag makes the packet carry the next signal in turn (section 4.3.3).
func (s *sim) tag(k *packet, count *uint32) {
	index := signalAt(*count, uint32(len(s.signals)))
	*count++
	k.tag = s.signals[index].start(index)
	k.length += uint16(s.framer.tagLen())
}

func (s *sim) start(f *flow, r *route, now int64, k *packet) {
	f.sent++
	s.sent++
	k.id = uint32(f.sent)
	k.length += s.around(f, 0, r.n)
	s.enter(r.ports[0], now, k)
}

// deliver hands a packet to the host at the end of its route.
func (s *sim) deliver(f *flow, now int64, k *packet) error {
	f.delivered++
	s.delivered++
	if k.ack {
		s.heard(f, now, k)
	} else {
		s.received(f, now, k)
	}
	return nil
}

// received is the receiver's part: it remembers tags and reflects one on its next
// acknowledgement (section 4.3.2). An acknowledgement reflects only what arrived
// since the one before it. A packet that leaves its sender nothing more to send for
// now is acknowledged at once.
func (s *sim) received(f *flow, now int64, k *packet) {
	if k.tag.set {
		s.truth.observe(now, f.cell, &k.tag, 0)
		s.remember(f, &k.tag)
	}
	payload := uint32(s.framer.payload(f.style, int(k.length), k.tag.set, false))
	if s.trace != nil {
		s.trace.arrived(s, now, k, payload)
	}
	if f.ackEvery < 0 {
		return
	}
	end := k.number + payload
	f.unacked++
	if f.unacked < f.ackEvery && end != f.urgent {
		return
	}
	f.unacked = 0
	a := packet{flow: k.flow, ack: true, number: end, stamp: s.stamp(now), echo: k.stamp, sent: k.sent, ecn: k.ecn}
	a.reflects = f.reflection(len(s.signals))
	s.acknowledge(f, now, a)
	if f.acksToCopy > 0 {
		if f.acksToCopy--; f.acksToCopy == 0 {
			f.acksToCopy = int32(s.scenario.RepeatAckEvery)
			s.acknowledge(f, now, a)
		}
	}
}

func (s *sim) acknowledge(f *flow, now int64, a packet) {
	a.length = uint16(s.framer.ackLen(f.style, a.reflects.set))
	if s.scenario.TagAcks {
		s.tag(&a, &f.ackTags)
	}
	s.start(f, &f.reverse, now, &a)
}

// heard is the sender's part. A reflection that repeats the one before it under the
// same acknowledgement number is the same measurement.
func (s *sim) heard(f *flow, now int64, k *packet) {
	f.heard = k.stamp
	if k.tag.set {
		s.truth.observe(now, f.cellBack, &k.tag, 0)
	}
	if s.trace != nil {
		s.trace.heard(s, now, k)
	}
	if f.window != nil {
		s.react(f, now, k)
	}
	if !k.reflects.set || (f.lastMark.sameOnWire(&k.reflects) && f.lastAck == k.number) {
		return
	}
	f.lastMark, f.lastAck = k.reflects, k.number
	s.truth.observe(now, f.cell, &k.reflects, 1)
}
