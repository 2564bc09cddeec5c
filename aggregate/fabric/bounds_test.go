package fabric

import (
	"fmt"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
)

// TestLocateDoesNotAllocate: Locate does not allocate for any locator metadata, once the locations
// of a fabric have been seen.
func TestLocateDoesNotAllocate(t *testing.T) {
	s := clos(16, 4, 4)
	f := compile(t, s)
	for _, l := range []csig.Layout{wide, compact} {
		list := worstCase(s, f, l, 1<<12)
		for i := range list { // also some values that name nothing
			list[i].lm += uint16(i) & 1
		}
		locateAll(f, l, list)
		if n := testing.AllocsPerRun(3, func() { locateAll(f, l, list) }); n != 0 {
			t.Errorf("%s: %v allocations for %d locations", l, n, len(list))
		}
	}
}

// TestSearchDoesNotAllocate: neither do paths that are no longer in the cache.
func TestSearchDoesNotAllocate(t *testing.T) {
	s := clos(16, 4, 4)
	f := compile(t, s)
	list := worstCase(s, f, compact, 1<<10)
	locateAll(f, compact, list)
	if n := testing.AllocsPerRun(3, func() {
		clear(f.resolve.cache().buckets)
		locateAll(f, compact, list)
	}); n != 0 {
		t.Errorf("%v allocations for %d locations", n, len(list))
	}
}

// TestSmallCacheForgetsNothingThatMatters: results do not depend on the content of the cache.
func TestSmallCacheForgetsNothingThatMatters(t *testing.T) {
	s := clos(24, 4, 2)
	f, g := compile(t, s), compile(t, s)
	small := newPathCache(1)
	f.resolve.cache = func() *pathCache { return small }
	if len(small.buckets) >= len(g.resolve.cache().buckets) {
		t.Fatalf("%d buckets are not few", len(small.buckets))
	}
	list := worstCase(s, f, compact, 1<<13)
	for range 2 {
		for _, q := range list {
			x, cx := f.Locate(compact, 3, q.lm, q.src, q.dst)
			if y, cy := g.Locate(compact, 3, q.lm, q.src, q.dst); x != y || cx != cy {
				t.Fatalf("lm 0x%x from %s to %s: %x, %d and %x, %d", q.lm, q.src, q.dst, x, cx, y, cy)
			}
		}
	}
}

// TestDistancesAreBounded: past the bound the topology has no paths, so that locations become
// coarser and nothing counts as a contradiction.
func TestDistancesAreBounded(t *testing.T) {
	_, f := load(t, "leafspine.yaml")
	f.resolve.paths.hops.limit = 2 * len(f.topo.devices)
	for _, c := range []struct{ src, dst, want string }{
		{"10.0.1.1", "10.0.2.1", "spine down to leaf2"},
		{"10.0.1.1", "10.0.3.1", "spine down 100G"},
		{"10.0.3.1", "10.0.1.1", "spine down 100G"},
		{"10.0.2.1", "10.0.1.1", "spine down to leaf1"},
	} {
		if loc, _ := locate(t, f, compact, csig.MinABWRatio, class(spine, down, g100), c.src, c.dst); loc.Name != c.want {
			t.Errorf("from %s to %s: %q, want %q", c.src, c.dst, loc.Name, c.want)
		}
	}
	if loc, _ := locate(t, f, wide, csig.MaxDelay, 1, "10.0.2.1", "10.0.3.1"); loc.Name != "leaf1:up1" {
		t.Errorf("a path that is not known contradicts port 1: %q", loc.Name)
	}
	if n := f.Counts().PathFallbacks; n != 1 {
		t.Errorf("%d devices without paths, want 1", n)
	}
}

// chainOf returns a row of switches with a host at each end, whose links have one
// direction only if oneWay is set.
func chainOf(n int, oneWay bool) *Spec {
	s := clos(0, 0, 0)
	s.Hosts = []HostSpec{{Name: "first", Addresses: []string{"10.0.0.1"}}, {Name: "last", Addresses: []string{"10.0.0.2"}}}
	for i := range n {
		d := DeviceSpec{Name: fmt.Sprintf("s%03d", i), Stage: "leaf"}
		if i < n-1 {
			d.Ports = append(d.Ports, PortSpec{Name: "right", Orientation: "up", Peer: fmt.Sprintf("s%03d", i+1), Speed: "100Gbps"})
		}
		if i > 0 && !oneWay {
			d.Ports = append(d.Ports, PortSpec{Name: "left", Orientation: "down", Peer: fmt.Sprintf("s%03d", i-1), Speed: "100Gbps"})
		}
		s.Devices = append(s.Devices, d)
	}
	add := func(d *DeviceSpec, host string) {
		d.Ports = append(d.Ports, PortSpec{Name: host, Orientation: "down", Peer: host, Speed: "25Gbps"})
	}
	add(&s.Devices[0], "first")
	add(&s.Devices[n-1], "last")
	return s
}

