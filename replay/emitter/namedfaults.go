package emitter

import "time"

// partialDeployment is a brownfield (section 6.3): one spine forwards tags unchanged,
// one rack's switch renews its values in software, one supports two signals, one drops
// tagged packets, so that the spines strip tags before it, and the last one is the
// edge of the domain.
func partialDeployment() Scenario {
	s := small()
	s.Leaves, s.Spines = 6, 3
	s.Devices = []Behavior{
		{Match: "spine2", Kind: PassThrough},
		{Match: "leaf2", Kind: Software, Every: 100 * time.Millisecond},
		{Match: "leaf3", Kind: Limited, Signals: []string{"min_abw", "min_abw_ratio"}},
		{Match: "leaf4", Kind: Discard},
		{Match: "spine*", Peer: "leaf4", Kind: Strip},
		{Match: "leaf6", Kind: EgressEdge},
	}
	s.Workloads = []Workload{
		{Kind: Ring, Rate: 300 * Mbps, Connections: 8, Period: time.Second, Burst: 600 * time.Millisecond, Racks: []int{1, 2, 3, 5, 6}},
		{Kind: Incast, Target: Host{Rack: 3, Host: 2}, Racks: []int{1, 2, 5, 6}, Sources: 8, Rate: 150 * Mbps, Start: 2 * time.Second, End: 4 * time.Second},
		// Nobody behind the switch that drops tagged packets sends any.
		{Kind: Flows, Rate: 50 * Mbps, TagEvery: -1, Flows: []Pair{{From: Host{4, 1}, To: Host{1, 2}}, {From: Host{4, 2}, To: Host{6, 2}}}},
		{Kind: Background, Racks: []int{1, 2, 3, 5, 6}, Rate: 5 * Mbps},
		{Kind: Flows, Rate: 5 * Mbps, Flows: []Pair{{From: Host{1, 1}, To: Host{4, 1}}, {From: Host{2, 1}, To: Host{4, 2}}, {From: Host{5, 1}, To: Host{4, 3}}}},
	}
	return s
}

// rogue has every fault in turn, each for half a second at one port or switch, and a
// host that forges tags all the time, while the uplinks of rack 3 are truly congested.
func rogue() Scenario {
	s := small()
	s.Duration = 8 * time.Second
	half := 500 * time.Millisecond
	s.Faults = []Behavior{
		{Match: "leaf1:up*", Kind: Stuck, Values: map[string]string{"min_abw": "1Mbps", "min_abw_ratio": "1%"}},
		{Match: "leaf2:up*", Kind: Overwrite},
		{Match: "leaf3:up*", Kind: WrongLM},
		{Match: "spine1", Kind: LMOnly},
		{Match: "spine1", Kind: ValueOnly},
		{Match: "spine2", Kind: Reset},
		{Match: "spine2:down1", Kind: Insert, OneIn: 4},
		{Match: "leaf4:down*", Kind: NoMetric},
		{Match: "leaf4", Kind: Misbucketed, Shift: -400},
	}
	for i := range s.Faults {
		s.Faults[i].Start = time.Duration(i+1) * half
		s.Faults[i].End = s.Faults[i].Start + half
	}
	s.Faults = append(s.Faults, Behavior{Match: "host2-4", Kind: Forge, Values: map[string]string{"max_delay": "100ms", "min_abw": "0Mbps"}})
	s.Devices = []Behavior{{Match: "leaf2", Kind: IngressEdge, Start: 6 * time.Second}}
	s.RackUplinkSpeed = map[int]Rate{3: Gbps}
	s.Workloads = []Workload{
		{Kind: Ring, Rate: 600 * Mbps, Connections: 8, Period: time.Second, Burst: 700 * time.Millisecond},
		{Kind: Background, Rate: 10 * Mbps},
	}
	return s
}

// trimming is an incast into shallow buffers whose switches cut what does not fit to
// its headers, and one of them goes on updating tags that are frozen.
func trimming() Scenario {
	s := small()
	s.Duration = 3 * time.Second
	s.BufferBytes, s.TrimBuffer = 64<<10, 16<<10
	s.RackUplinkSpeed = map[int]Rate{2: 500 * Mbps}
	s.Faults = []Behavior{{Match: "spine2", Kind: IgnoreTrim, Start: time.Second}}
	s.Workloads = []Workload{
		{Kind: Incast, Target: Host{Rack: 4, Host: 1}, Sources: 8, Rate: 300 * Mbps, Start: time.Second},
		{Kind: Permutation, Rate: 300 * Mbps, Connections: 4},
	}
	return s
}
