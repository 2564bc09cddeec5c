package emitter

import (
	"fmt"
	"time"
)

// NSCC is the parameters of senders with the window of Ultra Ethernet's network
// signal-based congestion control (Ultra Ethernet Specification 1.0), which reacts to
// the queueing delay and to ECN marks. What depends on the network is derived from a
// reference network of 100 Gbit/s and 12 us. Law and constants are those that the
// public simulator htsim has for it.
//
// What it does after losses is left out (quick adapt, and the reaction to trimmed
// packets), as is the choice of paths.
type NSCC struct {
	Target time.Duration `yaml:"target,omitempty"` // queueing delay; default the round trip through the idle network
	// Timeout is that of Swift. Default 1 ms.
	Timeout time.Duration `yaml:"timeout,omitempty"`
}

func (p *NSCC) check() error {
	switch {
	case p.Target < 0 || p.Target > time.Second:
		return fmt.Errorf("target %s: expected 0 to 1s", p.Target)
	case p.Timeout < 0 || p.Timeout > time.Minute:
		return fmt.Errorf("timeout %s: expected 0 to 1m", p.Timeout)
	}
	return nil
}

const (
	referenceRoundTrip = 12_000  // ns
	referenceBytes     = 150_000 // that 100 Gbit/s send in it

	// averageWeight weighs a delay in the average: 1/80, htsim's 0.0125.
	averageWeight = 80
	averageOne    = 1 << 16 // averages are fixed-point numbers of nanoseconds

	fastDelay      = 1000 // ns: below it the path is idle
	adjustPackets  = 8    // increases take effect after so many packets, or a round trip
	nsccGammaMilli = 800  // of the multiplicative decrease,
	nsccLargestCut = 500  // which takes at most so much of the window
)

// nscc is the law of the window of one sender. Windows and increases count
// packetOne.
type nscc struct {
	roundTrip int64 // through the idle network, ns
	scale     int64 // bandwidth-delay product, in units of the reference network's; of packetOne

	average  int64 // delay, of averageOne
	increase int64 // that waits, times the window
	arrived  int64 // since the last adjustment
	idle     int64 // acknowledged at delays below fastDelay in a row
	fast     bool
	adjusted int64 // ps
	cut      int64 // when the window shrank last, ps
}

// newNSCC makes the window of a sender whose link carries so many kbit/s. It begins
// at its largest.
func newNSCC(p *NSCC, kbps uint64, roundTrip int64, payload uint32) *window {
	product := int64(mulDiv(uint64(roundTrip), kbps, 8e6)) // bytes
	w := &window{
		target: p.Target.Nanoseconds(), timeout: ps(p.Timeout),
		least: packetOne, most: max(product*3/2*packetOne/int64(payload), packetOne),
		maxDecrease: nsccLargestCut * 1000,
		nscc:        &nscc{roundTrip: roundTrip, scale: product * packetOne / referenceBytes},
	}
	if w.target == 0 {
		w.target = roundTrip
	}
	if w.timeout == 0 {
		w.timeout = ps(time.Millisecond)
	}
	w.size = w.most
	return w
}

// hear moves a window by a queueing delay that came with acknowledged packets (in
// packetOne). Of the four cases that delay and mark make, low delay with a mark
// changes nothing: the queue is about to shrink.
func (n *nscc) hear(w *window, now, delay, acknowledged int64, marked bool) {
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

// weigh averages delays. High delays of packets that no queue marked are of a queue
// that has gone since, and count as a quarter of the round trip.
func (n *nscc) weigh(w *window, delay int64, marked bool) {
	if !marked && delay > w.target {
		delay = n.roundTrip / 4
	}
	n.average += (delay*averageOne - n.average) / averageWeight
}

// add lets the increase of packets, spread over a window, wait for its adjustment.
func (n *nscc) add(packets int64) {
	n.increase += int64(mulDiv(uint64(packets), uint64(n.scale), packetOne))
}

// grow is the increase in proportion to what the target leaves, or at once while the
// path is idle.
func (n *nscc) grow(w *window, delay, acknowledged int64) {
	if delay >= fastDelay {
		n.idle, n.fast = 0, false
	} else {
		n.idle += acknowledged
		n.fast = n.fast || n.idle > w.size
	}
	if n.fast {
		w.size += int64(mulDiv(uint64(acknowledged), uint64(n.scale), 4*packetOne))
		return
	}
	n.add(int64(mulDiv(uint64(4*acknowledged), uint64(w.target-delay), referenceRoundTrip)))
}

// shrink is the multiplicative decrease, once in a round trip, by the average delay.
func (n *nscc) shrink(w *window, now int64) {
	n.idle, n.fast = 0, false
	average := n.average / averageOne
	if average <= w.target || now-n.cut <= n.roundTrip*1000 {
		return
	}
	w.shrink(min(int64(mulDiv(nsccGammaMilli*1000, uint64(average-w.target), uint64(average))), nsccLargestCut*1000))
	n.cut = now
}

// adjust lets waiting increases take effect, and adds a little once in a round trip.
func (n *nscc) adjust(w *window, now int64) {
	late := now-n.adjusted >= n.roundTrip*1000
	if n.arrived <= adjustPackets*packetOne && !late {
		return
	}
	w.size += int64(mulDiv(uint64(n.increase), packetOne, uint64(w.size)))
	if late {
		w.size += n.scale * 15 / 100
		n.adjusted = now
	}
	n.increase, n.arrived = 0, 0
	w.bound()
}
