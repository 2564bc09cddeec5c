package emitter

import "github.com/csigscope/csigscope/decode/csig"

// A controlled sender has one event at a time in the agenda: the time when it may
// send its next packet, if its window has room, or else the time when it gives up
// hope for what is on its way.

// open readies a flow, whose packets' lengths and path are known, for its first
// packet.
func (s *sim) open(number int32, f *flow) {
	f.payload = uint32(s.framer.payload(f.style, int(f.dataLength), false, false))
	first := f.pace.first()
	if f.control != OpenLoop {
		f.window = s.newWindow(f)
		if f.pace.gap == 0 {
			// Without a rate nothing else keeps senders from starting in step.
			first += int64(f.pace.random.below(uint64(f.window.roundTrip * 1000)))
		}
		first = f.pace.resume(first)
		f.window.ready = first
	}
	s.sending.set(number, first)
}

// newWindow makes the window of a controlled sender.
func (s *sim) newWindow(f *flow) *window {
	idle := s.idleRoundTrip(f)
	var w *window
	if f.control.marks() {
		w = newNSCC(&s.scenario.NSCC, s.ports[f.forward.ports[0]].kbps, idle, f.payload)
	} else {
		p := s.scenario.Swift.withDefaults()
		w = newSwift(&p, int(f.forward.n)-1)
	}
	w.perHop, w.roundTrip, w.base = f.control.PerHop(), idle, idle
	if w.perHop {
		w.base = s.pipeline / 1000
	}
	return w
}

// wake handles the event of a controlled sender, and tells whether it may send.
func (s *sim) wake(f *flow, now int64) bool {
	w := f.window
	if w.room(f.sequence-f.acknowledged, f.payload) {
		return true
	}
	w.lose(now)
	f.acknowledged = f.sequence
	return now >= w.ready
}

// pace finds out when a controlled sender may send again after a packet that it sent
// at the time now. Its network interface takes a packet only when the one before it
// is on the link, so that no sender fills the interface's queue.
func (s *sim) pace(number int32, f *flow, now int64) {
	w := f.window
	next := max(now+w.pause(), s.ports[f.forward.ports[0]].busyUntil)
	if f.pace.gap > 0 {
		next = max(next, f.pace.after(now))
	}
	w.ready = f.following(now, next)
	w.expires = now + max(w.timeout, 4000*w.roundTrip)
	if !w.room(f.sequence-f.acknowledged, f.payload) {
		f.urgent = f.sequence
	}
	s.schedule(number, f, now)
}

// schedule sets the sender's next event.
func (s *sim) schedule(number int32, f *flow, now int64) {
	w := f.window
	at := w.ready
	if at != never && !w.room(f.sequence-f.acknowledged, f.payload) {
		at = w.expires
	}
	s.sending.set(number, max(at, now))
}

// react moves the window of a controlled sender that hears an acknowledgement.
func (s *sim) react(f *flow, now int64, k *packet) {
	w := f.window
	if fresh := int32(k.number - f.acknowledged); fresh > 0 {
		f.acknowledged = k.number
		w.unheard += int64(fresh) * packetOne / int64(f.payload)
	}
	w.roundTrip = k.age(now)
	delay, known := w.roundTrip, true
	if w.perHop {
		delay, known = s.worstHop(&k.reflects)
	}
	if known {
		w.hear(now, delay, w.unheard, k.ecn == ecnExperienced)
		w.unheard = 0
	}
	w.expires = now + max(w.timeout, 4000*w.roundTrip)
	s.schedule(k.flow, f, now)
}

// worstHop is the delay of the worst hop that a reflection reports, in nanoseconds.
func (s *sim) worstHop(m *mark) (delay int64, ok bool) {
	if !m.set || s.signals[m.signal].kind != csig.MaxDelay {
		return 0, false
	}
	return int64(s.signals[m.signal].table.Value(m.code)), true
}

// idleRoundTrip is how long a full packet and its acknowledgement take through the
// idle network, in nanoseconds.
func (s *sim) idleRoundTrip(f *flow) int64 {
	data := int(f.dataLength) + s.framer.tagLen() + int(f.overhead)
	ack := s.framer.ackLen(f.style, true) + int(f.overhead)
	return (s.idle(&f.forward, data) + s.idle(&f.reverse, ack)) / 1000
}

func (s *sim) idle(r *route, length int) int64 {
	total := int64(0)
	for _, number := range r.ports[:r.n] {
		p := &s.ports[number]
		total += serialization(uint32(length), p.kbps) + p.latency
	}
	return total
}
