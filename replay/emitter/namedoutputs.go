package emitter

import "time"

// overlay is a ring in VXLAN between leaves, with an incast behind it: taps before
// the spines see the tag on the tunnel's L2, those at receivers find it on the packet
// again. Hosts of one rack talk without the tunnel.
func overlay() Scenario {
	s := small()
	s.Encap, s.EncapAt = "vxlan", atLeaves
	s.RackUplinkSpeed = map[int]Rate{3: Gbps}
	s.Workloads = []Workload{
		{Kind: Ring, Rate: 500 * Mbps, Connections: 8, Period: time.Second, Burst: 600 * time.Millisecond},
		{Kind: Incast, Racks: []int{1, 2, 4}, HostsPerRack: 2, Target: Host{Rack: 4, Host: 4}, Rate: 200 * Mbps, Start: 2 * time.Second, End: 4 * time.Second},
		{Kind: Ring, Rate: 20 * Mbps, RackOrder: true},
	}
	s.Taps = []Tap{
		{Racks: true},
		{Name: "to-spines", Before: []string{"spine*"}},
		{Name: "from-spine1", After: []string{"spine1"}},
	}
	return s
}

func ipv6() Scenario {
	s := small()
	s.IP, s.SnapLen = 6, 224
	s.RackUplinkSpeed = map[int]Rate{2: Gbps}
	s.Workloads = []Workload{
		{Kind: Ring, Rate: 500 * Mbps, Connections: 8, Period: time.Second, Burst: 600 * time.Millisecond},
		{Kind: Background, Rate: 10 * Mbps, Encap: "srv6"},
		{Kind: Background, Rate: 10 * Mbps, Encap: "geneve", Underlay: 6},
	}
	return s
}

func vlans() Scenario {
	s := small()
	s.RackUplinkSpeed = map[int]Rate{2: Gbps}
	s.Workloads = []Workload{
		{Kind: Ring, Rate: 450 * Mbps, Connections: 8, Period: time.Second, Burst: 600 * time.Millisecond, Encap: "vlan"},
		{Kind: Background, Rate: 10 * Mbps, Encap: "qinq"},
		{Kind: Background, Rate: 10 * Mbps, Encap: "vlan-tunnel", EncapAt: atLeaves},
		{Kind: Background, Rate: 10 * Mbps, Encap: "macsec-vlan"},
	}
	return s
}

// Hosts of racks with odd and with even numbers, whatever the size of the fabric.
var (
	oddRacks  = []string{"host*[13579]-*"}
	evenRacks = []string{"host*[02468]-*"}
)

// mirrors has mirror sessions of type II for half of the racks and of type III for the
// others, and one before a spine.
func mirrors() Scenario {
	s := incast()
	s.SnapLen = 192
	s.Taps = []Tap{
		{Name: "odd-racks", Before: oddRacks, ERSPAN: 2, Session: 1},
		{Name: "even-racks", Before: evenRacks, ERSPAN: 3, Session: 2},
		{Name: "spine1", Before: []string{"spine1"}, ERSPAN: 2, Session: 9},
	}
	return s
}

// noisyTaps is quickstart, captured badly.
func noisyTaps() Scenario {
	s := quickstart()
	s.Taps = []Tap{
		{
			Name: "odd-racks", Before: oddRacks, SnapLen: 96,
			Offset: -300 * time.Microsecond, Drift: 20_000, Jitter: 2 * time.Microsecond,
			Loss: 10_000, Duplicate: 2_000, Reorder: 5_000,
		},
		{
			Name: "even-racks", Before: evenRacks,
			Offset: 600 * time.Microsecond, Drift: -40_000, Jitter: 10 * time.Microsecond,
			Loss: 3_000, Duplicate: 10_000, Reorder: 20_000,
		},
	}
	return s
}
