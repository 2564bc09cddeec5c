package importer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/aggregate/fabric"
)

// rack is the hosts behind a switch, or behind two that share its prefixes.
type rack struct {
	name     string
	leaves   []*device
	prefixes []netip.Prefix
}

// racks finds prefixes, hosts and their addresses behind each switch.
type racks struct {
	m        *merger
	list     []*rack
	of       map[*device][]*rack
	hosts    []*device
	leavesOf map[*device][]*device // hosts to switches
	isLeaf   map[*device]bool      // switches that face hosts
	address  map[*device][]netip.Addr
	owner    map[netip.Addr]*device
	access   map[*iface]bool // ports of a rack whose hosts no file names
}

func (m *merger) findRacks(switches []*device) *racks {
	r := &racks{
		m: m, of: map[*device][]*rack{}, leavesOf: map[*device][]*device{}, isLeaf: map[*device]bool{},
		address: map[*device][]netip.Addr{}, owner: map[netip.Addr]*device{}, access: map[*iface]bool{},
	}
	for _, d := range switches {
		for _, i := range d.ports {
			if h := i.faces(); h != nil && h.kind == hostKind {
				if len(r.leavesOf[h]) == 0 {
					r.hosts = append(r.hosts, h)
				}
				r.isLeaf[d] = true
				if !slices.Contains(r.leavesOf[h], d) {
					r.leavesOf[h] = append(r.leavesOf[h], d)
				}
			}
		}
	}
	slices.SortStableFunc(r.hosts, func(x, y *device) int { return fabric.CompareNames(x.name, y.name) })
	r.findPrefixes(switches)
	for _, d := range switches {
		for _, i := range d.ports {
			r.addressByPort(i)
		}
	}
	for _, h := range r.hosts {
		r.addressByHost(h)
	}
	r.addLoneAddresses()
	return r
}

// findPrefixes collects the prefixes that switches route for hosts and those of the hosts' own
// interfaces, and assigns them to racks by the switches that have them.
func (r *racks) findPrefixes(switches []*device) {
	owners := map[netip.Prefix][]*device{} // the first three
	var order []netip.Prefix
	own := func(p netip.Prefix, d *device) {
		if p = p.Masked(); p.Bits() == p.Addr().BitLen() {
			return
		}
		if len(owners[p]) == 0 {
			order = append(order, p)
		}
		if len(owners[p]) < 3 && !slices.Contains(owners[p], d) {
			owners[p] = append(owners[p], d)
		}
	}
	for _, d := range switches {
		r.routedPrefixes(d, func(p netip.Prefix) { own(p, d) })
	}
	for _, h := range r.hosts {
		for _, i := range h.ports {
			if i.hidden || i.peer == nil && len(h.ports) > 1 && isManagement(i.name) {
				continue
			}
			for _, a := range i.addresses {
				for _, d := range r.leavesOf[h] {
					own(a, d)
				}
			}
		}
	}
	byLeaves := map[string]*rack{}
	for _, p := range order {
		if len(owners[p]) > 2 {
			r.m.warnf("prefix %s is behind more than two switches: hosts in it are grouped by their own addresses", p)
			continue
		}
		k := r.rackOf(byLeaves, owners[p])
		k.prefixes = append(k.prefixes, p)
	}
	for _, k := range r.list {
		k.prefixes = aggregatePrefixes(k.prefixes)
	}
}

// rackOf returns the rack behind switches.
func (r *racks) rackOf(known map[string]*rack, leaves []*device) *rack {
	var names []string
	for _, d := range leaves {
		names = append(names, d.name)
	}
	name := strings.Join(names, "+")
	if k := known[name]; k != nil {
		return k
	}
	k := &rack{name: name, leaves: leaves}
	known[name] = k
	r.list = append(r.list, k)
	for _, d := range leaves {
		r.of[d] = append(r.of[d], k)
	}
	return k
}

// routedPrefixes calls yield for prefixes of VLANs and ports that lead to hosts, and records the
// ports among them whose hosts no file names.
func (r *racks) routedPrefixes(d *device, yield func(netip.Prefix)) {
	members := map[string][]netip.Prefix{} // prefixes of the VLANs of which a port or LAG is a member
	for n := range d.stated {
		for _, v := range d.stated[n].vlans {
			if len(v.members) == 0 && r.isLeaf[d] {
				for _, a := range v.addresses {
					yield(a)
				}
			}
			for _, name := range v.members {
				members[strings.ToLower(name)] = append(members[strings.ToLower(name)], v.addresses...)
			}
		}
	}
	for _, i := range d.ports {
		peer := i.faces()
		if i.hidden || i.logical || peer != nil && peer.kind == switchKind {
			continue
		}
		prefixes := slices.Concat(i.addresses, members[strings.ToLower(i.name)], members[strings.ToLower(i.lag)])
		if lag := d.byName[strings.ToLower(i.lag)]; i.lag != "" && lag != nil {
			prefixes = append(prefixes, lag.addresses...)
		}
		for _, a := range prefixes {
			yield(a)
		}
		if peer == nil && len(prefixes) > 0 && i.peer == nil {
			r.access[i] = true
		}
	}
}

// addressByPort assigns the addresses that a port states to be behind it.
func (r *racks) addressByPort(i *iface) {
	h := i.faces()
	if h == nil || h.kind != hostKind {
		return
	}
	for _, a := range i.servers {
		r.give(h, a)
	}
	for _, p := range i.addresses {
		if other, ok := otherEnd(p); ok {
			r.give(h, other)
		}
	}
}

