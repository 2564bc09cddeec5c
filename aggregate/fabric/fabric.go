package fabric

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// Fabric resolves addresses to groups and locator metadata to locations. It
// implements aggregate.Resolver, is safe for concurrent use, and its memory is
// bounded by the topology and by constants, whatever the traffic.
type Fabric struct {
	domain      *csig.Domain
	topo        *topology
	locationsOf []portLocations // of ports
	portAt      map[aggregate.LocationID]int32

	classes *classes
	resolve *resolver
	known   *registry
	derived derived
	ways    *ways
	seen    *sightings
	rules   *rules
	ecmp    *ecmp
	passed  passedCache

	revision func() string // of the topology
}

var (
	_ aggregate.Resolver     = (*Fabric)(nil)
	_ aggregate.Partitioner  = (*Fabric)(nil)
	_ aggregate.Forgetter    = (*Fabric)(nil)
	_ aggregate.PathResolver = (*Fabric)(nil)
)

// New compiles a fabric. The domain has the locator layouts; it is usually csig.DefaultSpec
// overlaid with spec.CSIG. Errors are SpecErrors.
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

// None returns the fabric without a topology: groups are the /24 and /64 prefixes of the addresses
// seen, locations the raw values of locator metadata.
func None(domain *csig.Domain) *Fabric { return newFabric(new(topology), domain) }

func newFabric(t *topology, domain *csig.Domain) *Fabric {
	f := &Fabric{domain: domain, topo: t, classes: newClasses(t, domain), known: newRegistry(), ways: &ways{byKey: map[string]uint32{}, byRule: map[ruleEnds]uint32{}}, seen: newSightings(), rules: &t.rules, ecmp: &t.ecmp, revision: sync.OnceValue(t.revision)}
	f.resolve = newResolver(f, f.classes)
	f.derived.groups, f.derived.byID = map[netip.Prefix]*derivedGroup{}, map[aggregate.GroupID]*derivedGroup{}
	f.derived.knocking = map[netip.Prefix]knock{}
	f.addAncestors()
	t.measureAddresses()
	return f
}

// Location returns a location by its identity; ok is false for one that this fabric has not seen.
func (f *Fabric) Location(id aggregate.LocationID) (l Location, ok bool) {
	if i, ok := f.portAt[id]; ok {
		return f.portLocation(i), true
	}
	if l := f.known.get(id); l != nil {
		return *l, true
	}
	return Location{}, false
}

// Locations lists every port, the sets, devices and stages above them, the overflow location, and
// every other location seen so far, ordered by name.
func (f *Fabric) Locations() []Location {
	all := f.known.list()
	for i := range f.topo.ports {
		all = append(all, f.portLocation(int32(i)))
	}
	slices.SortFunc(all, func(x, y Location) int { return cmp.Compare(x.Name, y.Name) })
	return all
}

// Warnings returns oddities of the fabric that are no errors: values that no locator can name,
// links that only one end states, addresses in no group.
func (f *Fabric) Warnings() []string { return slices.Clone(f.topo.warnings) }

// Counts are the numbers of results that a memory bound made coarser. A result that is still
// remembered counts once.
type Counts struct {
	SetFallbacks     uint64 // sets that became their stage, or the overflow location
	OffPathFallbacks uint64 // contradictions that became the overflow location
	PathFallbacks    uint64 // devices whose paths are unknown, as if they had none
	GroupFallbacks   uint64 // addresses that became the unknown group, counted at each lookup
	GroupsForgotten  uint64 // idle prefixes that made room for others
	Ways             WayCounts
}

// Counts returns a snapshot of the counters.
func (f *Fabric) Counts() Counts {
	f.known.mu.RLock()
	c := f.known.counts
	f.known.mu.RUnlock()
	c.Ways = f.ways.snapshot()
	f.seen.mu.RLock()
	c.Ways.Refused += f.seen.refused
	f.seen.mu.RUnlock()
	c.PathFallbacks = f.resolve.paths.hops.refusals()
	f.derived.mu.RLock()
	c.GroupFallbacks, c.GroupsForgotten = f.derived.fallbacks, f.derived.forgotten
	f.derived.mu.RUnlock()
	return c
}

// Fingerprint returns the canonical text of the topology, the groups and the CSIG domain: equal
// texts resolve and measure alike. It does not depend on the wording of the fabric file, nor on
// its order except that of ports under ecmp and of reflections.
func (f *Fabric) Fingerprint() string {
	var b strings.Builder
	printDomain(&b, f.domain)
	f.topo.print(&b)
	f.topo.printEvidence(&b)
	return b.String()
}

// printDomain prints compiled tables and locators instead of their specification, because "100Gbps"
// and "0.1Tbps" are the same. They hold plain values and maps, which fmt prints in the order of
// their keys.
func printDomain(w io.Writer, d *csig.Domain) {
	for id := range 1 << 16 {
		if l, ok := d.LayoutOf(uint16(id)); ok {
			fmt.Fprintf(w, "tpid 0x%04x %s\n", id, l)
		}
	}
	for i := range csig.NumLayouts {
		l := csig.LayoutAt(i)
		for t := range uint8(l.Types()) {
			if table := d.Table(l, t); table != nil {
				fmt.Fprintf(w, "table %s %d %+v\n", l, t, *table)
			}
			if locator := d.Locator(l, t); locator != nil {
				fmt.Fprintf(w, "locator %s %d %+v\n", l, t, *locator)
			}
		}
	}
	for _, r := range d.Reflections() {
		fmt.Fprintf(w, "reflection %+v\n", r)
	}
	for _, r := range d.UDPReflections() {
		fmt.Fprintf(w, "udp reflection %+v\n", r)
	}
}

func (t *topology) print(w io.Writer) {
	groups := slices.SortedFunc(slices.Values(t.groups), func(x, y group) int { return cmp.Compare(x.name, y.name) })
	for _, g := range groups {
		fmt.Fprintf(w, "group %q %s parent %q\n", g.name, g.level, g.parent)
	}
	for p, g := range t.prefixes.AllSorted() {
		fmt.Fprintf(w, "prefix %s %q\n", p, t.groups[g].name)
	}
	devices := slices.SortedFunc(slices.Values(t.devices), func(x, y device) int { return cmp.Compare(x.name, y.name) })
	for _, d := range devices {
		fmt.Fprintf(w, "device %s stage %s id %d\n", d.name, d.stage, d.id)
	}
	for _, p := range t.ports {
		fmt.Fprintf(w, "port %s id %d %s peer %q %d kbit/s\n", p.name, p.id, p.orientation, p.peer, p.speed)
	}
	addresses := make([]string, 0, len(t.addresses))
	for a, h := range t.addresses {
		addresses = append(addresses, fmt.Sprintf("host %s %s\n", t.hosts[h].name, a))
	}
	slices.Sort(addresses)
	for _, line := range addresses {
		fmt.Fprint(w, line)
	}
}

// Writes reports whether a port, such as "leaf3:up1", writes this locator metadata into tags of the
// layout and signal type (section 5.5.1). known is false for a port that is not in the fabric, and
// if no locator layout applies. It may be called from several goroutines.
func (f *Fabric) Writes(port string, l csig.Layout, t uint8, lm uint16) (writes, known bool) {
	i, ok := f.portAt[LocationIDOf(KindPort, port)]
	if !ok {
		return false, false
	}
	class, located := f.classes.class(l, t, lm)
	if !located {
		return false, false
	}
	return class != none && f.classes.holds(class, i), true
}
