package emitter

import "time"

// threeTier is the 5-stage Clos of Figure 5, in small: four pods of racks,
// aggregation switches and cores, oversubscribed 2:1 above the racks, with a job on
// all pods, an incast across them and a rack with slow uplinks.
func threeTier() Scenario {
	return Scenario{
		Seed: 1, Duration: 5 * time.Second,
		Pods:  []Pod{{Count: 4, Racks: 4, Aggs: 2, HostsPerRack: 4, Oversubscription: Ratio{2, 1}}},
		Cores: 4, HostSpeed: Gbps, CoreSpeed: Gbps,
		RackUplinkSpeed: map[int]Rate{6: 400 * Mbps},
		MTU:             4096, HeavyDelay: 500 * time.Microsecond, TagEvery: 4, AckEvery: 8,
		Workloads: []Workload{
			{Kind: Ring, Racks: racks(1, 12), Rate: 300 * Mbps, Connections: 8, Period: time.Second, Burst: 500 * time.Millisecond},
			{Kind: Incast, Target: Host{Rack: 15, Host: 2}, Sources: 8, Rate: 150 * Mbps, Start: 2 * time.Second, End: 4 * time.Second},
			{Kind: Background, Rate: 2 * Mbps},
		},
	}
}

// mixedGenerations joins an old pod, a pod of twice its speed with deeper buffers,
// and a new one of four times; the racks of the old one have links to each other.
func mixedGenerations() Scenario {
	return Scenario{
		Seed: 1, Duration: 5 * time.Second,
		Pods: []Pod{
			{Racks: 4, Aggs: 2, HostsPerRack: 4, HostSpeed: 250 * Mbps, UplinkSpeed: 250 * Mbps, CoreSpeed: 500 * Mbps, BufferBytes: 128 << 10},
			{Racks: 4, Aggs: 2, HostsPerRack: 4, HostSpeed: 500 * Mbps, UplinkSpeed: Gbps, CoreSpeed: Gbps},
			{Racks: 2, Aggs: 4, HostsPerRack: 8, HostSpeed: Gbps, UplinkSpeed: 2 * Gbps, CoreSpeed: 2 * Gbps, BufferBytes: 1 << 20},
		},
		Cores: 4, SideLinks: []SideLink{{Stage: "tor", Speed: 250 * Mbps}},
		MTU: 4096, HeavyDelay: 500 * time.Microsecond, TagEvery: 4, AckEvery: 8,
		Workloads: []Workload{
			{Kind: Permutation, Rate: 120 * Mbps, Connections: 4, Period: time.Second, Burst: 600 * time.Millisecond},
			{Kind: AllToAll, Racks: []int{9, 10}, Rate: 400 * Mbps, Start: time.Second, End: 4 * time.Second},
			{Kind: Background, Rate: 2 * Mbps},
		},
	}
}
