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
		{aggregate.UnknownGroup, "unknown", "", "", reservedOrder},
		{aggregate.OverflowGroup, "overflow", "", "", reservedOrder + 1},
	}
	if got := f.Groups(); !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestPrefixes: groups have the prefixes of the file, and no others.
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
	last := -1
	for _, g := range f.Groups() {
		if g.Order < last {
			t.Errorf("group %q has order %d behind %d", g.Name, g.Order, last)
		}
		last = g.Order
		names = append(names, g.Name)
	}
	if got, want := strings.Join(names, " "), "10.0.1.0/24 10.0.2.0/24 2001:db8:0:7::/64 unknown overflow"; got != want {
		t.Errorf("groups %s, want %s", got, want)
	}
}

// TestForgetting: only groups that have been idle for long, and whose names are stored, make room.
// They get the same group when they come back, and shards learn of the change.
func TestForgetting(t *testing.T) {
	f := None(defaultDomain(t))
	ids := make([]uint64, 0, maxDerived)
	talk := func(n uint32) uint64 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], n<<8)
		return uint64(f.Group(netip.AddrFrom4(b)))
	}
	second := int64(1000)
	tick := func(rows ...uint64) {
		second++
		f.InRows(second*1e9, rows)
	}
	for range reviseEvery * knocksNeeded {
		tick()
		ids = ids[:0]
		for i := range uint32(maxDerived) {
			ids = append(ids, talk(i))
		}
	}
	if n := len(f.Groups()); n != maxDerived+2 {
		t.Fatalf("%d groups, want all that there is room for", n)
	}
	const late = maxDerived + 7
	knock := func() (id uint64) {
		for range reviseEvery * (knocksNeeded + 1) {
			tick(ids[:10]...)
			id = talk(late)
		}
		return id
	}
	_, met := f.GroupsSince(0)
	if knock() != uint64(aggregate.UnknownGroup) {
		t.Error("a group in use is forgotten")
	}
	second += idleSeconds
	if tick(); knock() != uint64(aggregate.UnknownGroup) {
		t.Error("a group whose name is not stored is forgotten")
	}
	f.Stored(met)
	revision := f.Revision()
	if got, want := knock(), uint64(GroupIDOf("1.0.7.0/24")); got != want {
		t.Errorf("group %x, want %x", got, want)
	}
	if n, c := len(f.Groups()), f.Counts(); n != maxDerived+2 || c.GroupsForgotten != 1 || f.Revision() == revision {
		t.Errorf("%d groups, counts %+v, revision %d", n, c, f.Revision())
	}
	if groups, _ := f.GroupsSince(met); len(groups) != 1 || groups[0].Name != "1.0.7.0/24" {
		t.Errorf("new groups %+v", groups)
	}
	for i := range uint32(10) {
		if talk(i) != ids[i] {
			t.Errorf("group %d of rows is another one", i)
		}
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

// TestNoneReadsCapacity: the speed of the bottleneck is in the metadata even if no topology has its
// port.
func TestNoneReadsCapacity(t *testing.T) {
	s, _ := load(t, "leafspine.yaml")
	loc, capacity := locate(t, None(domainOf(t, s)), compact, 0, class(leaf, up, g50), "", "")
	if loc.Kind != KindRaw || capacity != 50e6 {
		t.Errorf("%+v, capacity %d", loc, capacity)
	}
}
