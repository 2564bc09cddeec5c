package fabric

import (
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"github.com/csigscope/csigscope/aggregate"
)

// Regions returns the prefixes of groups and the addresses of hosts. It implements aggregate.Partitioner.
func (f *Fabric) Regions() (regions []aggregate.Region, fixed bool) {
	if len(f.topo.groups) == 0 {
		return nil, false
	}
	var all bart.Lite
	for p := range f.topo.prefixes.All() {
		all.Insert(p)
	}
	for a := range f.topo.addresses {
		all.Insert(netip.PrefixFrom(a, a.BitLen()))
	}
	for p := range all.All() {
		if a, ok := within(p, &all); ok {
			regions = append(regions, aggregate.Region{Prefix: p, Address: a})
		}
	}
	return regions, true
}

// Capacities returns the speeds of ports, ascending. It implements aggregate.Partitioner.
func (f *Fabric) Capacities() (list []uint64) {
	for i := range f.topo.ports {
		list = append(list, f.topo.ports[i].speed)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// within returns an address whose longest prefix among all of them is p. ok is false where longer ones hold
// all of p.
func within(p netip.Prefix, all *bart.Lite) (a netip.Addr, ok bool) {
	for a = p.Addr(); a.IsValid() && p.Contains(a); a = a.Next() {
		longest, _ := all.LookupPrefixLPM(netip.PrefixFrom(a, a.BitLen()))
		if longest == p {
			return a, true
		}
		a = last(longest)
	}
	return a, false
}

// last returns the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
