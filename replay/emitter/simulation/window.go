package simulation

import (
	"cmp"
	"math/bits"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// A controlled sender has one pending event: the time when it may send its next packet if its
// window has room, or else the time when it gives up on packets in flight.

// open schedules a flow's first packet. The flow's packet lengths and path must be set.
func (s *sim) open(number int32, f *flow) {
	f.payload = uint32(s.framer.Payload(f.style, int(f.dataLength), false, false))
	first := f.pace.first()
	if f.control != scenario.OpenLoop {
		f.window = s.newWindow(f)
		if f.pace.gap == 0 {
			// Without a rate, senders would start in step.
			first += int64(f.pace.random.Below(uint64(f.window.roundTrip * 1000)))
		}
		first = f.pace.resume(first)
		f.window.ready = first
	}
	s.sending.set(number, first)
}

// newWindow returns the window of a controlled sender.
func (s *sim) newWindow(f *flow) *window {
	idle := s.idleRoundTrip(f)
	var w *window
	if f.control.Marks() {
		w = newNSCC(&s.scenario.NSCC, s.ports[f.forward.Ports[0]].kbps, idle, f.payload)
	} else {
		p := s.scenario.Swift.WithDefaults()
		w = newSwift(&p, int(f.forward.N)-1)
	}
	w.perHop, w.roundTrip, w.base = f.control.PerHop(), idle, idle
	if w.perHop {
		w.base = s.pipeline / 1000
	}
	return w
}

// wake handles the event of a controlled sender and reports whether it may send.
func (s *sim) wake(f *flow, now int64) bool {
	w := f.window
	if w.room(f.sequence-f.acknowledged, f.payload) {
		return true
	}
	w.onTimeout(now)
	f.acknowledged = f.sequence
	return now >= w.ready
}

// pace determines when a controlled sender may send again after a packet sent at now. Its interface
// accepts a packet only when the previous one is on the link, so a sender never fills its
// interface's queue.
func (s *sim) pace(number int32, f *flow, now int64) {
	w := f.window
	next := max(now+w.pacingDelay(), s.ports[f.forward.Ports[0]].busyUntil)
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

// react updates the window of a controlled sender on an acknowledgement.
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
		w.onAck(now, delay, w.unheard, k.ecn == ecnExperienced)
		w.unheard = 0
	}
	w.expires = now + max(w.timeout, 4000*w.roundTrip)
	s.schedule(k.flow, f, now)
}

// worstHop returns the worst hop's delay in a reflection, in nanoseconds.
func (s *sim) worstHop(m *truth.Tag) (delay int64, ok bool) {
	if !m.Set || s.signals[m.Signal].Kind != csig.MaxDelay {
		return 0, false
	}
	return int64(s.signals[m.Signal].Table.Value(m.Code)), true
}

// idleRoundTrip returns the time that a full packet and its acknowledgement take through the idle
// network, in nanoseconds.
func (s *sim) idleRoundTrip(f *flow) int64 {
	data := int(f.dataLength) + s.framer.TagLen() + int(f.overhead)
	ack := s.framer.AckLen(f.style, true) + int(f.overhead)
	return (s.idle(&f.forward, data) + s.idle(&f.reverse, ack)) / 1000
}

func (s *sim) idle(r *scenario.Route, length int) int64 {
	total := int64(0)
	for _, number := range r.Ports[:r.N] {
		p := &s.ports[number]
		total += exact.Serialization(uint32(length), p.kbps) + p.latency
	}
	return total
}

// packetOne is one packet in the fixed-point numbers of windows.
const packetOne = 1 << 20

// window is the congestion window of one sender. Delays are nanoseconds, points in time
// picoseconds.
type window struct {
	perHop bool  // reacts to max(PD)
	base   int64 // delay through the idle network
	target int64 // delay beyond base, without flow scaling
	nscc   *nscc // nil: Swift's law

	flowRange                 int64
	flowMin, flowMax          int64 // inverse roots of the window bounds
	minCwnd, maxCwnd, size    int64 // in packetOne
	increase                  int64 // in packetOne
	beta, maxDecrease         int64 // parts per million; NSCC: maxDecrease on timeouts
	timeout                   int64 // ps
	roundTrip                 int64 // newest measurement
	decreased, ready, expires int64
	unheard                   int64 // acknowledged since the last delay, in packetOne
}

