package api

import (
	"context"
	"errors"
	"testing"

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
