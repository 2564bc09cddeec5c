package api

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// storedNames are the names in a store.
type storedNames struct {
	groups    []fabric.Group
	locations []fabric.Location
	err       error
}

func (s storedNames) Groups(context.Context) ([]fabric.Group, error) { return s.groups, s.err }

func (s storedNames) Locations(context.Context) ([]fabric.Location, error) {
	return s.locations, s.err
}

// TestBothNames: names described by exporters are added to this process's own, which take
// precedence; an unreachable store does not affect those.
func TestBothNames(t *testing.T) {
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	f := fabric.None(domain)
	stored := storedNames{
		groups:    []fabric.Group{{ID: 0, Name: "other"}, {ID: 77, Name: "rack7"}},
		locations: []fabric.Location{{ID: 1, Name: "other"}, {ID: 78, Name: "leaf7:up1"}},
	}
	for _, failing := range []error{nil, errors.New("away")} {
		stored.err = failing
		n := &BothNames{Fabric: func() *fabric.Fabric { return f }, Stored: stored}
		groups, err1 := n.Groups(t.Context())
		locations, err2 := n.Locations(t.Context())
		wantGroups, wantLocations := len(f.Groups()), len(f.Locations())
		if failing == nil {
			wantGroups, wantLocations = wantGroups+1, wantLocations+1
		}
		// An error with a list means that names may be missing.
		if (err1 != nil) != (failing != nil) || (err2 != nil) != (failing != nil) || len(groups) != wantGroups || len(locations) != wantLocations {
			t.Errorf("store %v: groups %+v, locations %+v, %v, %v", failing, groups, locations, err1, err2)
		}
		for _, g := range groups {
			if g.Name == "other" {
				t.Errorf("the store's name of group %d comes first", g.ID)
			}
		}
	}
}

// TestReplacedNames: rows in memory have the names of the fabric under which they came, while addresses belong to the groups
// of the present one alone.
func TestReplacedNames(t *testing.T) {
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	inUse := fabric.None(domain)
	n := &BothNames{Fabric: func() *fabric.Fabric { return inUse }}
	lists := func() (all, present int) {
		groups, err1 := n.Groups(t.Context())
		own, err2 := n.GroupsInUse(t.Context())
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return len(groups), len(own)
	}
	_, none := lists()
	for i := range byte(5) {
		address := netip.AddrFrom4([4]byte{10, 0, i, 1})
		group := inUse.Group(address)
		n.Replaced(inUse)
		inUse = fabric.None(domain)
		all, present := lists()
		if want := none + min(int(i)+1, formerFabrics); all != want || present != none {
			t.Errorf("after %d reloads: %d groups have names, %d are present: want %d and %d", i+1, all, present, want, none)
		}
		c := &namesCache{catalog: n, now: time.Now}
		if names, err := c.get(t.Context()); err != nil || names.groupName(group) != "10.0."+strconv.Itoa(int(i))+".0/24" {
			t.Errorf("the group before is %q, %v", names.groupName(group), err)
		}
	}
}

// TestNamesChange: names are replaced as soon as anything about a group or a location has changed.
func TestNamesChange(t *testing.T) {
	group := fabric.Group{ID: 77, Name: "rack7", Level: "rack"}
	location := fabric.Location{ID: 78, Name: "leaf7:up1", Kind: fabric.KindSet, Device: "leaf7", Capacity: 100, Candidates: []string{"leaf7:up1"}, CandidateCount: 1}
	for what, change := range map[string]func(*fabric.Group, *fabric.Location){
		"nothing": func(*fabric.Group, *fabric.Location) {}, "parent": func(g *fabric.Group, _ *fabric.Location) { g.Parent = "pod1" },
		"name": func(_ *fabric.Group, l *fabric.Location) { l.Name = "up1" }, "capacity": func(_ *fabric.Group, l *fabric.Location) { l.Capacity = 400 },
		"peer": func(_ *fabric.Group, l *fabric.Location) { l.Peer = "spine2" }, "far end": func(_ *fabric.Group, l *fabric.Location) { l.FarEnd = 9 },
		"candidates": func(_ *fabric.Group, l *fabric.Location) { l.Candidates = []string{"leaf7:up2"} },
	} {
		c := &namesCache{now: time.Now}
		was := c.keep(nil, []fabric.Group{group}, []fabric.Location{location}, nil)
		g, l := group, location
		change(&g, &l)
		is := c.keep(c.current.Load(), []fabric.Group{g}, []fabric.Location{l}, nil)
		if same := what == "nothing"; (is == was) != same || !reflect.DeepEqual(is.locations[l.ID], &l) || is.groups[0] != g {
			t.Errorf("%s has changed: the same names %t, %+v", what, is == was, is.locations[l.ID])
		}
	}
}

// TestWords: states and kinds have the same names in messages and in their own packages.
func TestWords(t *testing.T) {
	for s := aggregate.NoData; s < aggregate.NumStates; s++ {
		if got := stateOf(s); got.Word() != s.String() {
			t.Errorf("%s is %s", s, got)
		}
	}
	for _, k := range []decode.Kind{decode.Tag, decode.Reflection} {
		if got := wire.Kind(k); got.Word() != k.String() {
			t.Errorf("%s is %s", k, got)
		}
	}
	for _, k := range []string{fabric.KindPort, fabric.KindSet, fabric.KindRaw, fabric.KindUnknown, fabric.KindOverflow} {
		if wire.Parse[wire.LocationKind](k) == 0 {
			t.Errorf("no kind %s of locations", k)
		}
	}
	for _, s := range []string{store.SeverityInfo, store.SeverityWarning, store.SeverityError} {
		if wire.Parse[wire.Severity](s) == 0 {
			t.Errorf("no severity %s", s)
		}
	}
}