// newSwift returns a Swift window for a path of hops switches.
func newSwift(p *scenario.Swift, hops int) *window {
	milli := func(n int) int64 { return int64(n) * packetOne / 1000 }
	w := &window{
		target: (p.Target + time.Duration(hops)*p.HopTarget).Nanoseconds(), flowRange: max(p.FlowRange.Nanoseconds(), 0),
		flowMin: inverseRoot(milli(p.FlowMin)), flowMax: inverseRoot(milli(p.FlowMax)),
		minCwnd: milli(p.Min), maxCwnd: milli(p.Max), size: milli(p.First), increase: milli(p.Increase),
		beta: int64(p.Beta) * 1000, maxDecrease: int64(p.MaxDecrease) * 1000, timeout: exact.Picoseconds(p.Timeout),
	}
	w.decreased = -w.timeout
	return w
}

// room reports whether another packet may leave while bytes are in flight. A window below one
// packet allows one packet at a time; pacingDelay spaces them out.
func (w *window) room(bytes, payload uint32) bool {
	return bytes == 0 || uint64(bytes+payload)*packetOne <= uint64(w.size)*uint64(payload)
}

// pacingDelay returns the minimum time between packets in picoseconds: Swift's pacing delay, which
// applies only to windows below one packet.
func (w *window) pacingDelay() int64 {
	if w.size >= packetOne {
		return 0
	}
	return int64(exact.MulDiv(uint64(w.roundTrip)*1000, packetOne, uint64(w.size)))
}

// targetDelay returns the target delay of the present window. Large windows mean few flows on a
// link and get a lower target.
func (w *window) targetDelay() int64 {
	over := min(inverseRoot(w.size), w.flowMin) - w.flowMax
	if over <= 0 {
		return w.base + w.target
	}
	return w.base + w.target + int64(exact.MulDiv(uint64(w.flowRange), uint64(over), uint64(w.flowMin-w.flowMax)))
}

// onAck handles a delay that came with acknowledged packets (in packetOne). marked means that a
// queue marked them.
func (w *window) onAck(now, delay, acknowledged int64, marked bool) {
	if w.nscc != nil {
		w.nscc.onAck(w, now, max(delay-w.base, 0), acknowledged, marked)
		return
	}
	before, target := w.size, w.targetDelay()
	switch {
	case delay < target && w.size >= packetOne:
		w.size += int64(exact.MulDiv(uint64(w.increase), uint64(acknowledged), uint64(w.size)))
	case delay < target:
		w.size += int64(exact.MulDiv(uint64(w.increase), uint64(acknowledged), packetOne))
	case now-w.decreased >= w.roundTrip*1000:
		w.shrink(min(int64(exact.MulDiv(uint64(w.beta), uint64(delay-target), uint64(delay))), w.maxDecrease))
	}
	w.bound()
	if w.size < before {
		w.decreased = now
	}
}

func (w *window) bound() { w.size = min(max(w.size, w.minCwnd), w.maxCwnd) }

// onTimeout reacts to a timeout.
func (w *window) onTimeout(now int64) {
	w.shrink(w.maxDecrease)
	w.bound()
	w.decreased = now
}

func (w *window) shrink(ppm int64) {
	w.size -= int64(exact.MulDiv(uint64(w.size), uint64(ppm), 1e6))
}

// inverseRoot returns a million divided by the square root of a window.
func inverseRoot(size int64) int64 {
	return int64(root(1e12 * packetOne / uint64(size)))
}

// root returns the integer square root.
func root(n uint64) uint64 {
	if n < 2 {
		return n
	}
	x := uint64(1) << ((bits.Len64(n) + 1) / 2)
	for {
		y := (x + n/x) / 2
		if y >= x {
			return x
		}
		x = y
	}
}

const (
	referenceRoundTrip = 12_000  // ns
	referenceBytes     = 150_000 // bytes that 100 Gbit/s sends in it

	// averageWeight is the inverse weight of a delay in the average: 1/80, htsim's 0.0125.
	averageWeight = 80
	averageOne    = 1 << 16 // averages are fixed-point numbers of nanoseconds

	fastDelay      = 1000 // ns: below it the path is idle
	adjustPackets  = 8    // increases take effect after this many packets, or a round trip
	nsccGammaMilli = 800  // factor of the multiplicative decrease
	nsccLargestCut = 500  // maximum decrease of the window
)

