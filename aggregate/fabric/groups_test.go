package fabric

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

func TestGroupOfAddress(t *testing.T) {
	s, _ := load(t, "threetier.yaml")
	s.Groups = append(s.Groups,
		GroupSpec{Name: "job node", Level: "host", Parent: "rack11", Prefixes: []string{"2001:db8:1:1::1/128"}},
		GroupSpec{Name: "legacy", Level: "rack", Prefixes: []string{"10.0.0.0/8"}})
	f := compile(t, s)
	for a, want := range map[string]string{
		"2001:db8:1:1::1":     "job node",
		"2001:db8:1:1::2":     "rack11",
		"2001:db8:1:9::1":     "pod1",
		"2001:db8:9::1":       "dc",
		"2001:db8:1:1::2%eth": "rack11",
		"10.1.2.3":            "legacy",
		"::ffff:10.1.2.3":     "legacy",
	} {
		if f.Group(addr(a)) != GroupIDOf(want) {
			t.Errorf("%s is not in %s", a, want)
		}
	}
	for _, a := range []string{"192.0.2.1", "2001:db9::1", ""} {
		if got := f.Group(addr(a)); got != aggregate.UnknownGroup {
			t.Errorf("%q is in group %x, want unknown", a, got)
		}
	}
}

func TestGroupsInFileOrder(t *testing.T) {
	_, f := load(t, "leafspine.yaml")
	want := []Group{
		{GroupIDOf("pod1"), "pod1", "pod", "", 0},
		{GroupIDOf("rack1"), "rack1", "rack", "pod1", 1},
		{GroupIDOf("rack2"), "rack2", "rack", "pod1", 2},
		{GroupIDOf("rack3"), "rack3", "rack", "pod1", 3},
		{aggregate.UnknownGroup, "unknown", "", "", 4},
		{aggregate.OverflowGroup, "overflow", "", "", 5},
	}
	if got := f.Groups(); !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestPrefixes: what the file gives to groups, groups have, and nothing else.
func TestPrefixes(t *testing.T) {
	s, _ := load(t, "threetier.yaml")
	f := compile(t, s)
	all, n := f.Prefixes(), 0
	for _, g := range s.Groups {
		var want []string
		for _, p := range g.Prefixes {
			want = append(want, netip.MustParsePrefix(p).Masked().String())
		}
		var got []string
		for _, p := range all[GroupIDOf(g.Name)] {
			got = append(got, p.String())
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", g.Name, got, want)
		}
		n += len(want)
	}
	if n == 0 || len(None(defaultDomain(t)).Prefixes()) != 0 {
		t.Errorf("%d prefixes", n)
	}
}

func defaultDomain(t testing.TB) *csig.Domain {
	t.Helper()
	d, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestNoneDerivesGroups(t *testing.T) {
	f := None(defaultDomain(t))
	for _, a := range []string{"10.0.2.9", "10.0.1.1", "::ffff:10.0.1.200", "2001:db8:0:7::1"} {
		f.Group(addr(a))
	}
	if f.Group(addr("10.0.1.77")) != GroupIDOf("10.0.1.0/24") {
		t.Error("10.0.1.77 is not in 10.0.1.0/24")
	}
	if f.Group(netip.Addr{}) != aggregate.UnknownGroup {
		t.Error("no address has a group")
	}
	var names []string
	for i, g := range f.Groups() {
		if g.Order != i {
			t.Errorf("group %q has order %d at position %d", g.Name, g.Order, i)
		}
		names = append(names, g.Name)
	}
	if got, want := strings.Join(names, " "), "10.0.1.0/24 10.0.2.0/24 2001:db8:0:7::/64 unknown overflow"; got != want {
		t.Errorf("groups %s, want %s", got, want)
	}
}

func TestNoneBoundsGroups(t *testing.T) {
	f := None(defaultDomain(t))
	var b [4]byte
	for i := range uint32(maxDerived) {
		binary.BigEndian.PutUint32(b[:], i<<8)
		f.Group(netip.AddrFrom4(b))
	}
	if got := f.Group(addr("203.0.113.1")); got != aggregate.UnknownGroup {
		t.Errorf("group %x past the bound, want unknown", got)
	}
	if f.Group(addr("0.0.1.9")) != GroupIDOf("0.0.1.0/24") {
		t.Error("an early group is lost past the bound")
	}
	if n, c := len(f.Groups()), f.Counts(); n != maxDerived+2 || c.GroupFallbacks != 1 {
		t.Errorf("%d groups, counts %+v", n, c)
	}
}

func TestNoneLocatesRaw(t *testing.T) {
	f := None(defaultDomain(t))
	loc, capacity := locate(t, f, compact, 0, 5, "10.0.0.1", "10.0.0.2")
	if loc.Name != "lm:compact/ietf01:5" || loc.Kind != KindRaw || capacity != 0 {
		t.Errorf("%+v, capacity %d", loc, capacity)
	}
	var names []string
	for _, l := range f.Locations() {
		names = append(names, l.Name)
	}
	if got, want := strings.Join(names, " "), "lm:compact/ietf01:5 overflow"; got != want {
		t.Errorf("locations %s, want %s", got, want)
	}
}

// TestNoneReadsCapacity: the speed of the bottleneck is in the metadata even where
// no topology says which port it is.
func TestNoneReadsCapacity(t *testing.T) {
	s, _ := load(t, "leafspine.yaml")
	loc, capacity := locate(t, None(domainOf(t, s)), compact, 0, class(leaf, up, g50), "", "")
	if loc.Kind != KindRaw || capacity != 50e6 {
		t.Errorf("%+v, capacity %d", loc, capacity)
	}
}
