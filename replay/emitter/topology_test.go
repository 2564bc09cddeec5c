package emitter

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// fabrics are scenarios of every form of topology.
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
	r, _ := run(t, tiny())
	file := tiny()
	file.Leaves, file.Spines, file.HostsPerLeaf, file.RackUplinkSpeed, file.FabricFile = 0, 0, 0, nil, r.Fabric
	list["fabric file"] = file
	list["multi-homed"] = file
	homed := list["multi-homed"]
	homed.FabricFile = filepath.Join("testdata", "multihomed.fabric.yaml")
	list["multi-homed"] = homed
	for name, s := range list {
		list[name] = s.withDefaults()
	}
	return list
}

// Every route is a chain of links from sender to receiver, a shortest one, and leads
// up before it leads down (side links apart).
func TestRoutesAreShortestPaths(t *testing.T) {
	for name, s := range fabrics(t) {
		top := topologyOf(t, &s)
		rng := stream(11)
		for range 2000 {
			src, dst := int(rng.below(uint64(top.hosts()))), int(rng.below(uint64(top.hosts())))
			if src == dst {
				continue
			}
			f := fiveTuple{top.address(src), top.address(dst), uint16(rng.next()), 80}
			r, err := top.route(5, f, src, dst)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			nic := int(r.ports[0]) - len(top.ports)
			at := top.ports[top.nics[nic]].owner
			if top.ports[top.nics[nic]].peerHost != int32(src) {
				t.Fatalf("%s: the route starts at another host's interface", name)
			}
			if want := top.distancesTo(top.ends[dst].attachment)[at]; int(want) != int(r.n)-2 {
				t.Fatalf("%s: %d switches, want %d", name, r.n-1, want+1)
			}
			down := false
			for i, number := range r.hops() {
				p := &top.ports[number]
				if p.owner != at {
					t.Fatalf("%s: hop %d leaves %s, want %s", name, i, p.device, top.devices[at].name)
				}
				if p.orientation == "up" && down {
					t.Fatalf("%s: the route leads down and up again", name)
				}
				down = down || p.orientation == "down"
				at = p.peerNode
			}
			if last := &top.ports[r.ports[r.n-1]]; last.peerHost != int32(dst) {
				t.Fatalf("%s: the route ends at %s", name, last.peer)
			}
		}
	}
}

// Flows between two racks of different pods use all cores and all aggregation
// switches, evenly.
func TestThreeStagesSpreadFlows(t *testing.T) {
	s := fabrics(t)["three-tier"]
	top := topologyOf(t, &s)
	count := map[string]int{}
	src, dst := int(top.rackHosts(0)[0]), int(top.rackHosts(12)[1])
	for i := range 4000 {
		r, err := top.route(1, fiveTuple{1, 2, uint16(i), 80}, src, dst)
		if err != nil || r.n != 6 {
			t.Fatalf("%d queues (%v), want 6", r.n, err)
		}
		count[top.ports[r.ports[3]].device]++
	}
	for c := range 4 {
		if n := count[coreName(c)]; n < 900 || n > 1100 {
			t.Errorf("%s has %d of 4000 flows", coreName(c), n)
		}
	}
}

// Neighbours with a link of their own use it.
func TestSideLinksAreUsed(t *testing.T) {
	s := fabrics(t)["side links"]
	top := topologyOf(t, &s)
	r, err := top.route(1, fiveTuple{1, 2, 3, 4}, 0, 4)
	if err != nil || r.n != 3 || top.ports[r.ports[1]].name() != "leaf1:side2" || top.ports[r.ports[1]].peer != "leaf3" {
		t.Errorf("route of %d queues by %s (%v)", r.n, top.ports[r.ports[1]].name(), err)
	}
}

// A topology that is read back from the fabric file that was written of it routes
// every flow the same way.
func TestFabricFileGivesTheSameRoutes(t *testing.T) {
	for name, s := range fabrics(t) {
		path := filepath.Join(t.TempDir(), FabricFile)
		original := topologyOf(t, &s)
		if _, err := writeFabric(path, &s, original); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		back := Scenario{FabricFile: path}.withDefaults()
		read := topologyOf(t, &back)
		named := func(top *topology, r route) (list []string) {
			for _, p := range r.hops() {
				list = append(list, top.ports[p].name())
			}
			return list
		}
		for i := range uint16(500) {
			src, dst := int(i)%original.hosts(), (int(i)*7+1)%original.hosts()
			if src == dst {
				continue
			}
			f := fiveTuple{original.address(src), original.address(dst), i, 80}
			one, err := original.route(9, f, src, dst)
			if err != nil {
				t.Fatal(err)
			}
			two, err := read.route(9, f, src, dst)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(named(original, one), named(read, two)) {
				t.Fatalf("%s: %v, from the file %v", name, named(original, one), named(read, two))
			}
		}
		if len(original.racks) != len(read.racks) || original.rackName(1) != read.rackName(1) {
			t.Errorf("%s: %d racks, from the file %d", name, len(original.racks), len(read.racks))
		}
	}
}

// Whatever port a route uses, the fabric package finds it again among the candidates
// of what that port writes.
func TestEveryTopologyResolves(t *testing.T) {
	for name, s := range fabrics(t) {
		for _, locator := range []string{"port", "class"} {
			s.Locator = locator
			top := topologyOf(t, &s)
			f := resolver(t, s)
			domain, err := writeFabric(filepath.Join(t.TempDir(), FabricFile), &s, top)
			if err != nil {
				t.Fatal(err)
			}
			signals, err := newSignals(&s, top, domain)
			if err != nil {
				t.Fatal(err)
			}
			for i := range uint16(500) {
				src, dst := int(i)%top.hosts(), (int(i)*5+1)%top.hosts()
				if src == dst {
					continue
				}
				r, err := top.route(2, fiveTuple{top.address(src), top.address(dst), i, 80}, src, dst)
				if err != nil {
					t.Fatal(err)
				}
				for _, number := range r.hops() {
					from, to := netip.MustParseAddr(ipv4(top.address(src))), netip.MustParseAddr(ipv4(top.address(dst)))
					id, capacity := f.Locate(s.Layout, signals[0].kind.Type(), signals[0].metadata[number], from, to)
					l, ok := f.Location(id)
					p := &top.ports[number]
					if !ok || capacity != uint64(p.speed) || !slices.Contains(l.Candidates, p.name()) {
						t.Fatalf("%s, locator %s: %s writes %d, which is %+v", name, locator, p.name(), signals[0].metadata[number], l)
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
	s = s.withDefaults()
	if speed := topologyOf(t, &s).ports[0].speed; speed != Gbps {
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
			if _, err := Run(t.Context(), s, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), tt.want) {
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
