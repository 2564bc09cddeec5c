package simulation

import (
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// flow is one connection: data from its sender, acknowledgements from its receiver. Loss is not
// repaired: the receiver acknowledges the highest byte it has, as if it had given up on gaps.
type flow struct {
	tuple, back      scenario.FiveTuple // of data, and of the opposite direction
	src, dst         int32              // hosts
	forward, reverse scenario.Route
	tagged           []scenario.Route // routes of data by signal; nil unless a device hashes tags
	style            uint8            // index in the framer
	overhead         uint16           // bytes that the encapsulation adds to a frame
	cell, cellBack   int32            // cells of the truth: sender's to receiver's rack, and back

	// Whether data and acknowledgements entered switches, by Recorder.Side of the truth.
	entered, enteredBack [2]bool

	// The sender.
	pace         pacing
	control      scenario.Control
	marks        bool       // packets are ECN-capable
	window       *window    // nil: open loop
	transfers    *transfers // nil: one endless transfer
	payload      uint32     // bytes of data in a full packet
	acknowledged uint32     // first byte not yet acknowledged; window only
	urgent       uint32     // end of the packet that must be acknowledged at once
	tagEvery     int32
	untilTag     int32 // data packets until the next tagged one
	tags         uint32
	sequence     uint32 // of the next byte
	heard        uint32 // newest TCP timestamp from the receiver
	reflected    [csig.NumKnown]reflected
	dataLength   uint16 // of an untagged data frame

	// The receiver.
	ackEvery   int32
	unacked    int32  // data packets since the last acknowledgement
	highest    uint32 // end of the received data
	ackTags    uint32
	newest     truth.Tag // newest tag received; set until it is reflected
	summary    *summary  // replaces newest if the worst tag is reflected
	ackSource  uint32
	acksToCopy int32

	sent, delivered, dropped, trimmed uint64 // packets of both directions
}

// reflected is the last reflection of a signal that a sender received.
type reflected struct {
	mark truth.Tag
	ack  uint32 // newest acknowledgement number with a reflection
	at   int64  // ps, last reflection that counted
}

// route returns the route of a packet.
func (f *flow) route(k *packet) *scenario.Route {
	switch {
	case k.ack:
		return &f.reverse
	case f.tagged != nil && k.tag.Set:
		return &f.tagged[k.tag.Signal]
	}
	return &f.forward
}

// signalAt assigns one of n signals to the count'th tag. Any n successive tags have each signal
// once, and any n*n tags have each signal once at each place, so that a receiver that reflects only
// every k-th tag still reflects all signals. It is the digit sum of count in base n, modulo n.
func signalAt(count uint32, n uint32) uint8 {
	if n == 1 {
		return 0
	}
	sum := uint32(0)
	for ; count > 0; count /= n {
		sum += count % n
	}
	return uint8(sum % n)
}

// send sends the next data packet of a flow.
func (s *sim) send(number int32, now int64) {
	f := &s.flows[number]
	if f.window != nil && !s.wake(f, now) {
		s.schedule(number, f, now)
		return
	}
	k := packet{
		flow: number, number: f.sequence, stamp: s.stamp(now), echo: f.heard, length: f.dataLength,
		sent: clock(max(now, s.ports[f.forward.Ports[0]].busyUntil)),
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

// following returns when the packet after the one sent at now leaves. It is next, or later if a new
// transfer has to begin first.
func (f *flow) following(now, next int64) int64 {
	if f.transfers != nil && f.transfers.left == 0 {
		f.urgent = f.sequence
		next = max(next, f.transfers.begin(now))
	}
	return f.pace.resume(next)
}

// tag adds a tag with the next signal in turn (section 4.3.3) to the packet.
func (s *sim) tag(k *packet, count *uint32) {
	index := signalAt(*count, uint32(len(s.signals)))
	*count++
	k.tag = startTag(&s.signals[index], index)
	k.length += uint16(s.framer.TagLen())
}

func (s *sim) start(f *flow, r *scenario.Route, now int64, k *packet) {
	f.sent++
	s.sent++
	k.id = uint32(f.sent)
	k.length += s.encapOverhead(f, 0, r.N)
	s.enter(r.Ports[0], now, k)
}

// deliver delivers a packet to the host at the end of its route.
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

// received handles a data packet at the receiver. The receiver stores tags and reflects one on its
// next acknowledgement (section 4.3.2), from those that arrived since the previous acknowledgement.
// If the sender has nothing more to send for now, its packet is acknowledged at once.
func (s *sim) received(f *flow, now int64, k *packet) {
	if k.tag.Set {
		s.truth.Observe(now, f.cell, &k.tag, 0)
		s.remember(f, &k.tag)
	}
	payload := uint32(s.framer.Payload(f.style, int(k.length), k.tag.Set, false))
	if s.trace != nil {
		s.trace.arrived(s, now, k, payload)
	}
	if f.ackEvery < 0 {
		return
	}
	end := k.number + payload
	if int32(end-f.highest) > 0 {
		f.highest = end
	}
	f.unacked++
	if f.unacked < f.ackEvery && end != f.urgent {
		return
	}
	f.unacked = 0
	a := packet{flow: k.flow, ack: true, number: f.highest, stamp: s.stamp(now), echo: k.stamp, sent: k.sent, ecn: k.ecn}
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
	a.length = uint16(s.framer.AckLen(f.style, a.reflects.Set))
	if s.scenario.TagAcks {
		s.tag(&a, &f.ackTags)
	}
	s.start(f, &f.reverse, now, &a)
}

// heard handles an acknowledgement at the sender.
func (s *sim) heard(f *flow, now int64, k *packet) {
	f.heard = k.stamp
	if k.tag.Set {
		s.truth.Observe(now, f.cellBack, &k.tag, 0)
	}
	if s.trace != nil {
		s.trace.heard(s, now, k)
	}
	if f.window != nil {
		s.react(f, now, k)
	}
	if k.reflects.Set && !f.repeats(now, k) {
		s.truth.Observe(now, f.cell, &k.reflects, 1)
	}
}

// repeats reports whether a reflection repeats the last measurement of its signal: it has the same
// fields and acknowledges nothing new. Over UDP, where readers see no acknowledgement numbers, it
// repeats if it has the same fields and follows within scenario.UDPRepeat.
func (f *flow) repeats(now int64, k *packet) bool {
	last := &f.reflected[k.reflects.Signal]
	same := last.mark.SameOnWire(&k.reflects)
	if f.tuple.DstPort == scenario.PonyPort {
		// Readers' times are in nanoseconds.
		same = same && now/1000-last.at/1000 < scenario.UDPRepeat.Nanoseconds()
	} else if fresh := int32(k.number - last.ack); fresh > 0 || !last.mark.Set {
		last.ack, same = k.number, false
	}
	if !same {
		last.mark, last.at = k.reflects, now
	}
	return same
}

// summary holds the worst tag of each signal since the last acknowledgement.
type summary struct {
	worst [csig.NumKnown]truth.Tag // by index in Scenario.Signals
	turn  uint8                    // signal to reflect next, if it has a tag
}

// remember stores the tag of an arriving packet for the next acknowledgement.
func (s *sim) remember(f *flow, m *truth.Tag) {
	if f.summary == nil {
		f.newest = *m
		return
	}
	w := &f.summary.worst[m.Signal]
	if !w.Set || s.signals[m.Signal].Direction.Tighter(m.Code, w.Code) {
		*w = *m
	}
}

// reflection returns the reflection for the next acknowledgement; it is not set if no tag arrived
// since the last one.
func (f *flow) reflection(signals int) truth.Tag {
	if f.summary == nil {
		m := f.newest
		f.newest.Set = false
		return m
	}
	var m truth.Tag
	for i := range signals {
		n := (int(f.summary.turn) + i) % signals
		if f.summary.worst[n].Set {
			m, f.summary.turn = f.summary.worst[n], uint8((n+1)%signals)
			break
		}
	}
	f.summary.worst = [csig.NumKnown]truth.Tag{}
	return m
}