// otherEnd returns the other address of a subnet for two.
func otherEnd(p netip.Prefix) (netip.Addr, bool) {
	if !isPointToPoint(p) {
		return netip.Addr{}, false
	}
	b := p.Addr().AsSlice()
	last := &b[len(b)-1]
	switch {
	case p.Bits() == p.Addr().BitLen()-1:
		*last ^= 1
	case *last&3 == 1 || *last&3 == 2: // the others are the subnet's and its broadcast address
		*last ^= 3
	default:
		return netip.Addr{}, false
	}
	a, ok := netip.AddrFromSlice(b)
	return a, ok
}

// addressByHost assigns a host's own addresses. Those that may belong to the management network
// count if a rack's prefix holds them, and an inventory's if nothing else is known.
func (r *racks) addressByHost(h *device) {
	var primary []netip.Addr
	for _, i := range h.ports {
		for _, p := range i.addresses {
			if !i.hidden {
				r.give(h, p.Addr())
			}
		}
	}
	for n := range h.stated {
		s := &h.stated[n]
		for _, a := range s.addresses {
			r.give(h, a)
		}
		for _, a := range slices.Concat(s.perhaps, s.primary) {
			if r.holds(h, a) {
				r.give(h, a)
			}
		}
		primary = append(primary, s.primary...)
	}
	if len(r.address[h]) == 0 && len(primary) > 0 {
		r.m.warnf("host %s: only its primary address is known: %s is taken for its address in the fabric", h.name, primary[0])
		for _, a := range primary {
			r.give(h, a)
		}
	}
}

// holds reports whether a prefix of the host's racks holds the address.
func (r *racks) holds(h *device, a netip.Addr) bool {
	for _, d := range r.leavesOf[h] {
		for _, k := range r.of[d] {
			if slices.ContainsFunc(k.prefixes, func(p netip.Prefix) bool { return p.Contains(a) }) {
				return true
			}
		}
	}
	return false
}

func (r *racks) give(h *device, a netip.Addr) {
	switch other := r.owner[a]; {
	case other == h:
	case other != nil:
		r.m.warnf("address %s: files give it to %s and to %s: the first is taken", a, other.name, h.name)
	default:
		r.owner[a] = h
		r.address[h] = append(r.address[h], a)
	}
}

// addLoneAddresses adds addresses that no prefix holds to the rack of their host.
func (r *racks) addLoneAddresses() {
	known := map[string]*rack{}
	for _, k := range r.list {
		known[k.name] = k
	}
	var held prefixSet
	for _, k := range r.list {
		held.add(k.prefixes)
	}
	lone := map[*rack][]netip.Prefix{}
	for _, h := range r.hosts {
		leaves := r.leavesOf[h]
		for _, a := range r.address[h] {
			if !held.contains(a) {
				k := r.rackOf(known, leaves[:min(len(leaves), 2)])
				lone[k] = append(lone[k], netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	for k, list := range lone {
		k.prefixes = append(k.prefixes, aggregatePrefixes(list)...)
	}
}

// prefixSet finds fast whether one of many prefixes holds an address.
type prefixSet struct {
	prefixes map[netip.Prefix]bool
	lengths  [2][129]bool // in use, of IPv4 and IPv6
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

func (s *prefixSet) add(list []netip.Prefix) {
	if s.prefixes == nil {
		s.prefixes = map[netip.Prefix]bool{}
	}
	for _, p := range list {
		s.prefixes[p] = true
		s.lengths[family(p.Addr())][p.Bits()] = true
	}
}

func (s *prefixSet) contains(a netip.Addr) bool {
	for bits := range a.BitLen() + 1 {
		if s.lengths[family(a)][bits] {
			if p, err := a.Prefix(bits); err == nil && s.prefixes[p] {
				return true
			}
		}
	}
	return false
}

// aggregatePrefixes sorts prefixes, drops those within others and joins halves: the 64 subnets of a
// rack's links become one prefix.
func aggregatePrefixes(list []netip.Prefix) []netip.Prefix {
	list = slices.Clone(list)
	slices.SortFunc(list, func(x, y netip.Prefix) int {
		return cmp.Or(x.Addr().Compare(y.Addr()), cmp.Compare(x.Bits(), y.Bits()))
	})
	var out []netip.Prefix
	for _, p := range list {
		if len(out) > 0 && out[len(out)-1].Contains(p.Addr()) {
			continue
		}
		out = append(out, p)
		for len(out) > 1 {
			a, b := out[len(out)-2], out[len(out)-1]
			whole := netip.PrefixFrom(a.Addr(), max(a.Bits()-1, 0)).Masked()
			if a.Bits() != b.Bits() || a.Bits() == 0 || whole.Addr() != a.Addr() || !whole.Contains(b.Addr()) {
				break
			}
			out = append(out[:len(out)-2], whole)
		}
	}
	return out
}

// groupName returns the name of a rack: the inventory's, if no other rack has it, else one from its
// switches.
func (k *rack) groupName(taken map[string]bool) string {
	name := ""
	for _, d := range k.leaves {
		for n := range d.stated {
			name = cmp.Or(name, strings.ReplaceAll(d.stated[n].rack, `"`, ""))
		}
	}
	if name = cleanName(name, `"`); name == "" || taken[name] {
		name = k.name
	}
	for n := 2; taken[name]; n++ {
		name = fmt.Sprintf("%s-%d", k.name, n)
	}
	taken[name] = true
	return name
}
