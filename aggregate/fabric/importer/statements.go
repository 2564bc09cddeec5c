package importer

import (
	"encoding/json"
	"net/netip"
	"strings"
)

// rank decides between two different statements: a neighbor that a port hears is plugged in, a
// cable in an inventory should be, and a configured neighbor may be outdated.
type rank uint8

const (
	byAddresses  rank = iota + 1 // two ports in one subnet of two addresses, or a BGP session
	byNeighbours                 // DEVICE_NEIGHBOR of config_db.json
	byPlan                       // cables of NetBox, links of containerlab
	byLLDP
)

// Kinds of files.
const (
	kindSONiC        = "SONiC config_db.json"
	kindLLDP         = "lldpctl JSON"
	kindNetBox       = "NetBox JSON"
	kindContainerlab = "containerlab topology"
)

// document is the statements of one file.
type document struct {
	file, kind string
	nodes      []node
	links      []link
	notes      []string // skipped parts of it
	// interfaces are NetBox's, by id, for cables that give only the id.
	interfaces map[int64]end
	identities []identity
}

// identity is NetBox's id of a device: its name is unique only within a site and tenant.
type identity struct {
	name string
	id   int64
	site string // "" if the file does not state it
	file string // set when files are merged
}

// node is a file's statements about a switch or a host.
type node struct {
	name string
	// own is set if the file lists all ports of the node.
	own  bool
	kind nodeKind
	// role is in the words of the source; sonicType is DEVICE_METADATA's, whose words have another
	// meaning.
	role, sonicType string
	mac             string // xx:xx:xx:xx:xx:xx
	rack, pod       string
	addresses       []netip.Addr // to which the fabric delivers
	perhaps         []netip.Addr // the same, or of the management network
	primary         []netip.Addr // an inventory's primary addresses
	ports           []port
	vlans           []vlan
	// positional is set if ethN is the N-th port, as in containerlab's SONiC nodes.
	positional bool
}

// port is a file's statements about a port.
type port struct {
	name, alias string
	speed       uint64 // kbit/s; 0: not stated
	lag         string // LAG of which it is a member
	logical     bool   // a LAG, a loopback, a VLAN interface
	management  bool
	up          bool           // administratively
	addresses   []netip.Prefix // of the port itself, with the bits of the host
	servers     []netip.Addr   // of the hosts behind it
}

// vlan is a VLAN that a switch routes for the hosts at its members.
type vlan struct {
	addresses []netip.Prefix
	members   []string
}

// link is a file's statement about two ends.
type link struct {
	a, b end
	by   rank
	// known is set for links to nodes that count only if another statement names them too.
	known bool
}

// end is one end of a link.
type end struct {
	node  string // "" if only mac is known
	mac   string
	port  string // "" if not stated
	label string // another name of the port
	local bool   // port may be something else than the interface's name: an alias, an index, a description
	id    int64  // of a NetBox interface; 0: none
	speed uint64 // of the link, kbit/s
}

// text is a JSON string, or another scalar in its place: hand-written files have numbers.
type text string

// UnmarshalJSON implements json.Unmarshaler. Objects and lists are "".
func (t *text) UnmarshalJSON(raw []byte) error {
	*t = ""
	switch raw[0] {
	case '"':
		return json.Unmarshal(raw, (*string)(t))
	case '{', '[', 'n':
		return nil
	}
	*t = text(raw)
	return nil
}

// many is a list, or its single element in its place.
type many[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (m *many[T]) UnmarshalJSON(raw []byte) error {
	switch raw[0] {
	case '[':
		return json.Unmarshal(raw, (*[]T)(m))
	case 'n':
		return nil
	}
	var one T
	if err := json.Unmarshal(raw, &one); err != nil {
		return err
	}
	*m = append(*m, one)
	return nil
}

// parseAddress reads an address, with or without the length of its prefix.
func parseAddress(s string) (netip.Addr, bool) {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "/")
	a, err := netip.ParseAddr(s)
	if err != nil || !usable(a) {
		return netip.Addr{}, false
	}
	return a.Unmap().WithZone(""), true
}

// parsePrefix reads an address with the length of its prefix, and keeps the host's bits.
func parsePrefix(s string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(strings.TrimSpace(s))
	if err != nil || !usable(p.Addr()) || p.Addr().Is4In6() {
		return netip.Prefix{}, false
	}
	return p, true
}

// usable reports whether an address is global to a network, and not link-local or special.
func usable(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && !a.IsLinkLocalUnicast()
}
