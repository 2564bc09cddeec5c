package emitter

import (
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// fairness is the scenario of three flows of the IETF 124 slides ("Bottleneck Sharing
// in Delay Based CC"): a victim passes two congested hops, the uplink of its rack and
// the link down to its receiver's rack, and each of the other flows shares one of
// them. Senders keep Swift's window on max(PD), in fairnessE2E on the round trip.
//
// The slides give the ratio of the steady rates, fastest to victim, as about 5:1 with
// end-to-end delay and about 2.3:1 with max(PD). They do not give speeds, lengths and
// sizes; their baseline is NSCC, and their target queueing delay of 10.5 us is used
// here. With links of 100 Gbit/s, packets of 4096 bytes and 500 ns of propagation a
// link, this model gives 1.7 to 1.9 with max(PD), by the seed, and 44 with the round
// trip. The direction agrees, and so do the delays: end to end the victim stays above
// its target and the others below, with max(PD) all stay near it.
//
// In the model the victim starves end to end because nothing is random but the start
// of the senders: both others hold their queue near the target, so that the victim's
// two queues add up to about twice its own, always. What else was tried: 400 Gbit/s,
// 2.6 and 56; without flow scaling, 3.8 and 55; a target of 20 us, 1.8 and 56; packets
// of 1500 bytes, 1.6 and 21.
//
// Left out: retransmission (the buffers hold what the windows allow, nothing is
// lost), delays in hosts and Swift's window for them, and packet spraying.
func fairness() Scenario {
	return Scenario{
		Seed: 1, Duration: 40 * time.Millisecond,
		Leaves: 3, Spines: 1, HostsPerLeaf: 2, HostSpeed: 100 * Gbps, UplinkSpeed: 100 * Gbps,
		BufferBytes: 1 << 20, MTU: 4096, Window: time.Millisecond, ABWInterval: 100 * time.Microsecond,
		HeavyDelay: 10 * time.Microsecond, Signals: []csig.Signal{csig.MaxDelay},
		AckEvery: 1, SnapLen: 96, FlowTrace: 500 * time.Microsecond,
		Swift: Swift{Target: 10500 * time.Nanosecond},
		Workloads: []Workload{{
			Kind: Flows, Control: SwiftMaxPD,
			Flows: []Pair{
				{From: Host{1, 1}, To: Host{3, 2}}, // the victim
				{From: Host{1, 2}, To: Host{2, 1}}, // shares rack 1's uplink with it
				{From: Host{2, 2}, To: Host{3, 1}}, // shares the spine's link to rack 3 with it
			},
		}},
	}
}

// fairnessE2E is fairness with senders that react to the round trip.
func fairnessE2E() Scenario {
	s := fairness()
	s.Workloads[0].Control = SwiftE2E
	return s
}
