package fabric

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
)

// TestHops: the ports that packets may take between groups, hop by hop.
func TestHops(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ file, src, dst, want string }{
		{"leafspine.yaml", "rack1", "rack2", "leaf1 up: leaf1:up1 leaf1:up2; spine down to leaf2: spine1:down2 spine2:down2; leaf2 down: leaf2:down1 leaf2:down2 leaf2:down3"},
		{"leafspine.yaml", "rack1", "rack1", "leaf1 down: leaf1:down1 leaf1:down2 leaf1:down3"},
		{"leafspine.yaml", "rack1", "nowhere", ""},
		{"leafspine.yaml", "nowhere", "rack1", ""},
	} {
		_, f := load(t, test.file)
		var parts []string
		for _, h := range f.Hops(GroupIDOf(test.src), GroupIDOf(test.dst)) {
			parts = append(parts, h.Name+": "+strings.Join(h.Ports, " "))
			if h.Count != len(h.Ports) {
				t.Errorf("%s: %d ports counted, %d listed", h.Name, h.Count, len(h.Ports))
			}
		}
		if got := strings.Join(parts, "; "); got != test.want {
			t.Errorf("%s to %s:\n got %s\nwant %s", test.src, test.dst, got, test.want)
		}
	}
	_, f := load(t, "leafspine.yaml")
	if f.Hops(aggregate.UnknownGroup, GroupIDOf("rack1")) != nil {
		t.Error("there is a way from nowhere")
	}
}

// TestHopsAreOnPaths: each port of a hop is one that a packet between the groups may take, and
// every such port is in one hop.
func TestHopsAreOnPaths(t *testing.T) {
	t.Parallel()
	_, f := load(t, "threetier.yaml")
	p := f.resolve.paths
	checked := 0
	for _, src := range f.topo.groups {
		for _, dst := range f.topo.groups {
			e := f.topo.groupAt(dst.id)
			a, b := f.topo.attached[f.topo.groupAt(src.id)], f.topo.attached[e]
			var want, got []string
			if a != none && b != none {
				p.mu.Lock()
				list, _, _ := p.ports(e, &f.topo.attachments[a], &f.topo.attachments[b], func(int32, int) bool { return true })
				want = f.topo.portNames(list)
				p.mu.Unlock()
			}
			for _, h := range f.Hops(src.id, dst.id) {
				got = append(got, h.Ports...)
			}
			slices.Sort(got)
			if got = slices.Compact(got); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s to %s: hops have %v, paths %v", src.name, dst.name, got, want)
			}
			checked += len(want)
		}
	}
	if checked < 100 {
		t.Errorf("%d ports compared: too few", checked)
	}
}

// TestRoutes: the equal-cost paths as ports, at most the requested number.
func TestRoutes(t *testing.T) {
	t.Parallel()
	_, f := load(t, "leafspine.yaml")
	for _, c := range []struct {
		name, src, dst string
		most           int
		want           string
	}{
		{"two spines", "10.0.1.1", "10.0.2.1", 8, "leaf1:up1 spine1:down2 leaf2:down1, leaf1:up2 spine2:down2 leaf2:down1"},
		{"within a rack", "10.0.1.1", "10.0.1.2", 8, "leaf1:down2"},
		{"an unlisted source", "10.0.1.77", "10.0.1.2", 8, "leaf1:down2"},
		{"too many", "10.0.1.1", "10.0.2.1", 1, ""},
		{"an unlisted destination", "10.0.1.1", "10.0.2.77", 8, ""},
		{"an unknown source", "192.0.2.1", "10.0.1.2", 8, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			routes, ok := f.Routes(netip.MustParseAddr(c.src), netip.MustParseAddr(c.dst), c.most)
			var texts []string
			for _, r := range routes {
				var names []string
				for _, id := range r {
					at, _ := f.Location(id)
					names = append(names, at.Name)
				}
				texts = append(texts, strings.Join(names, " "))
			}
			if got := strings.Join(texts, ", "); ok != (c.want != "") || ok && got != c.want {
				t.Errorf("got %q, %t, want %q", got, ok, c.want)
			}
		})
	}
}

// TestRoutesAgree: every port of a route is on a path according to Locate, and all such ports are
// on a route.
func TestRoutesAgree(t *testing.T) {
	t.Parallel()
	_, f := load(t, "threetier.yaml")
	pairs := 0
	for a := range f.topo.addresses {
		for b := range f.topo.addresses {
			routes, ok := f.Routes(a, b, 1024)
			if !ok || a == b {
				continue
			}
			pairs++
			on := map[int32]bool{}
			for _, r := range routes {
				for _, id := range r {
					on[f.portAt[id]] = true
				}
			}
			src, dst := &f.topo.attachments[f.topo.attachmentOf(a)], &f.topo.attachments[f.topo.attachmentOf(b)]
			for i := range f.topo.ports {
				uses, exists := f.resolve.paths.passes(int32(i), f.topo.endpointOf(b), src, dst)
				if exists && uses != on[int32(i)] {
					t.Fatalf("%s to %s: %s: uses %t, on a route %t", a, b, f.topo.ports[i].name, uses, on[int32(i)])
				}
			}
		}
	}
	if pairs == 0 {
		t.Error("no pair of hosts has a route")
	}
}

func TestEdges(t *testing.T) {
	t.Parallel()
	_, f := load(t, "leafspine.yaml")
	for addr, want := range map[string]string{"10.0.1.1": "[leaf1]", "10.0.2.77": "[leaf2]", "192.0.2.1": "[]"} {
		if got := fmt.Sprint(f.Edges(netip.MustParseAddr(addr))); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}
