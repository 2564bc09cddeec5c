package emitter

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// Control is how a sender decides when it may send.
type Control string

// The controls. Open loop senders follow their rate whatever happens. The others
// keep a congestion window as Swift or NSCC do, on the delay of the whole round trip
// or on that of the worst hop, as reflections report it (section 8.1.1).
const (
	OpenLoop   Control = ""
	SwiftE2E   Control = "swift"
	SwiftMaxPD Control = "swift-maxpd"
	NSCCE2E    Control = "nscc"
	NSCCMaxPD  Control = "nscc-maxpd"
)

// PerHop tells whether the control reacts to max(PD) and not to the round trip.
func (c Control) PerHop() bool { return c == SwiftMaxPD || c == NSCCMaxPD }

// marks tells whether the control reacts to ECN marks.
func (c Control) marks() bool { return c == NSCCE2E || c == NSCCMaxPD }

// Swift is the parameters of senders with a congestion window: those of Algorithm 1
// and of flow scaling in "Swift: Delay is Simple and Effective for Congestion
// Control in the Datacenter" (SIGCOMM 2020, sections 3.1 and 3.2). The paper gives
// the algorithm and no numbers for production; the defaults here are those of its
// reproduction in the public simulator htsim (additive increase 1, beta 0.8, max_mdf
// 0.5, flow scaling up to five targets over windows of 0.1 to 100 packets).
//
// Target is that of the queues: what the same packets take through an idle network
// is added to it, and for max(PD) the switch's pipeline. This takes the place of the
// paper's allowance for propagation, in the base target and for each hop.
type Swift struct {
	Target    time.Duration `yaml:"target,omitempty"`     // base target; default 20 us
	HopTarget time.Duration `yaml:"hop_target,omitempty"` // added for each switch of the path; default 0
	FlowRange time.Duration `yaml:"flow_range,omitempty"` // most that flow scaling adds; default 5 targets; negative: none

	// Windows count thousandths of packets.
	FlowMin int `yaml:"flow_min_window,omitempty"` // gets all of FlowRange; default 100
	FlowMax int `yaml:"flow_max_window,omitempty"` // gets nothing of it; default 100000
	Min     int `yaml:"min_window,omitempty"`      // default 10
	Max     int `yaml:"max_window,omitempty"`      // default 1000000
	First   int `yaml:"first_window,omitempty"`    // default 10000

	Increase    int `yaml:"increase,omitempty"`     // thousandths of a packet for each round trip; default 1000
	Beta        int `yaml:"beta,omitempty"`         // thousandths; default 800
	MaxDecrease int `yaml:"max_decrease,omitempty"` // thousandths of the window at most; default 500

	// Timeout is when a sender with a full window that hears nothing takes what is
	// on its way for lost; at least four round trips. Default 1 ms.
	Timeout time.Duration `yaml:"timeout,omitempty"`
}

func (p Swift) withDefaults() Swift {
	orDefault(&p.Target, 20*time.Microsecond)
	orDefault(&p.FlowRange, 5*p.Target)
	orDefault(&p.FlowMin, 100)
	orDefault(&p.FlowMax, 100_000)
	orDefault(&p.Min, 10)
	orDefault(&p.Max, 1_000_000)
	orDefault(&p.First, 10_000)
	orDefault(&p.Increase, 1000)
	orDefault(&p.Beta, 800)
	orDefault(&p.MaxDecrease, 500)
	orDefault(&p.Timeout, time.Millisecond)
	return p
}

func (p *Swift) check() error {
	switch {
	case p.Target < time.Nanosecond || p.Target > time.Second:
		return fmt.Errorf("target %s: expected 1ns to 1s", p.Target)
	case p.HopTarget < 0 || p.HopTarget > time.Second:
		return fmt.Errorf("hop_target %s: expected 0 to 1s", p.HopTarget)
	case p.FlowRange > 10*time.Second:
		return fmt.Errorf("flow_range %s: expected at most 10s", p.FlowRange)
	case p.FlowMin < 1 || p.FlowMax <= p.FlowMin || p.FlowMax > maxWindow:
		return fmt.Errorf("flow_min_window %d, flow_max_window %d: expected 1 to %d, and room between them", p.FlowMin, p.FlowMax, maxWindow)
	case p.Min < 1 || p.Max < p.Min || p.Max > maxWindow || p.First < p.Min || p.First > p.Max:
		return fmt.Errorf("min_window %d, first_window %d, max_window %d: expected 1 to %d, in this order", p.Min, p.First, p.Max, maxWindow)
	case p.Increase < 1 || p.Increase > maxWindow:
		return fmt.Errorf("increase %d: expected 1 to %d", p.Increase, maxWindow)
	case p.Beta < 1 || p.Beta > 1000 || p.MaxDecrease < 1 || p.MaxDecrease > 1000:
		return errors.New("beta and max_decrease: expected 1 to 1000")
	case p.Timeout < time.Microsecond || p.Timeout > time.Minute:
		return fmt.Errorf("timeout %s: expected 1us to 1m", p.Timeout)
	}
	return nil
}