// nscc is the control law of one sender's window. Windows and increases are in packetOne.
type nscc struct {
	roundTrip int64 // through the idle network, ns
	scale     int64 // bandwidth-delay product relative to the reference network's, in packetOne

	average  int64 // delay, in averageOne
	increase int64 // pending increase, times the window
	arrived  int64 // since the last adjustment
	idle     int64 // acknowledged in a row at delays below fastDelay
	fast     bool
	adjusted int64 // ps
	cut      int64 // last decrease of the window, ps
}

// newNSCC returns the window of a sender on a link of kbps. It starts at its maximum.
func newNSCC(p *scenario.NSCC, kbps uint64, roundTrip int64, payload uint32) *window {
	product := int64(exact.MulDiv(uint64(roundTrip), kbps, 8e6)) // bytes
	w := &window{
		target: p.Target.Nanoseconds(), timeout: exact.Picoseconds(p.Timeout),
		minCwnd: packetOne, maxCwnd: max(product*3/2*packetOne/int64(payload), packetOne),
		maxDecrease: nsccLargestCut * 1000,
		nscc:        &nscc{roundTrip: roundTrip, scale: product * packetOne / referenceBytes},
	}
	w.target = cmp.Or(w.target, roundTrip)
	if w.timeout == 0 {
		w.timeout = exact.Picoseconds(time.Millisecond)
	}
	w.size = w.maxCwnd
	return w
}

// onAck updates a window by a queueing delay that came with acknowledged packets (in packetOne). Of
// the four combinations of delay and mark, low delay with a mark changes nothing: the queue is
// about to shrink.
func (n *nscc) onAck(w *window, now, delay, acknowledged int64, marked bool) {
	n.weigh(w, delay, marked)
	switch high := delay >= w.target; {
	case high && marked:
		n.shrink(w, now)
	case high:
		n.add(acknowledged * 5)
	case !marked:
		n.grow(w, delay, acknowledged)
	}
	w.bound()
	n.arrived += acknowledged
	n.adjust(w, now)
}

// weigh averages delays. A high delay without a mark belongs to a queue that has drained since, so
// it counts as a quarter of the round trip.
func (n *nscc) weigh(w *window, delay int64, marked bool) {
	if !marked && delay > w.target {
		delay = n.roundTrip / 4
	}
	n.average += (delay*averageOne - n.average) / averageWeight
}

// add adds an increase of packets per window, which is pending until adjust.
func (n *nscc) add(packets int64) {
	n.increase += int64(exact.MulDiv(uint64(packets), uint64(n.scale), packetOne))
}

// grow increases the window in proportion to the gap to the target, or at once while the path is
// idle.
func (n *nscc) grow(w *window, delay, acknowledged int64) {
	if delay >= fastDelay {
		n.idle, n.fast = 0, false
	} else {
		n.idle += acknowledged
		n.fast = n.fast || n.idle > w.size
	}
	if n.fast {
		w.size += int64(exact.MulDiv(uint64(acknowledged), uint64(n.scale), 4*packetOne))
		return
	}
	n.add(int64(exact.MulDiv(uint64(4*acknowledged), uint64(w.target-delay), referenceRoundTrip)))
}

// shrink is the multiplicative decrease by the average delay, once per round trip.
func (n *nscc) shrink(w *window, now int64) {
	n.idle, n.fast = 0, false
	average := n.average / averageOne
	if average <= w.target || now-n.cut <= n.roundTrip*1000 {
		return
	}
	w.shrink(min(int64(exact.MulDiv(nsccGammaMilli*1000, uint64(average-w.target), uint64(average))), nsccLargestCut*1000))
	n.cut = now
}

// adjust applies the pending increase, and adds a constant once per round trip.
func (n *nscc) adjust(w *window, now int64) {
	late := now-n.adjusted >= n.roundTrip*1000
	if n.arrived <= adjustPackets*packetOne && !late {
		return
	}
	w.size += int64(exact.MulDiv(uint64(n.increase), packetOne, uint64(w.size)))
	if late {
		w.size += n.scale * 15 / 100
		n.adjusted = now
	}
	n.increase, n.arrived = 0, 0
	w.bound()
}
