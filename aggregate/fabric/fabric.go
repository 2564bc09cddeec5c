package fabric

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// Fabric resolves addresses to groups and locator metadata to locations. It
// implements aggregate.Resolver, is safe for concurrent use, and its memory is
// bounded by the topology and by constants, whatever the traffic.
type Fabric struct {
	domain *csig.Domain
	topo   *topology
	places []placeIDs // of ports
	portAt map[aggregate.LocationID]int32

	classes *classes
	resolve *resolver
	known   *registry
	derived derived
}

var (
	_ aggregate.Resolver  = (*Fabric)(nil)
	_ aggregate.Forgetter = (*Fabric)(nil)
)

// New compiles a fabric. The domain says what locator metadata holds; it is usually
// csig.DefaultSpec overlaid with spec.CSIG. Errors are SpecErrors.
func New(spec *Spec, domain *csig.Domain) (*Fabric, error) {
	if spec == nil || domain == nil {
		return nil, errors.New("new fabric: expected a specification and a domain")
	}
	t, err := build(spec, domain)
	if err != nil {
		return nil, fmt.Errorf("new fabric: %w", err)
	}
	return newFabric(t, domain), nil
}

// None is the fabric without a topology: groups are the /24 and /64 prefixes of the
// addresses met, locations the raw values of locator metadata.
func None(domain *csig.Domain) *Fabric { return newFabric(new(topology), domain) }

func newFabric(t *topology, domain *csig.Domain) *Fabric {
	f := &Fabric{domain: domain, topo: t, classes: newClasses(t, domain), known: newRegistry()}
	f.resolve = newResolver(f, f.classes)
	f.derived.groups, f.derived.byID = map[netip.Prefix]*derivedGroup{}, map[aggregate.GroupID]*derivedGroup{}
	f.derived.knocking = map[netip.Prefix]knock{}
	f.addPlaces()
	return f
}

// Location is a location by its identity; ok is false for one that this fabric has
// not met.
func (f *Fabric) Location(id aggregate.LocationID) (l Location, ok bool) {
	if i, ok := f.portAt[id]; ok {
		return f.portLocation(i), true
	}
	if l := f.known.get(id); l != nil {
		return *l, true
	}
	return Location{}, false
}

// Ancestor is the location that id belongs to at the level; id itself when it does
// not fit into one, or when this fabric has not met it.
func (f *Fabric) Ancestor(id aggregate.LocationID, level Level) aggregate.LocationID {
	if i, ok := f.portAt[id]; ok {
		at := &f.places[i]
		l := Location{ID: at.port, Set: at.set, DeviceLoc: at.device, StageLoc: at.stage}
		return l.At(level)
	}
	if l := f.known.get(id); l != nil {
		return l.At(level)
	}
	return id
}

// Locations lists every port, the sets, devices and stages above them, the overflow
// location, and everything else met so far, ordered by name.
func (f *Fabric) Locations() []Location {
	all := f.known.list()
	for i := range f.topo.ports {
		all = append(all, f.portLocation(int32(i)))
	}
	slices.SortFunc(all, func(x, y Location) int { return cmp.Compare(x.Name, y.Name) })
	return all
}

// Tap is the tap of that name in the fabric file, its weight at least 1.
func (f *Fabric) Tap(name string) (TapSpec, bool) {
	t, ok := f.topo.taps[name]
	return t, ok
}

// Taps are the taps of the fabric file, by name.
func (f *Fabric) Taps() []TapSpec {
	return slices.SortedFunc(maps.Values(f.topo.taps), func(x, y TapSpec) int { return cmp.Compare(x.Name, y.Name) })
}

// Warnings are what is odd about the fabric without being wrong: values that no
// locator can name, links that only one end knows, addresses in no group.
func (f *Fabric) Warnings() []string { return slices.Clone(f.topo.warnings) }

// Counts say how often a bound on memory made a resolution coarser. A resolution
// that is still remembered counts once.
type Counts struct {
	SetFallbacks     uint64 // sets that became their stage, or the overflow location
	OffPathFallbacks uint64 // contradictions that became the overflow location
	PathFallbacks    uint64 // devices whose paths are not known, as if they had none
	GroupFallbacks   uint64 // addresses that became the unknown group, each as often as it was looked up
	GroupsForgotten  uint64 // idle prefixes that made room for others
}

// Counts is a snapshot of the counters.
func (f *Fabric) Counts() Counts {
	f.known.mu.RLock()
	c := f.known.counts
	f.known.mu.RUnlock()
	c.PathFallbacks = f.resolve.paths.hops.refusals()
	f.derived.mu.RLock()
	c.GroupFallbacks, c.GroupsForgotten = f.derived.fallbacks, f.derived.forgotten
	f.derived.mu.RUnlock()
	return c
}
