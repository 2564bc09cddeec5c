package fabric

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// chain names the locations above a location: set, device, stage and far end.
func chain(t *testing.T, f *Fabric, l Location) [4]string {
	t.Helper()
	var names [4]string
	for i, level := range Levels()[1:] {
		above, ok := f.Location(l.At(level))
		if !ok {
			t.Errorf("%q: its %s is not known", l.Name, level)
		}
		names[i] = above.Name
	}
	return names
}

func TestLevelChain(t *testing.T) {
	_, f := load(t, "leafspine.yaml")
	const h11, h12, h21, h31, bw = "10.0.1.1", "10.0.1.2", "10.0.2.1", "10.0.3.1", csig.MinABWRatio
	port, _ := locate(t, f, wide, csig.MaxDelay, 6, h21, h31)
	rawLM, _ := locate(t, f, wide, csig.MaxNQD, 5, h21, h31)
	direction, _ := locate(t, f, compact, bw, class(leaf, up, g100), h21, h31)
	subset, _ := locate(t, f, compact, bw, class(spine, down, g100), "", "")
	toward, _ := locate(t, f, compact, bw, class(spine, down, g100), h11, h21)
	off, _ := locate(t, f, compact, bw, class(spine, down, g100), h11, h12)
	device, _ := f.Location(port.At(LevelDevice))
	stage, _ := f.Location(port.At(LevelStage))
	down, _ := f.Location(PortLocationID("spine1", "down1"))
	onlyDown, _ := f.Location(down.At(LevelDevice))
	for _, c := range []struct {
		of   Location
		want [4]string
	}{
		{port, [4]string{"leaf2 up", "leaf2", "leaf", "into spine1"}},
		{direction, [4]string{"leaf2 up", "leaf2", "leaf", "leaf2 up"}},
		{device, [4]string{"leaf2", "leaf2", "leaf", "leaf2"}},
		{onlyDown, [4]string{"spine1", "spine1", "spine", "spine1"}},
		{stage, [4]string{"leaf", "leaf", "leaf", "leaf"}},
		{subset, [4]string{"spine down 100G", "spine down 100G", "spine", "spine down 100G"}},
		{toward, [4]string{"spine down to leaf2", "spine down to leaf2", "spine", "into leaf2"}},
		{rawLM, [4]string{rawLM.Name, rawLM.Name, rawLM.Name, rawLM.Name}},
		{off, [4]string{off.Name, off.Name, off.Name, off.Name}},
	} {
		if got := chain(t, f, c.of); got != c.want {
			t.Errorf("%q belongs to %q, want %q", c.of.Name, got, c.want)
		}
	}
	if port.Device != "leaf2" || port.Stage != "leaf" || port.Orientation != "up" || port.Capacity != 100e6 {
		t.Errorf("port %+v", port)
	}
	if stage.Device != "" || stage.Orientation != "" || stage.Capacity != 0 || stage.CandidateCount != 15 {
		t.Errorf("stage %+v", stage)
	}
}

// TestFastLinks checks that links into one device are named by it, even if no others have their speed.
func TestFastLinks(t *testing.T) {
	s, _ := load(t, "leafspine.yaml")
	for _, d := range s.Devices {
		for i := range d.Ports {
			if p := &d.Ports[i]; d.Stage == "spine" && p.Peer == "leaf2" {
				p.Speed = "400Gbps"
			}
		}
	}
	const g400 = 4
	loc, capacity := locate(t, compile(t, s), compact, csig.MinABWRatio, class(spine, down, g400), "10.0.1.1", "10.0.2.1")
	if loc.Name != "spine down to leaf2" || capacity != 400e6 || loc.CandidateCount != 2 {
		t.Errorf("%+v, capacity %d", loc, capacity)
	}
}

// TestSubsetOfOneDirection reaches "part of leaf3 up", which belongs to leaf3 up.
func TestSubsetOfOneDirection(t *testing.T) {
	s, _ := load(t, "leafspine.yaml")
	s.Devices[0].Ports = append(s.Devices[0].Ports, PortSpec{Name: "up3", Orientation: "up", Peer: "spine1", Speed: "50Gbps"})
	f := compile(t, s)
	loc, capacity := locate(t, f, compact, 0, class(leaf, up, g100), "10.0.1.1", "10.0.2.1")
	if loc.Name != "leaf1 up 100G" || capacity != 100e6 || loc.CandidateCount != 2 {
		t.Errorf("%+v, capacity %d", loc, capacity)
	}
	if got, want := chain(t, f, loc), [4]string{"leaf1 up", "leaf1", "leaf", "leaf1 up 100G"}; got != want {
		t.Errorf("belongs to %q, want %q", got, want)
	}
}

