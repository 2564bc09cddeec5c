package emitter

import (
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

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

// figure5 is the walk of Figure 5 (section 4.3): a path of five switches, whose ports
// have the printed metrics by configuration; no traffic makes them.
func figure5() Scenario {
	return Scenario{
		Seed: 1, Duration: 100 * time.Millisecond,
		Pods: []Pod{
			{Racks: 1, Aggs: 1, HostsPerRack: 1, HostSpeed: 100 * Gbps, UplinkSpeed: 800 * Gbps, CoreSpeed: 100 * Gbps},
			{Racks: 1, Aggs: 1, HostsPerRack: 1, HostSpeed: 40 * Gbps, UplinkSpeed: 100 * Gbps, CoreSpeed: 100 * Gbps},
		},
		Cores: 1, MTU: 4096, AckEvery: 1,
		Signals: []csig.Signal{csig.MinABW, csig.MinABWRatio, csig.MaxDelay},
		Devices: []Behavior{
			printed("tor1:up1", "100Gbps", "12.5%", "10us"),
			printed("agg1-1:up1", "95Gbps", "95%", "3us"),
			printed("core1:down2", "70Gbps", "70%", "18us"),
			printed("agg2-1:down1", "90Gbps", "90%", "5us"),
			printed("tor2:down1", "20Gbps", "50%", "8us"),
		},
		Workloads: []Workload{{
			Kind: Flows, Flows: []Pair{{From: Host{1, 1}, To: Host{2, 1}}}, Rate: Gbps,
		}},
	}
}

func printed(port, abw, ratio, delay string) Behavior {
	return Behavior{
		Match: port, Kind: Metric,
		Values: map[string]string{"min_abw": abw, "min_abw_ratio": ratio, "max_delay": delay},
	}
}
