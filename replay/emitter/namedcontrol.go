package emitter

import (
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

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
