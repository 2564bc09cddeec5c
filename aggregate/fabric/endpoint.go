package fabric

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// endpoint stands for a host (its index), for an unlisted address of a group with
// hosts (the number of hosts plus the group's index), or for none: an address of
// which the topology does not know where it is attached.
type endpoint = int32

// endpointOf is where an address is attached, as far as the topology tells.
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

// attachmentOf is the attachment of the endpoint at an address, or none.
func (t *topology) attachmentOf(a netip.Addr) int32 {
	if e := t.endpointOf(a); e != none {
		return t.attached[e]
	}
	return none
}

// indexEndpoints gives every endpoint its attachment; endpoints behind the same
// devices share one, and with it their routes.
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
		t.attached = append(t.attached, enter(t.homes(int32(i), nil), false))
	}
	for i := range t.groups {
		t.attached = append(t.attached, enter(t.groups[i].homes, true))
	}
}

func (t *topology) homes(h int32, devices []int32) []int32 {
	for _, p := range t.hosts[h].ports {
		devices = append(devices, t.ports[p].device)
	}
	return devices
}

// isLast reports whether paths to endpoint e that end at the port's device leave the
// fabric by the port: those that face the host, or, for an unlisted address of a
// group, every port that does not face a device.
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
