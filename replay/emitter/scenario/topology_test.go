package scenario

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/replay/emitter/exact"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// tiny returns a fabric with a ring and an incast.
func tiny() Scenario {
	return Scenario{
		Name: "tiny", Seed: 7, Duration: time.Second, Window: 250 * time.Millisecond,
		Leaves: 3, Spines: 2, HostsPerLeaf: 2, HostSpeed: 100 * Mbps, UplinkSpeed: 100 * Mbps,
		RackUplinkSpeed: map[int]Rate{2: 40 * Mbps}, BufferBytes: 32 << 10,
		Workloads: []Workload{
			{Kind: Ring, Rate: 50 * Mbps, Connections: 4, Period: 400 * time.Millisecond, Burst: 200 * time.Millisecond},
			{Kind: Incast, Racks: []int{1, 2}, Target: Host{Rack: 3, Host: 2}, Rate: 40 * Mbps, Start: 300 * time.Millisecond},
		},
	}
}

func topologyOf(t testing.TB, s *Scenario) *Topology {
	t.Helper()
	top, err := NewTopology(s)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// fabrics returns scenarios of every form of topology.
func fabrics(t *testing.T) map[string]Scenario {
	t.Helper()
	list := map[string]Scenario{"leaf-spine": tiny()}
	for _, name := range []string{"three-tier", "mixed-generations"} {
		s, err := Named(name)
		if err != nil {
			t.Fatal(err)
		}
		list[name] = s
	}
	side := tiny()
	side.SideLinks = []SideLink{{Stage: "leaf", Speed: 10 * Mbps, Mesh: true}}
	list["side links"] = side
	file := tiny().WithDefaults()
	path := filepath.Join(t.TempDir(), FabricFile)
	if err := WriteFabric(path, &file, topologyOf(t, &file)); err != nil {
		t.Fatal(err)
	}
	file.Leaves, file.Spines, file.HostsPerLeaf, file.RackUplinkSpeed, file.FabricFile = 0, 0, 0, nil, path
	list["fabric file"] = file
	list["multi-homed"] = file
	homed := list["multi-homed"]
	homed.FabricFile = filepath.Join("testdata", "multihomed.fabric.yaml")
	list["multi-homed"] = homed
	for name, s := range list {
		list[name] = s.WithDefaults()
	}
	return list
}

// resolver compiles a scenario's fabric file as its readers do.
func resolver(t *testing.T, s Scenario) *fabric.Fabric {
	t.Helper()
	s = s.WithDefaults()
	path := filepath.Join(t.TempDir(), FabricFile)
	if err := WriteFabric(path, &s, topologyOf(t, &s)); err != nil {
		t.Fatal(err)
	}
	domain, err := CompileFabric(&s, topologyOf(t, &s))
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	spec, err := fabric.Parse(file, path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fabric.New(spec, domain)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Every route must be a chain of links from sender to receiver, as short as possible, and lead up
// before it leads down (except for side links).
func TestRoutesAreShortestPaths(t *testing.T) {
	for name, s := range fabrics(t) {
		top := topologyOf(t, &s)
		rng := exact.Derive(11)
		for range 2000 {
			src, dst := int(rng.Below(uint64(top.Hosts()))), int(rng.Below(uint64(top.Hosts())))
			if src == dst {
				continue
			}
			f := FiveTuple{top.Address(src), top.Address(dst), uint16(rng.Next()), 80}
			r, err := top.Route(5, f, src, dst)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			nic := int(r.Ports[0]) - len(top.Ports)
			at := top.Ports[top.NICs[nic]].owner
			if top.Ports[top.NICs[nic]].peerHost != int32(src) {
				t.Fatalf("%s: the route starts at another host's interface", name)
			}
			if want := top.distancesTo(top.ends[dst].attachment)[at]; int(want) != int(r.N)-2 {
				t.Fatalf("%s: %d switches, want %d", name, r.N-1, want+1)
			}
			down := false
			for i, number := range r.Hops() {
				p := &top.Ports[number]
				if p.owner != at {
					t.Fatalf("%s: hop %d leaves %s, want %s", name, i, p.Device, top.devices[at].name)
				}
				if p.orientation == "up" && down {
					t.Fatalf("%s: the route leads down and up again", name)
				}
				down = down || p.orientation == "down"
				at = p.PeerNode
			}
			if last := &top.Ports[r.Ports[r.N-1]]; last.peerHost != int32(dst) {
				t.Fatalf("%s: the route ends at %s", name, last.Peer)
			}
		}
	}
}

// Flows between two racks of different pods must use all core and aggregation switches evenly.
func TestThreeStagesSpreadFlows(t *testing.T) {
	s := fabrics(t)["three-tier"]
	top := topologyOf(t, &s)
	count := map[string]int{}
	src, dst := int(top.RackHosts(0)[0]), int(top.RackHosts(12)[1])
	for i := range 4000 {
		r, err := top.Route(1, FiveTuple{1, 2, uint16(i), 80}, src, dst)
		if err != nil || r.N != 6 {
			t.Fatalf("%d queues (%v), want 6", r.N, err)
		}
		count[top.Ports[r.Ports[3]].Device]++
	}
	for c := range 4 {
		if n := count[coreName(c)]; n < 900 || n > 1100 {
			t.Errorf("%s has %d of 4000 flows", coreName(c), n)
		}
	}
}

// Neighbors with a direct link must use it.
func TestSideLinksAreUsed(t *testing.T) {
	s := fabrics(t)["side links"]
	top := topologyOf(t, &s)
	r, err := top.Route(1, FiveTuple{1, 2, 3, 4}, 0, 4)
	if err != nil || r.N != 3 || top.Ports[r.Ports[1]].Name() != "leaf1:side2" || top.Ports[r.Ports[1]].Peer != "leaf3" {
		t.Errorf("route of %d queues by %s (%v)", r.N, top.Ports[r.Ports[1]].Name(), err)
	}
}

// A topology that is read back from its fabric file must route every flow the same way.
func TestFabricFileGivesTheSameRoutes(t *testing.T) {
	for name, s := range fabrics(t) {
		path := filepath.Join(t.TempDir(), FabricFile)
		original := topologyOf(t, &s)
		if err := WriteFabric(path, &s, original); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		back := Scenario{FabricFile: path}.WithDefaults()
		read := topologyOf(t, &back)
		named := func(top *Topology, r Route) (list []string) {
			for _, p := range r.Hops() {
				list = append(list, top.Ports[p].Name())
			}
			return list
		}
		for i := range uint16(500) {
			src, dst := int(i)%original.Hosts(), (int(i)*7+1)%original.Hosts()
			if src == dst {
				continue
			}
			f := FiveTuple{original.Address(src), original.Address(dst), i, 80}
			one, err := original.Route(9, f, src, dst)
			if err != nil {
				t.Fatal(err)
			}
			two, err := read.Route(9, f, src, dst)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(named(original, one), named(read, two)) {
				t.Fatalf("%s: %v, from the file %v", name, named(original, one), named(read, two))
			}
		}
		if len(original.Racks) != len(read.Racks) || original.RackName(1) != read.RackName(1) {
			t.Errorf("%s: %d racks, from the file %d", name, len(original.Racks), len(read.Racks))
		}
	}
}

// For every port of a route, the fabric package must include that port in the candidates of the LM
// that the port writes.
func TestEveryTopologyResolves(t *testing.T) {
	for name, s := range fabrics(t) {
		for _, locator := range []string{"port", "class"} {
			s.Locator = locator
			top := topologyOf(t, &s)
			f := resolver(t, s)
			domain, err := CompileFabric(&s, top)
			if err != nil {
				t.Fatal(err)
			}
			signals, err := NewSignals(&s, top, domain)
			if err != nil {
				t.Fatal(err)
			}
			for i := range uint16(500) {
				src, dst := int(i)%top.Hosts(), (int(i)*5+1)%top.Hosts()
				if src == dst {
					continue
				}
				r, err := top.Route(2, FiveTuple{top.Address(src), top.Address(dst), i, 80}, src, dst)
				if err != nil {
					t.Fatal(err)
				}
				for _, number := range r.Hops() {
					from, to := netip.MustParseAddr(ipv4(top.Address(src))), netip.MustParseAddr(ipv4(top.Address(dst)))
					id, capacity := f.Locate(s.Layout, signals[0].Kind.Type(), signals[0].Metadata[number], from, to)
					l, ok := f.Location(id)
					p := &top.Ports[number]
					if !ok || capacity != uint64(p.Speed) || !slices.Contains(l.Candidates, p.Name()) {
						t.Fatalf("%s, locator %s: %s writes %d, which is %+v", name, locator, p.Name(), signals[0].Metadata[number], l)
					}
				}
			}
		}
	}
}

func TestOversubscriptionSetsUplinks(t *testing.T) {
	var s Scenario
	text := "leaves: 2\nspines: 4\nhosts_per_leaf: 6\nhost_speed: 1Gbps\noversubscription: 3:2\n"
	if err := yaml.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	s = s.WithDefaults()
	if speed := topologyOf(t, &s).Ports[0].Speed; speed != Gbps {
		t.Errorf("uplinks have %s, want 1Gbps: 6 Gbit/s of hosts, 4 Gbit/s of uplinks", speed)
	}
	for _, text := range []string{"3", "0:1", "3:0", "a:b", "3:1:1", "3:1 x", "9999:1"} {
		if err := yaml.Unmarshal([]byte("oversubscription: \""+text+"\"\n"), &s); err == nil {
			t.Errorf("oversubscription %q is taken", text)
		}
	}
}

func TestFabricErrors(t *testing.T) {
	pods := func(p Pod) func(*Scenario) {
		return func(s *Scenario) { s.Leaves, s.Spines, s.HostsPerLeaf, s.Cores, s.Pods = 0, 0, 0, 2, []Pod{p} }
	}
	tests := []struct {
		name   string
		change func(s *Scenario)
		want   string
	}{
		{"two forms", func(s *Scenario) { s.Cores = 2 }, "expected leaves and spines, or pods"},
		{"more aggs than cores", pods(Pod{Racks: 1, Aggs: 3, HostsPerRack: 2}), "aggs 3"},
		{"no racks", pods(Pod{Aggs: 1, HostsPerRack: 2}), "racks 0"},
		{"too many pods", pods(Pod{Count: 5000, Racks: 1, Aggs: 1, HostsPerRack: 1}), "count 5000"},
		{"too many ports", pods(Pod{Count: 4000, Racks: 1, Aggs: 2, HostsPerRack: 200}), "need more than"},
		{"endless speed", func(s *Scenario) {
			pods(Pod{Racks: 1, Aggs: 1, HostsPerRack: 2, HostSpeed: 1 << 63, Oversubscription: Ratio{1, 1000}})(s)
		}, "pod 1: host_speed"},
		{"slow pod", pods(Pod{Racks: 1, Aggs: 1, HostsPerRack: 2, HostSpeed: 1}), "pod 1: host_speed"},
		{"side links of nobody", func(s *Scenario) { s.SideLinks = []SideLink{{Stage: "core", Speed: Gbps}} }, "no device has the stage"},
		{"slow side links", func(s *Scenario) { s.SideLinks = []SideLink{{Stage: "leaf"}} }, "side_links[0]: speed"},
		{"no such file", func(s *Scenario) {
			s.Leaves, s.Spines, s.HostsPerLeaf, s.RackUplinkSpeed, s.FabricFile = 0, 0, 0, nil, "nothing.yaml"
		}, "nothing.yaml"},
		{"file and size", func(s *Scenario) { s.Leaves, s.Spines, s.FabricFile = 0, 0, "x.yaml" }, "hosts_per_leaf"},
		{"rack that is not there", func(s *Scenario) { s.RackUplinkSpeed = map[int]Rate{9: Gbps} }, "rack 9"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tiny()
			tt.change(&s)
			if _, err := Fabric(s); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	var out strings.Builder
	for _, name := range []string{"three-tier", "mixed-generations", "partial-deployment", "rogue"} {
		s, err := Named(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := Describe(&out, s); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join("testdata", "describe.txt")
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("description is\n%s\nwant\n%s", out.String(), want)
	}
}

// TestPortNumbersOfAFile: a locator that holds only the number of a port needs numbers that are unique,
// which those of a fabric file may not be.
func TestPortNumbersOfAFile(t *testing.T) {
	const locator = "csig:\n  locators:\n  - {format: wide, profile: uec050, fields: [{field: device_id, bits: 7}, {field: port_id, bits: 8}]}\n"
	const text = "version: 1\n" + locator + `devices:
- {name: leaf1, stage: leaf, id: 1, ports: [{name: up1, id: 1, orientation: up, peer: leaf2, speed: 1Gbps}, {name: down1, id: 2, orientation: down, peer: h1, speed: 1Gbps}]}
- {name: leaf2, stage: leaf, id: 2, ports: [{name: up1, id: 1, orientation: up, peer: leaf1, speed: 1Gbps}, {name: down1, orientation: down, peer: h2, speed: 1Gbps}]}
hosts:
- {name: h1, addresses: [10.0.1.1]}
- {name: h2, addresses: [10.0.2.1]}
`
	path := filepath.Join(t.TempDir(), FabricFile)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string][]uint32{"port": {1, 2, 3, 4}, "file": {1, 2, 1, 0}} {
		s := Scenario{FabricFile: path, Locator: kind}.WithDefaults()
		resolver(t, s)
		var ids []uint32
		for _, p := range topologyOf(t, &s).Ports {
			ids = append(ids, p.ID)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("locator %s: ports %v, expected %v", kind, ids, want)
		}
	}
}
