package emitter

import "time"

// tree is an all-reduce over a binary tree whose root sits in rack 1: inner nodes
// receive from two children at once.
func tree() Scenario {
	s := small()
	s.Workloads = []Workload{{
		Kind: Tree, Rate: 700 * Mbps, Connections: 4, Period: time.Second, Burst: 800 * time.Millisecond,
	}}
	return s
}

// pipeline is a model in four stages, one a rack; the links between racks 2 and 3 of
// the model are the slow ones.
func pipeline() Scenario {
	s := small()
	s.RackUplinkSpeed = map[int]Rate{3: Gbps}
	s.Workloads = []Workload{{
		Kind: Pipeline, Rate: 600 * Mbps, Connections: 4, MicroBatches: 8,
		Period: time.Second, Burst: 900 * time.Millisecond,
	}}
	return s
}

// permutation shows what ECMP does to few large flows: some uplinks get two.
func permutation() Scenario {
	s := small()
	s.Spines, s.UplinkSpeed = 4, Gbps
	s.Workloads = []Workload{{Kind: Permutation, Rate: 900 * Mbps}}
	return s
}

// storage is transfers of heavy-tailed sizes between random pairs.
func storage() Scenario {
	s := small()
	s.Workloads = []Workload{{
		Kind: Storage, Pairs: 48, Rate: 600 * Mbps, Think: 20 * time.Millisecond,
	}}
	return s
}

// straggler is a ring whose steps begin with jitter, and one host of which is late in
// every other step.
func straggler() Scenario {
	s := small()
	s.RackUplinkSpeed = map[int]Rate{2: Gbps}
	s.Workloads = []Workload{{
		Kind: Ring, Rate: 600 * Mbps, Connections: 8, Period: time.Second, Burst: 400 * time.Millisecond,
		Jitter: 50 * time.Millisecond, Stragglers: []Host{{Rack: 3, Host: 2}}, Late: 300 * time.Millisecond, StraggleEvery: 2,
	}}
	return s
}

// pony is an incast of a transport over UDP, whose acknowledgements cover up to eight
// packets and reflect the worst of them; data carries a tag in every other packet.
func pony() Scenario {
	s := small()
	s.TagEvery, s.Reflect = 2, ReflectWorst
	s.Workloads = []Workload{
		{
			Kind: Incast, Transport: Pony, Target: Host{Rack: 4, Host: 1}, Sources: 6, Rate: 200 * Mbps,
			Start: time.Second, End: 4 * time.Second,
		},
		{Kind: Permutation, Transport: Pony, Rate: 100 * Mbps},
	}
	return s
}

// probes measures a fabric whose data carries no tags: an incast, seen by a mesh of
// probes between all hosts.
func probes() Scenario {
	s := small()
	s.Workloads = []Workload{
		{Kind: Probes, HostsPerRack: 4, Interval: 20 * time.Millisecond},
		{
			Kind: Incast, Target: Host{Rack: 4, Host: 1}, Sources: 6, Rate: 200 * Mbps,
			Start: time.Second, End: 4 * time.Second, TagEvery: -1,
		},
	}
	return s
}
