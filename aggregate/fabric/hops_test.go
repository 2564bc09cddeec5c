package fabric

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
)

// TestHops: what packets may take on their way between groups, hop by hop.
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

// TestHopsAreOnPaths: each port of a hop is one that a packet between the groups may take,
// and every such port is in one hop.
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
				list, _, _ := p.ports(e, &f.topo.attachments[a], &f.topo.attachments[b], func(int32) bool { return true })
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
