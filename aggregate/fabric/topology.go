package fabric

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"github.com/csigscope/csigscope/aggregate"
)

// none stands for a missing index.
const none = int32(-1)

// topology is a checked Spec with names replaced by indices. It is immutable.
type topology struct {
	devices []device
	ports   []port // ordered by name: ascending indices are ascending names
	hosts   []host
	groups  []group

	deviceIndex map[string]int32
	hostIndex   map[string]int32
	groupIndex  map[string]int32
	addresses   map[netip.Addr]int32 // to hosts
	prefixes    bart.Table[int32]    // to groups
	bits4       int                  // of the longest of addresses and prefixes
	bits6       int
	stages      map[string][]int32 // ports of a stage
	allPorts    []int32
	attachments []attachment
	attached    []int32 // endpoint to attachment, or none
	rules       rules
	ecmp        ecmp
	warnings    []string
}

type device struct {
	name, stage string
	id          uint32
	ports       []int32
}

type port struct {
	name        string // "leaf3:up1"
	device      int32
	orientation string
	peer        string
	peerDevice  int32
	peerHost    int32
	speed       uint64 // kbit/s
	id          uint32
	number      int32 // in its device, in the order of the file
}

type host struct {
	name  string
	ports []int32 // that face it
}

type group struct {
	name, level, parent string
	id                  aggregate.GroupID
	homes               []int32 // devices of its hosts, ascending; up to one too many
}

// index computes the fields that follow from devices, ports, hosts and groups.
func (t *topology) index() {
	t.stages = make(map[string][]int32)
	for i := range t.ports {
		p, n := &t.ports[i], int32(i)
		d := &t.devices[p.device]
		d.ports = append(d.ports, n)
		t.allPorts = append(t.allPorts, n)
		t.stages[d.stage] = append(t.stages[d.stage], n)
		if p.peerHost != none {
			h := &t.hosts[p.peerHost]
			h.ports = append(h.ports, n)
		}
	}
	t.indexGroups()
	t.indexEndpoints()
}

// measureAddresses computes how many bits of addresses matter.
func (t *topology) measureAddresses() {
	if len(t.groups) == 0 {
		t.bits4, t.bits6 = derivedBits4, derivedBits6
	}
	note := func(p netip.Prefix) {
		if p.Addr().Is4() {
			t.bits4 = max(t.bits4, p.Bits())
		} else {
			t.bits6 = max(t.bits6, p.Bits())
		}
	}
	for p := range t.prefixes.All() {
		note(p)
	}
	for a := range t.addresses {
		note(netip.PrefixFrom(a, a.BitLen()))
	}
}

// indexGroups collects the attachments of the hosts of each group: those with an address in one of
// its prefixes, and those of the groups below it.
func (t *topology) indexGroups() {
	for addr, h := range t.addresses {
		for _, g := range t.prefixes.Supernets(netip.PrefixFrom(addr, addr.BitLen())) {
			for steps := 0; g != none && steps < len(t.groups); steps++ {
				t.groups[g].addHomes(t, h)
				g = t.groupNamed(t.groups[g].parent)
			}
		}
	}
}

// addHomes adds the devices of a host, until they are too many to matter.
func (g *group) addHomes(t *topology, h int32) {
	for _, p := range t.hosts[h].ports {
		d := t.ports[p].device
		if n, found := slices.BinarySearch(g.homes, d); !found && len(g.homes) <= maxHomes {
			g.homes = slices.Insert(g.homes, n, d)
		}
	}
}

func (t *topology) groupNamed(name string) int32 {
	if i, ok := t.groupIndex[name]; ok {
		return i
	}
	return none
}

// groupOf returns the group with the longest prefix that holds the address.
func (t *topology) groupOf(a netip.Addr) int32 {
	if g, ok := t.prefixes.Lookup(a); ok {
		return g
	}
	return none
}

// canonicalAddr unmaps IPv4 and drops zones, which mean nothing outside a host.
func canonicalAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// endpoint stands for a host (its index), for an unlisted address of a group with hosts (the number
// of hosts plus the group's index), or for none: an address whose attachment is unknown.
type endpoint = int32

// endpointOf returns the endpoint of an address, as far as the topology has it.
func (t *topology) endpointOf(a netip.Addr) endpoint {
	a = canonicalAddr(a)
	if h, ok := t.addresses[a]; ok {
		if t.attached[h] == none {
			return none
		}
		return h
	}
	if g := t.groupOf(a); g != none {
		if e := int32(len(t.hosts)) + g; t.attached[e] != none {
			return e
		}
	}
	return none
}

// attachmentOf returns the attachment of the endpoint at an address, or none.
func (t *topology) attachmentOf(a netip.Addr) int32 {
	if e := t.endpointOf(a); e != none {
		return t.attached[e]
	}
	return none
}

// indexEndpoints gives every endpoint its attachment; endpoints behind the same devices share one,
// and its routes.
func (t *topology) indexEndpoints() {
	known := map[string]int32{}
	enter := func(devices []int32, group bool) int32 {
		slices.Sort(devices)
		devices = slices.Compact(devices)
		if len(devices) == 0 || len(devices) > maxHomes {
			return none
		}
		var key []byte
		for _, d := range devices {
			key = binary.LittleEndian.AppendUint32(key, uint32(d))
		}
		if group {
			key = append(key, 'g')
		}
		n, ok := known[string(key)]
		if !ok {
			n = int32(len(t.attachments))
			known[string(key)] = n
			t.attachments = append(t.attachments, attachment{devices, group})
		}
		return n
	}
	for i := range t.hosts {
		t.attached = append(t.attached, enter(t.attachedSwitches(int32(i)), false))
	}
	for i := range t.groups {
		t.attached = append(t.attached, enter(t.groups[i].homes, true))
	}
}

func (t *topology) attachedSwitches(h int32) (devices []int32) {
	for _, p := range t.hosts[h].ports {
		devices = append(devices, t.ports[p].device)
	}
	return devices
}

// isLast reports whether paths to endpoint e that end at the port's device leave the fabric by the
// port: by those that face the host, or, for an unlisted address of a group, by every port that
// does not face a device.
func (t *topology) isLast(port int32, e endpoint) bool {
	p := &t.ports[port]
	if int(e) < len(t.hosts) {
		return p.peerHost == e
	}
	return p.peerDevice == none
}

// eachLast calls yield for the ports of device d for which isLast holds.
func (t *topology) eachLast(d int32, e endpoint, yield func(port int32)) {
	ports := t.devices[d].ports
	if int(e) < len(t.hosts) {
		ports = t.hosts[e].ports
	}
	for _, p := range ports {
		if t.ports[p].device == d && t.isLast(p, e) {
			yield(p)
		}
	}
}
