package fabric

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/csigscope/csigscope/aggregate"
)

// LevelPrefix is the level of groups that are derived from addresses.
const LevelPrefix = "prefix"

// maxDerived bounds the groups that are derived from addresses.
const maxDerived = 1 << 16

// Group is a set of endpoints, an axis label of the source-destination matrix.
type Group struct {
	ID     aggregate.GroupID
	Name   string
	Level  string // host, rack, pod, cluster, prefix; empty for unknown and overflow
	Parent string // name, empty without
	Order  int    // position in the file, or among the derived prefixes
}

// derived makes groups of /24 and /64 prefixes as addresses are met. Safe for
// concurrent use.
type derived struct {
	mu        sync.RWMutex
	groups    map[netip.Prefix]aggregate.GroupID
	fallbacks uint64
}

// group is the group of the prefix that holds a, UnknownGroup beyond the bound.
func (d *derived) group(a netip.Addr) aggregate.GroupID {
	if !a.IsValid() {
		return aggregate.UnknownGroup
	}
	bits := 64
	if a.Is4() {
		bits = 24
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return aggregate.UnknownGroup
	}
	d.mu.RLock()
	id, ok := d.groups[p]
	d.mu.RUnlock()
	if ok {
		return id
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if id, ok := d.groups[p]; ok {
		return id
	}
	if len(d.groups) >= maxDerived {
		d.fallbacks++
		return aggregate.UnknownGroup
	}
	id = GroupIDOf(p.String())
	d.groups[p] = id
	return id
}

// list gives the groups in the order of their prefixes.
func (d *derived) list() []Group {
	d.mu.RLock()
	prefixes := make([]netip.Prefix, 0, len(d.groups))
	for p := range d.groups {
		prefixes = append(prefixes, p)
	}
	d.mu.RUnlock()
	slices.SortFunc(prefixes, func(x, y netip.Prefix) int { return x.Addr().Compare(y.Addr()) })
	groups := make([]Group, 0, len(prefixes))
	for i, p := range prefixes {
		groups = append(groups, Group{ID: GroupIDOf(p.String()), Name: p.String(), Level: LevelPrefix, Order: i})
	}
	return groups
}

// Group is the group with the longest prefix that holds the address, UnknownGroup
// if none does. A fabric without groups derives /24 and /64 prefixes. Group may be
// called from several goroutines.
func (f *Fabric) Group(a netip.Addr) aggregate.GroupID {
	a = canonicalAddr(a)
	if len(f.topo.groups) == 0 {
		return f.derived.group(a)
	}
	if g := f.topo.groupOf(a); g != none {
		return f.topo.groups[g].id
	}
	return aggregate.UnknownGroup
}

// Groups lists the groups of the file in its order, or those derived so far, and
// then the unknown and the overflow group.
func (f *Fabric) Groups() []Group {
	groups := f.derived.list()
	for i := range f.topo.groups {
		g := &f.topo.groups[i]
		groups = append(groups, Group{ID: g.id, Name: g.name, Level: g.level, Parent: g.parent, Order: i})
	}
	n := len(groups)
	return append(groups,
		Group{ID: aggregate.UnknownGroup, Name: unknownName, Order: n},
		Group{ID: aggregate.OverflowGroup, Name: overflowName, Order: n + 1})
}

// Prefixes are those of the groups of the file, each in the one group that the file gives it
// to. Groups that are derived from addresses are named after theirs.
func (f *Fabric) Prefixes() map[aggregate.GroupID][]netip.Prefix {
	all := make(map[aggregate.GroupID][]netip.Prefix)
	for p, g := range f.topo.prefixes.AllSorted() {
		id := f.topo.groups[g].id
		all[id] = append(all[id], p)
	}
	return all
}
