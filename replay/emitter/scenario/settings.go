package scenario

import (
	"errors"
	"fmt"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// Estimator is how switches compute available bandwidth (section 5.1.1).
type Estimator string

// The estimators. In all of them the bits that exited are the time in which the link
// was busy times its speed, so the available share is one minus the busy share,
// exactly.
const (
	// Raw is the busy share of the last complete interval (section 5.1.1; slides "CSIG
	// at IEEE 802 Nendica", November 2023, "BW Measure").
	Raw Estimator = "raw"
	// EWMA samples the busy share of the link every interval/2^n and moves by a weight of
	// 1/2^n toward it: its time constant is the interval, as that of DRE is.
	EWMA Estimator = "ewma"
	// DRE adds every packet's busy time to a register that loses 1/2^n of itself every
	// interval/2^n: the Discounted Rate Estimator of CONGA, whose time constant is the
	// interval.
	DRE Estimator = "dre"
)

func (e Estimator) check() error {
	if e != Raw && e != EWMA && e != DRE {
		return fmt.Errorf("abw %q: expected %s, %s or %s", e, Raw, EWMA, DRE)
	}
	return nil
}

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

// Marks tells whether the control reacts to ECN marks.
func (c Control) Marks() bool { return c == NSCCE2E || c == NSCCMaxPD }

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

// WithDefaults fills in what is zero.
func (p Swift) WithDefaults() Swift {
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

const maxWindow = 10_000_000 // thousandths of packets

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

// Transport is what carries the data of a workload's flows.
type Transport string

// The transports: TCP, with reflections in an option (section 4.2.1), and one over
// UDP with reflections in its own header, as PonyExpress does it (section 4.2.2).
const (
	TCP  Transport = ""
	Pony Transport = "pony"
)

// Reflect is how a receiver makes one reflection of the tags that an acknowledgement
// covers (section 4.2).
type Reflect string

// The summaries. Latest reflects the tag of the last tagged packet. Worst reflects
// the worst tag of one signal, and the signals that the packets carried take turns:
// of the others nothing is told, as the draft allows.
const (
	ReflectLatest Reflect = ""
	ReflectWorst  Reflect = "worst"
)

// Where the header of the transport over UDP has its reflection; package frames has the rest of it.
const (
	PonyPort   = 40123 // of every packet, data and acknowledgements alike
	PonyFields = 2     // offset of the data fields
	PonyValid  = 0x01  // flag: they are valid
)

// UDPRepeat is the time within which a reflection over UDP that says the same as the last
// one of its flow counts as a repeat: the default of readers' windows.udp_repeat.
const UDPRepeat = 10 * time.Microsecond

// ponyReflections tells readers where the header has its reflection; the list is
// empty if no workload uses the transport.
func (s *Scenario) ponyReflections() []csig.UDPReflectionSpec {
	for i := range s.Workloads {
		if s.Workloads[i].Transport == Pony {
			return []csig.UDPReflectionSpec{{
				Ports: []uint16{PonyPort}, Offset: PonyFields,
				Format: s.Layout.Format.String(), Profile: s.Layout.Profile.String(),
				ValidOffset: 0, ValidMask: PonyValid,
			}}
		}
	}
	return nil
}
