package emitter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// library holds the scenarios that come with the package. Speeds are those of a scaled model, so
// that seconds of a whole fabric fit into files of some megabytes; the threshold of
// delay is scaled with them.
func library() map[string]func() Scenario {
	return map[string]func() Scenario{
		"demo":        demo,
		"quickstart":  quickstart,
		"incast":      incast,
		"ring":        ring,
		"alltoall":    allToAll,
		"fabric-like": fabricLike,
		"worst-case":  worstCase,

		"tree":        tree,
		"pipeline":    pipeline,
		"permutation": permutation,
		"storage":     storage,
		"straggler":   straggler,
		"probes":      probes,
		"pony":        pony,

		"three-tier":        threeTier,
		"mixed-generations": mixedGenerations,
		"figure5":           figure5,

		"partial-deployment": partialDeployment,
		"rogue":              rogue,
		"trimming":           trimming,

		"overlay":    overlay,
		"ipv6":       ipv6,
		"vlans":      vlans,
		"mirrors":    mirrors,
		"noisy-taps": noisyTaps,

		"fairness":     fairness,
		"fairness-e2e": controlled(NSCCE2E),

		"fairness-swift":     controlled(SwiftMaxPD),
		"fairness-swift-e2e": controlled(SwiftE2E),
	}
}

// Names lists the scenarios that Named knows, in alphabetical order.
func Names() []string { return slices.Sorted(maps.Keys(library())) }

// Named returns a copy of the scenario of that name, which the caller may change.
func Named(name string) (Scenario, error) {
	f, ok := library()[name]
	if !ok {
		return Scenario{}, fmt.Errorf("find scenario %q: expected one of %s", name, strings.Join(Names(), ", "))
	}
	s := f()
	s.Name, s.Summary = name, summaries[name]
	return s.withDefaults(), nil
}

// small is the fabric that the single-workload scenarios share: 4 racks of 4 hosts.
func small() Scenario {
	return Scenario{
		Seed: 1, Duration: 5 * time.Second,
		Leaves: 4, Spines: 2, HostsPerLeaf: 4, HostSpeed: Gbps, UplinkSpeed: 2 * Gbps,
		MTU: 4096, HeavyDelay: 500 * time.Microsecond, TagEvery: 4, AckEvery: 8,
	}
}

// demo is a training job on 12 of 16 racks. The links of rack 5 have two fifths of
// the speed of the others, and for some seconds nine hosts write to one host of rack
// 14. Many connections spread the job over the uplinks, so that no others congest.
func demo() Scenario {
	return Scenario{
		Seed: 1, Duration: 24 * time.Second,
		Leaves: 16, Spines: 4, HostsPerLeaf: 4, HostSpeed: Gbps, UplinkSpeed: Gbps,
		RackUplinkSpeed: map[int]Rate{5: 400 * Mbps},
		MTU:             9000, HeavyDelay: 500 * time.Microsecond,
		TagEvery: 20, AckEvery: 40, RepeatAckEvery: 50, SnapLen: 96,
		Workloads: []Workload{
			{
				Kind: Ring, Racks: racks(1, 12), Rate: 480 * Mbps, Connections: 32,
				Period: 4 * time.Second, Burst: 2 * time.Second, Start: 500 * time.Millisecond,
			},
			{
				Kind: Incast, Racks: []int{1, 2, 3, 7, 9, 11, 13, 15, 16}, HostsPerRack: 1,
				Target: Host{Rack: 14, Host: 2}, Rate: 125 * Mbps, Connections: 4,
				Start: 9 * time.Second, End: 17 * time.Second,
			},
			{Kind: Background, Rate: 5 * Mbps, TagEvery: 1},
		},
	}
}

func quickstart() Scenario {
	s := small()
	s.Duration = 4 * time.Second
	s.Workloads = []Workload{
		{Kind: Ring, Rate: 300 * Mbps, Period: time.Second, Burst: 500 * time.Millisecond},
		{Kind: Incast, Racks: []int{1, 2, 3}, HostsPerRack: 1, Target: Host{Rack: 4, Host: 1}, Rate: 400 * Mbps, Start: 2 * time.Second},
		{Kind: Background, Rate: 10 * Mbps},
	}
	return s
}

func incast() Scenario {
	s := small()
	s.Workloads = []Workload{{
		Kind: Incast, Target: Host{Rack: 4, Host: 1}, Sources: 6, Rate: 200 * Mbps,
		Start: time.Second, End: 4 * time.Second,
	}, {Kind: Background, Rate: 10 * Mbps}}
	return s
}

func ring() Scenario {
	s := small()
	s.RackUplinkSpeed = map[int]Rate{2: Gbps}
	s.Workloads = []Workload{{
		Kind: Ring, Rate: 600 * Mbps, Connections: 8, Period: time.Second, Burst: 600 * time.Millisecond,
	}}
	return s
}

func allToAll() Scenario {
	s := small()
	s.Workloads = []Workload{{
		Kind: AllToAll, Rate: 800 * Mbps, Period: time.Second, Burst: 500 * time.Millisecond,
	}}
	return s
}

// fabricLike is the file that the speed of the pipeline is stated on: 10 million
// packets of 104 captured bytes on average, of which many agree in window, cell,
// signal and location.
func fabricLike() Scenario {
	return Scenario{
		Seed: 1, Duration: time.Minute, Packets: 10_000_000,
		Leaves: 8, Spines: 4, HostsPerLeaf: 8, HostSpeed: Gbps, UplinkSpeed: Gbps,
		RackUplinkSpeed: map[int]Rate{3: 500 * Mbps},
		MTU:             1500, HeavyDelay: 100 * time.Microsecond,
		TagEvery: 1, AckEvery: 4, SnapLen: 112, Classic: true, SingleFile: true,
		Workloads: []Workload{
			{Kind: AllToAll, Rate: 200 * Mbps},
			{Kind: Ring, Rate: 200 * Mbps, Connections: 4, Period: 2 * time.Second, Burst: time.Second},
			{Kind: Incast, Target: Host{Rack: 6, Host: 1}, Sources: 8, Rate: 120 * Mbps, Start: 2 * time.Second, End: 6 * time.Second},
		},
	}
}

// worstCase leaves nothing to aggregate: each packet has a location of its own.
func worstCase() Scenario {
	return Scenario{
		Seed: 1, Duration: 5 * time.Second, Packets: 5_000_000, RandomFlows: 20_000,
		Leaves: 64, Spines: 8, HostsPerLeaf: 32, HostSpeed: 100 * Gbps, UplinkSpeed: 400 * Gbps,
		SnapLen: 104, Classic: true, SingleFile: true,
	}
}

func racks(first, last int) []int {
	var list []int
	for r := first; r <= last; r++ {
		list = append(list, r)
	}
	return list
}
