package scenario

import (
	"errors"
	"fmt"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// Estimator is the switches' method to compute available bandwidth (section 5.1.1).
type Estimator string

// Estimators. All of them take the bits sent as busy time times link speed, so the available share
// is exactly one minus the busy share.
const (
	// Raw is the busy share of the last complete interval (section 5.1.1; slides "CSIG at IEEE 802
	// Nendica", November 2023, "BW Measure").
	Raw Estimator = "raw"
	// EWMA samples the link's busy share every interval/2^n and moves toward it with a weight of
	// 1/2^n. Its time constant is the interval, like DRE's.
	EWMA Estimator = "ewma"
	// DRE adds every packet's busy time to a register that loses 1/2^n of itself every
	// interval/2^n: the Discounted Rate Estimator of CONGA. Its time constant is the interval.
	DRE Estimator = "dre"
)

func (e Estimator) check() error {
	if e != Raw && e != EWMA && e != DRE {
		return fmt.Errorf("abw %q: expected %s, %s or %s", e, Raw, EWMA, DRE)
	}
	return nil
}

// Control is a sender's congestion control.
type Control string

// Congestion controls. Open-loop senders follow their rate regardless. The others keep a congestion
// window as in Swift or NSCC, driven by the round-trip delay or by the delay of the worst hop,
// which reflections report (section 8.1.1).
const (
	OpenLoop   Control = ""
	SwiftE2E   Control = "swift"
	SwiftMaxPD Control = "swift-maxpd"
	NSCCE2E    Control = "nscc"
	NSCCMaxPD  Control = "nscc-maxpd"
)

// PerHop reports whether the control reacts to max(PD) instead of the round trip.
func (c Control) PerHop() bool { return c == SwiftMaxPD || c == NSCCMaxPD }

// Marks reports whether the control reacts to ECN marks.
func (c Control) Marks() bool { return c == NSCCE2E || c == NSCCMaxPD }

// Swift holds the parameters of senders with a Swift window: Algorithm 1 and flow scaling of
// "Swift: Delay is Simple and Effective for Congestion Control in the Datacenter" (SIGCOMM 2020,
// sections 3.1 and 3.2). The paper gives no production values. The defaults are those of its
// reproduction in the public simulator htsim (additive increase 1, beta 0.8, max_mdf 0.5, flow
// scaling up to five targets over windows of 0.1 to 100 packets).
//
// Target covers queues only. The delay of the same packets through an idle network is added to it,
// or for max(PD) the switch's pipeline delay. This replaces the paper's allowance for propagation,
// in the base target and per hop.
type Swift struct {
	Target    time.Duration `yaml:"target,omitempty"`     // base target; default 20 us
	HopTarget time.Duration `yaml:"hop_target,omitempty"` // added for each switch of the path; default 0
	FlowRange time.Duration `yaml:"flow_range,omitempty"` // maximum that flow scaling adds; default 5 targets; negative: none

	// Windows, in thousandths of packets.
	FlowMin int `yaml:"flow_min_window,omitempty"` // gets all of FlowRange; default 100
	FlowMax int `yaml:"flow_max_window,omitempty"` // gets none of it; default 100000
	Min     int `yaml:"min_window,omitempty"`      // default 10
	Max     int `yaml:"max_window,omitempty"`      // default 1000000
	First   int `yaml:"first_window,omitempty"`    // default 10000

	Increase    int `yaml:"increase,omitempty"`     // thousandths of a packet per round trip; default 1000
	Beta        int `yaml:"beta,omitempty"`         // thousandths; default 800
	MaxDecrease int `yaml:"max_decrease,omitempty"` // maximum, in thousandths of the window; default 500

	// Timeout is the silence after which a sender with a full window counts its packets in flight
	// as lost; at least four round trips. Default 1 ms.
	Timeout time.Duration `yaml:"timeout,omitempty"`
}

// WithDefaults returns the parameters with defaults in place of zero fields.
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

// NSCC holds the parameters of senders with the window of Ultra Ethernet's network signal-based
// congestion control (Ultra Ethernet Specification 1.0), which reacts to queueing delay and ECN
// marks. Network-dependent constants are scaled from a reference network of 100 Gbit/s and 12 us.
// Control law and constants follow the public simulator htsim.
//
// Reactions to loss (quick adapt, trimmed packets) and the choice of paths are left out.
type NSCC struct {
	Target time.Duration `yaml:"target,omitempty"` // queueing delay; default the round trip through the idle network
	// Timeout works as in Swift. Default 1 ms.
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

// Transport carries the data of a workload's flows.
type Transport string

// Transports: TCP, with reflections in an option (section 4.2.1), and one over UDP with reflections
// in its own header, like PonyExpress (section 4.2.2).
const (
	TCP  Transport = ""
	Pony Transport = "pony"
)

// Reflect is the receiver's rule to merge the tags that an acknowledgement covers into one
// reflection (section 4.2).
type Reflect string

// Reflection rules. Latest reflects the tag of the last tagged packet. Worst reflects the worst tag
// of one signal; the signals that the packets carried take turns, and the others are not reflected,
// as the draft allows.
const (
	ReflectLatest Reflect = ""
	ReflectWorst  Reflect = "worst"
)

// Position of the reflection in the header of the transport over UDP; package frames has the rest.
const (
	PonyPort   = 40123 // destination of every packet, data or acknowledgement
	PonyFields = 2     // offset of the data fields
	PonyValid  = 0x01  // flag: the fields are valid
)

// UDPRepeat is the time within which a reflection over UDP counts as a repeat if it equals the last
// one of its flow: the default of the reader's key windows.udp_repeat.
const UDPRepeat = 10 * time.Microsecond

// ponyReflections returns the extractor for the reflections of the transport over UDP, or nothing
// if no workload uses that transport.
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
