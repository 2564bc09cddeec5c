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
		if len(devices) == 0 || len(devices) > maxHomes && group {
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
		var devices []int32
		for _, h := range t.groups[i].hosts {
			devices = t.homes(h, devices)
			if len(devices) > 4*maxHomes {
				slices.Sort(devices)
				devices = slices.Compact(devices)
			}
			if len(devices) > 4*maxHomes {
				break
			}
		}
		t.attached = append(t.attached, enter(devices, true))
	}
}

func (t *topology) homes(h int32, devices []int32) []int32 {
	for _, p := range t.hosts[h].ports {
		devices = append(devices, t.ports[p].device)
	}
	return devices
}

// lastPorts appends the ports by which the paths leave the fabric toward the
// endpoint: those that face the host, or, for an unlisted address of a group,
// every port of the reached devices that does not face a device.
func (t *topology) lastPorts(e endpoint, reached, into []int32) []int32 {
	if int(e) < len(t.hosts) {
		for _, p := range t.hosts[e].ports {
			if _, ok := slices.BinarySearch(reached, t.ports[p].device); ok {
				into = append(into, p)
			}
		}
		return into
	}
	for _, d := range reached {
		for _, p := range t.devices[d].ports {
			if t.ports[p].peerDevice == none {
				into = append(into, p)
			}
		}
	}
	return into
}