func TestLongPaths(t *testing.T) {
	for _, c := range []struct {
		devices, candidates int
		oneWay              bool
	}{
		{2, 1, false},
		{maxHops + 1, maxHops, false},
		{maxHops + 1, maxHops, true},
		{maxHops + 2, maxHops + 1, false}, // no path: all ports that fit
		{2000, 1999, false},
	} {
		s := chainOf(c.devices, c.oneWay)
		f := compile(t, s)
		loc, _ := locate(t, f, compact, 0, class(leaf, up, g100), "10.0.0.1", "10.0.0.2")
		if loc.CandidateCount != c.candidates || loc.Kind == KindUnknown {
			t.Errorf("%d devices: %s %q of %d ports, want %d", c.devices, loc.Kind, loc.Name, loc.CandidateCount, c.candidates)
		}
		last, _ := locate(t, f, compact, 0, class(leaf, down, g25), "10.0.0.1", "10.0.0.2")
		if forced := last.Name == fmt.Sprintf("s%03d:last", c.devices-1); forced != (c.devices <= maxHops+1) {
			t.Errorf("%d devices: last port is %q", c.devices, last.Name)
		}
	}
}

// TestCircles: switches that face each other in a ring, in both directions and in one, use the
// shortest way around.
func TestCircles(t *testing.T) {
	for _, oneWay := range []bool{false, true} {
		s := chainOf(9, oneWay)
		s.Devices[8].Ports = append(s.Devices[8].Ports, PortSpec{Name: "right", Orientation: "up", Peer: "s000", Speed: "100Gbps"})
		if !oneWay {
			s.Devices[0].Ports = append(s.Devices[0].Ports, PortSpec{Name: "left", Orientation: "side", Peer: "s008", Speed: "100Gbps"})
		}
		f := compile(t, s)
		there, _ := locate(t, f, compact, 0, class(leaf, up, g100), "10.0.0.1", "10.0.0.2")
		back, _ := locate(t, f, compact, 0, class(leaf, up, g100), "10.0.0.2", "10.0.0.1")
		if oneWay && there.CandidateCount != 8 || !oneWay && there.Kind != KindUnknown {
			t.Errorf("one way %t: there by %q, %d ports", oneWay, there.Name, there.CandidateCount)
		}
		if back.Name != "s008:right" {
			t.Errorf("one way %t: back by %q", oneWay, back.Name)
		}
	}
}

func TestHostOfTooManyDevices(t *testing.T) {
	for _, n := range []int{maxHomes, maxHomes + 1} {
		s := clos(n, 2, 1)
		s.Hosts = append(s.Hosts, HostSpec{Name: "everywhere", Addresses: []string{"192.0.2.1"}})
		for i := range n {
			s.Devices[i].Ports = append(s.Devices[i].Ports, PortSpec{Name: "more", Orientation: "side", Peer: "everywhere", Speed: "25Gbps"})
		}
		f := compile(t, s)
		warned := strings.Contains(strings.Join(f.Warnings(), "\n"), "host everywhere faces")
		loc, _ := locate(t, f, compact, 0, class(spine, down, g100), s.Hosts[0].Addresses[0], "192.0.2.1")
		if nearest := loc.Kind == KindUnknown; warned == nearest {
			t.Errorf("%d devices: warned %t, located at %q", n, warned, loc.Name)
		}
	}
}

func TestBoundsAreInErrors(t *testing.T) {
	many := func(n int) []string { return make([]string, n) }
	for want, s := range map[string]*Spec{
		"hosts: 1048577 addresses: expected at most 1048576": {Version: SpecVersion, Hosts: []HostSpec{{Name: "h", Addresses: many(maxNodes + 1)}}},
		"groups: 1048577 prefixes: expected at most 1048576": {Version: SpecVersion, Groups: []GroupSpec{{Name: "g", Prefixes: many(maxNodes + 1)}}},
		"devices: 1048577 ports: expected at most 1048576":   {Version: SpecVersion, Devices: []DeviceSpec{{Name: "d", Ports: make([]PortSpec, maxPorts+1)}}},
	} {
		if _, err := New(s, defaultDomain(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	b := builder{topo: &topology{ports: make([]port, maxPorts)}, words: make([]vocabulary, 9)}
	for i := range b.words {
		for f := range portFields {
			b.words[i].has[portFields[f]] = i>>f&1 != 0
		}
	}
	if b.checkKinds(); len(b.errs) != 1 || !strings.Contains(b.errs[0].Error(), "9 combinations of fields for 1048576 ports: expected at most 8388608") {
		t.Errorf("got %v", b.errs)
	}
}