const (
	maxWindow = 10_000_000 // thousandths of packets

	// packetOne is one packet of a window: windows are fixed-point numbers.
	packetOne = 1 << 20
)

// window is the congestion window of one sender. Delays are nanoseconds, points in
// time picoseconds.
type window struct {
	perHop bool  // reacts to max(PD)
	base   int64 // the delay through the idle network
	target int64 // of what is beyond it, without flow scaling
	nscc   *nscc // its law; nil: Swift's

	flowRange                 int64
	flowMin, flowMax          int64 // inverse roots of the windows
	least, most, size         int64 // of packetOne
	increase                  int64 // of packetOne
	beta, maxDecrease         int64 // parts per million; NSCC: maxDecrease of timeouts
	timeout                   int64 // ps
	roundTrip                 int64 // newest measurement
	decreased, ready, expires int64
	unheard                   int64 // acknowledged since the last delay, of packetOne
}

// newSwift makes a window for a path over so many switches.
func newSwift(p *Swift, hops int) *window {
	milli := func(n int) int64 { return int64(n) * packetOne / 1000 }
	w := &window{
		target: (p.Target + time.Duration(hops)*p.HopTarget).Nanoseconds(), flowRange: max(p.FlowRange.Nanoseconds(), 0),
		flowMin: inverseRoot(milli(p.FlowMin)), flowMax: inverseRoot(milli(p.FlowMax)),
		least: milli(p.Min), most: milli(p.Max), size: milli(p.First), increase: milli(p.Increase),
		beta: int64(p.Beta) * 1000, maxDecrease: int64(p.MaxDecrease) * 1000, timeout: ps(p.Timeout),
	}
	w.decreased = -w.timeout
	return w
}

// room tells whether another packet may leave while so many bytes are on their way.
// A window below one packet lets one go at a time; pause spreads those.
func (w *window) room(bytes, payload uint32) bool {
	return bytes == 0 || uint64(bytes+payload)*packetOne <= uint64(w.size)*uint64(payload)
}

// pause is the least time between packets, in picoseconds: Swift's pacing delay,
// which it has only below one packet.
func (w *window) pause() int64 {
	if w.size >= packetOne {
		return 0
	}
	return int64(mulDiv(uint64(w.roundTrip)*1000, packetOne, uint64(w.size)))
}

// wanted is the target delay of the present window: wide windows, of few flows on a
// link, leave shorter queues.
func (w *window) wanted() int64 {
	over := min(inverseRoot(w.size), w.flowMin) - w.flowMax
	if over <= 0 {
		return w.base + w.target
	}
	return w.base + w.target + int64(mulDiv(uint64(w.flowRange), uint64(over), uint64(w.flowMin-w.flowMax)))
}

// hear takes a delay that came with acknowledged packets (in packetOne), and whether
// a queue marked them.
func (w *window) hear(now, delay, acknowledged int64, marked bool) {
	if w.nscc != nil {
		w.nscc.hear(w, now, max(delay-w.base, 0), acknowledged, marked)
		return
	}
	before, target := w.size, w.wanted()
	switch {
	case delay < target && w.size >= packetOne:
		w.size += int64(mulDiv(uint64(w.increase), uint64(acknowledged), uint64(w.size)))
	case delay < target:
		w.size += int64(mulDiv(uint64(w.increase), uint64(acknowledged), packetOne))
	case now-w.decreased >= w.roundTrip*1000:
		w.shrink(min(int64(mulDiv(uint64(w.beta), uint64(delay-target), uint64(delay))), w.maxDecrease))
	}
	w.bound()
	if w.size < before {
		w.decreased = now
	}
}

func (w *window) bound() { w.size = min(max(w.size, w.least), w.most) }

// lose is the reaction to a timeout.
func (w *window) lose(now int64) {
	w.shrink(w.maxDecrease)
	w.bound()
	w.decreased = now
}

func (w *window) shrink(ppm int64) {
	w.size -= int64(mulDiv(uint64(w.size), uint64(ppm), 1e6))
}

// inverseRoot is a million divided by the square root of a window.
func inverseRoot(size int64) int64 {
	return int64(root(1e12 * packetOne / uint64(size)))
}

// root is the integer square root.
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
