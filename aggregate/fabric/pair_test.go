package fabric

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
)

// TestPassed compares the ports that a tag surely passed with a list of all paths of the pair, for
// every location of whole fabrics and for untouched tags.
func TestPassed(t *testing.T) {
	for _, file := range []string{"leafspine.yaml", "threetier.yaml"} {
		_, f := load(t, file)
		locations := append([]Location{{}}, f.Locations()...)
		certain := 0
		for _, src := range f.Groups() {
			for _, dst := range f.Groups() {
				routes := allRoutes(t, f, src.ID, dst.ID)
				for i := range locations {
					want := sharedBy(f, routes, &locations[i])
					got := f.Passed(src.ID, dst.ID, &locations[i])
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("%s: from %s to %s at %q (-paths +got):\n%s", file, src.Name, dst.Name, locations[i].Name, diff)
					}
					if again := f.Passed(src.ID, dst.ID, &locations[i]); !slices.Equal(got, again) {
						t.Fatalf("%s: from %s to %s at %q: a second answer is %v", file, src.Name, dst.Name, locations[i].Name, again)
					}
					certain += len(got)
				}
			}
		}
		if certain == 0 {
			t.Errorf("%s: no tag passes any port for sure", file)
		}
	}
}

// allRoutes returns all paths of a pair of groups, including the last hop port by port.
func allRoutes(t *testing.T, f *Fabric, src, dst aggregate.GroupID) (all [][]aggregate.LocationID) {
	t.Helper()
	e, from, to, ok := f.topo.ends(src, dst)
	if !ok {
		return nil
	}
	w := walker{fabric: f, to: e, most: 1 << 16}
	f.resolve.paths.endpointPairs(from, to, func(s, end int32, _, left []uint8) bool {
		w.left = left
		return left[s] == far || w.from(s, end)
	})
	if w.many {
		t.Fatal("too many paths")
	}
	return w.routes
}

// sharedBy returns the ports, by name, on all paths through a port of the location.
func sharedBy(f *Fabric, routes [][]aggregate.LocationID, location *Location) []aggregate.LocationID {
	var shared []aggregate.LocationID
	first := true
	for _, r := range routes {
		takes := location.ID == aggregate.NoLocation || slices.ContainsFunc(location.Candidates, func(name string) bool {
			return slices.Contains(r, LocationIDOf(KindPort, name))
		})
		switch {
		case !takes:
		case first:
			shared, first = slices.Clone(r), false
		default:
			shared = slices.DeleteFunc(shared, func(id aggregate.LocationID) bool { return !slices.Contains(r, id) })
		}
	}
	slices.SortFunc(shared, func(a, b aggregate.LocationID) int { return int(f.portAt[a] - f.portAt[b]) })
	if len(shared) == 0 {
		return nil
	}
	return shared
}

// TestGroupRoutes: the number of paths of a pair follows from the ports of its hops, and is cut at
// a bound.
func TestGroupRoutes(t *testing.T) {
	_, f := load(t, "leafspine.yaml")
	src, dst := GroupIDOf("rack1"), GroupIDOf("rack3")
	all, more := f.GroupRoutes(src, dst, 64)
	hops := f.Hops(src, dst)
	if len(all) < 2 || more || len(all[0]) != len(hops)-1 {
		t.Fatalf("%d paths of %d ports, %d hops", len(all), len(all[0]), len(hops))
	}
	if cut, more := f.GroupRoutes(src, dst, 1); len(cut) != 1 || !more {
		t.Errorf("%d paths, more %t", len(cut), more)
	}
	if none, more := f.GroupRoutes(GroupIDOf("nobody"), dst, 64); none != nil || more {
		t.Errorf("%d paths from nobody", len(none))
	}
}

func TestDevicesAndPorts(t *testing.T) {
	s, f := load(t, "leafspine.yaml")
	devices, ports := f.Devices(), f.Ports()
	if len(devices) != len(s.Devices) || !slices.IsSortedFunc(ports, func(a, b Location) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%d devices, ports %v", len(devices), ports)
	}
	into := 0
	for _, p := range ports {
		far, ok := f.Location(p.FarEnd)
		if !ok || far.Peer != p.Peer {
			t.Errorf("%s faces %q, its far end is %+v", p.Name, p.Peer, far)
		}
		if far.Name == "into leaf2" {
			into++
			if !slices.Contains(far.Candidates, p.Name) {
				t.Errorf("%s is not in %+v", p.Name, far)
			}
		}
	}
	if into < 2 {
		t.Errorf("%d ports into leaf2", into)
	}
}