func TestIdentitiesDependOnNamesAlone(t *testing.T) {
	s, f := load(t, "threetier.yaml")
	turned, _ := load(t, "threetier.yaml")
	slices.Reverse(turned.Devices)
	slices.Reverse(turned.Hosts)
	slices.Reverse(turned.Groups)
	for i := range turned.Devices {
		slices.Reverse(turned.Devices[i].Ports)
	}
	g := compile(t, turned)
	if f.Fingerprint() != g.Fingerprint() {
		t.Error("the order of the file changes the fingerprint")
	}
	for lm := range uint16(1 << 7) {
		for _, src := range s.Hosts {
			for _, dst := range s.Hosts {
				a, _ := locate(t, f, compact, 0, lm, src.Addresses[0], dst.Addresses[0])
				b, _ := locate(t, g, compact, 0, lm, src.Addresses[0], dst.Addresses[0])
				if a.ID != b.ID || a.Name != b.Name {
					t.Fatalf("lm 0x%x from %s to %s: %q and %q", lm, src.Name, dst.Name, a.Name, b.Name)
				}
			}
		}
	}
	all := f.Locations()
	if !slices.EqualFunc(all, g.Locations(), func(a, b Location) bool { return a.ID == b.ID && a.Name == b.Name }) {
		t.Error("the order of the file changes the locations")
	}
	if !slices.IsSortedFunc(all, func(a, b Location) int { return compareText(a.Name, b.Name) }) {
		t.Error("locations are not in the order of their names")
	}
	ids, names := map[aggregate.LocationID]bool{}, map[string]bool{}
	for _, l := range all {
		if ids[l.ID] || names[l.Name] {
			t.Errorf("location %q is there twice", l.Name)
		}
		ids[l.ID], names[l.Name] = true, true
	}
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// TestIdentities pins identities that stores hold: changing one splits history.
func TestIdentities(t *testing.T) {
	_, f := load(t, "threetier.yaml")
	const h11, h21 = "2001:db8:1:1::1", "2001:db8:2:1::1"
	set, _ := locate(t, f, compact, 0, class(agg, up, g400), h11, h21)
	toward, _ := locate(t, f, compact, 0, class(agg, down, g100), h11, h21)
	rawLM, _ := locate(t, f, wide, csig.MaxNQD, 5, "", "")
	port, _ := f.Location(PortLocationID("leaf11", "up1"))
	for id, canonical := range map[aggregate.LocationID]string{
		port.ID:       "port:leaf11:up1",
		port.Set:      "set:leaf11 up",
		port.StageLoc: "set:leaf",
		toward.ID:     "set:agg down to leaf21",
		set.ID:        "set:agg11,agg12 up",
		rawLM.ID:      "raw:lm:wide/uec050:5",
	} {
		if uint64(id) != xxhash.Sum64String(canonical) {
			t.Errorf("%q has another identity: %x", canonical, id)
		}
	}
	if uint64(GroupIDOf("rack1")) != xxhash.Sum64String("group:rack1") {
		t.Error("a group has another identity")
	}
}

// meet resolves many combinations of addresses and locators that traffic could contain.
func meet(f *Fabric) {
	hosts := []netip.Addr{{}}
	for _, a := range []string{"10.0.1.1", "10.0.1.2", "10.0.2.1", "10.0.3.1", "10.0.3.99", "192.0.2.1", "2001:db8::1"} {
		hosts = append(hosts, netip.MustParseAddr(a))
		f.Group(hosts[len(hosts)-1])
	}
	for i := range csig.NumLayouts {
		for lm := range uint16(130) {
			for _, src := range hosts {
				for _, dst := range hosts {
					f.Locate(csig.LayoutAt(i), uint8(lm%5), lm, src, dst)
				}
			}
		}
	}
}

// TestIdentitiesCanBeChecked: a receiver can check that a location's identity and those of the
// locations above it are right.
func TestIdentitiesCanBeChecked(t *testing.T) {
	_, leafspine := load(t, "leafspine.yaml")
	_, threetier := load(t, "threetier.yaml")
	for name, f := range map[string]*Fabric{"leafspine": leafspine, "threetier": threetier, "none": None(defaultDomain(t)), "digests": compile(t, manySets(6, 2))} {
		meet(f)
		for _, l := range f.Locations() {
			if err := l.Check(); err != nil && l.Kind != KindOverflow {
				t.Errorf("%s: %v: %+v", name, err, l)
			}
		}
	}
	port, _ := leafspine.Location(PortLocationID("leaf1", "up1"))
	for name, change := range map[string]func(*Location){
		"name":         func(l *Location) { l.Name = "leaf1:up2" },
		"id":           func(l *Location) { l.ID++ },
		"kind":         func(l *Location) { l.Kind = KindSet },
		"no kind":      func(l *Location) { l.Kind, l.ID = "port:leaf1", LocationIDOf("port:leaf1", l.Name) },
		"overflow":     func(l *Location) { l.Kind, l.ID = KindOverflow, aggregate.OverflowLocation },
		"set":          func(l *Location) { l.Set = PortLocationID("leaf2", "up1") },
		"no set":       func(l *Location) { l.Set = 0 },
		"other device": func(l *Location) { l.DeviceLoc = LocationIDOf(KindSet, "leaf2") },
		"no device":    func(l *Location) { l.Device = "" },
		"stage":        func(l *Location) { l.Stage = "spine" },
	} {
		l := port
		if change(&l); l.Check() == nil {
			t.Errorf("another %s: %+v is right", name, l)
		}
	}
}

// A digest depends on members alone: faster ports, or more of the kind, are the same set.
func TestDigestOutlivesTopologyChanges(t *testing.T) {
	s := manySets(6, 2)
	find := func() Location {
		l, _ := locate(t, compile(t, s), compact, 0, 1, s.Hosts[0].Addresses[0], s.Hosts[1].Addresses[0])
		return l
	}
	before := find()
	for i := range s.Devices {
		for j := range s.Devices[i].Ports {
			s.Devices[i].Ports[j].Speed = "2Gbps"
		}
	}
	s.Devices[4].Ports = append(s.Devices[4].Ports, PortSpec{Name: "up9", Orientation: "up", Peer: "spine0", Speed: "2Gbps"})
	if after := find(); !strings.Contains(before.Name, "#") || after.ID != before.ID {
		t.Errorf("%+v became %+v", before, after)
	}
}

func TestIdentityOfSetsOutlivesTopologyChanges(t *testing.T) {
	s, f := load(t, "leafspine.yaml")
	before, _ := locate(t, f, compact, 0, class(leaf, up, g100), "10.0.2.1", "10.0.3.1")
	s.Devices[1].Ports = append(s.Devices[1].Ports, PortSpec{Name: "up3", Orientation: "up", Peer: "spine1", Speed: "100Gbps"})
	after, _ := locate(t, compile(t, s), compact, 0, class(leaf, up, g100), "10.0.2.1", "10.0.3.1")
	if before.ID != after.ID || before.CandidateCount != 2 || after.CandidateCount != 3 {
		t.Errorf("%+v became %+v", before, after)
	}
}

func TestStageNamedAsADevice(t *testing.T) {
	s, _ := load(t, "leafspine.yaml")
	for i := range s.Devices {
		if s.Devices[i].Stage == "spine" {
			s.Devices[i].Stage = "spine1"
		}
	}
	f := compile(t, s)
	port, _ := f.Location(PortLocationID("spine1", "down1"))
	if got, want := chain(t, f, port), [4]string{"spine1 down", "spine1", "spine1(stage)", "into leaf1"}; got != want {
		t.Errorf("belongs to %q, want %q", got, want)
	}
}

func TestLevelNames(t *testing.T) {
	for l := range numLevels {
		if got, err := ParseLevel(l.String()); err != nil || got != l {
			t.Errorf("level %s reads as %s: %v", l, got, err)
		}
	}
	if _, err := ParseLevel("rack"); err == nil {
		t.Error("a level that does not exist is read")
	}
}

func TestCompareNames(t *testing.T) {
	want := []string{"", "Ethernet0", "Ethernet4", "Ethernet10", "Ethernet10/2", "Ethernet10/11", "a01", "a1", "a2", "rack", "rack1", "rack2", "rack2a", "rack10", "rack010b", "rack10c", "spine1:down2", "spine1:down10", "x"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, CompareNames)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
