package emitter

import (
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// fairness is the scenario of three flows of the IETF 124 slides ("Bottleneck Sharing
// in Delay Based CC"): a victim passes two congested hops, the uplink of its rack and
// the link down to its receiver's rack, and each of the other flows shares one of
// them. Senders keep NSCC's window, as in the slides, on max(PD); the library has the
// other controls beside it.
//
// The slides give the ratio of the steady rates, fastest to victim, as about 5:1 with
// end-to-end delay and about 2.3:1 with max(PD). They do not give speeds, packets and
// thresholds of marking. With their target queueing delay of 10.5 us, links of 100
// Gbit/s, 500 ns of propagation a link, packets of 4096 bytes and htsim's thresholds,
// this model gives
//
//	                               max(PD)   round trip
//	NSCC                           2.2-2.3    9.2-9.8   by the seed
//	NSCC, 400 Gbit/s               1.9        8.5
//	NSCC, 1 us of propagation      3.1       20
//	NSCC, marks at 0.5 to 1.5 BDP  2.1        3.8
//	Swift                          1.7-1.9   44
//	Swift, 400 Gbit/s              2.6       56
//	Swift, without flow scaling    3.8       55
//
// So the ratio with max(PD) is that of the slides, and the other one depends on when
// queues mark: the more they do below the target, the longer the others' queues stay
// where they neither grow nor shrink, which the victim meets twice. The delays are
// as in the slides' figures: end to end the victim's stays above the target and the
// others' below it, with max(PD) all are near it.
//
// Left out: losses and what senders do about them (the buffers hold what windows
// allow, nothing is lost), delays in hosts and Swift's window for them, spraying.
func fairness() Scenario {
	return Scenario{
		Seed: 1, Duration: 40 * time.Millisecond,
		Leaves: 3, Spines: 1, HostsPerLeaf: 2, HostSpeed: 100 * Gbps, UplinkSpeed: 100 * Gbps,
		BufferBytes: 1 << 20, MTU: 4096, Window: time.Millisecond, ABWInterval: 100 * time.Microsecond,
		HeavyDelay: 5 * time.Microsecond, Signals: []csig.Signal{csig.MaxDelay},
		AckEvery: 1, SnapLen: 96, FlowTrace: 500 * time.Microsecond,
		NSCC:  NSCC{Target: 10500 * time.Nanosecond},
		Swift: Swift{Target: 10500 * time.Nanosecond},
		// htsim's defaults: a fifth and four fifths of the bandwidth-delay product.
		ECNMin: 22_350, ECNMax: 89_400,
		Workloads: []Workload{{
			Kind: Flows, Control: NSCCMaxPD,
			Flows: []Pair{
				{From: Host{1, 1}, To: Host{3, 2}}, // the victim
				{From: Host{1, 2}, To: Host{2, 1}}, // shares rack 1's uplink with it
				{From: Host{2, 2}, To: Host{3, 1}}, // shares the spine's link to rack 3 with it
			},
		}},
	}
}

// controlled is a fairness scenario with another control.
func controlled(c Control) func() Scenario {
	return func() Scenario {
		s := fairness()
		s.Workloads[0].Control = c
		return s
	}
}
