package fabric

import (
	"fmt"
	"net/netip"
)

// peers resolves what ports face. Paths follow the file's order, so that errors
// name the place where the user wrote the port.
func (b *builder) peers() {
	t := b.topo
	facing := make([]int, len(t.hosts))
	for i := range b.spec.Devices {
		d := &b.spec.Devices[i]
		for j := range d.Ports {
			peer, at := d.Ports[j].Peer, fmt.Sprintf("devices[%d].ports[%d].peer", i, j)
			if h, ok := t.hostIndex[peer]; ok {
				facing[h]++
			} else if _, ok := t.deviceIndex[peer]; !ok && peer != "" {
				b.errorf(at, "%q: no device or host has that name: add it, or leave peer out", peer)
			}
			if peer == d.Name && peer != "" {
				b.errorf(at, "%q: is the port's own device", peer)
			}
		}
	}
	for i, n := range facing {
		if n == 0 {
			b.errorf(fmt.Sprintf("hosts[%d]", i), "no port faces host %q: name it as the peer of its switch port", t.hosts[i].name)
		}
	}
	for i := range t.ports {
		p := &t.ports[i]
		p.peerDevice, p.peerHost = none, none
		if h, ok := t.hostIndex[p.peer]; ok {
			p.peerHost = h
		} else if d, ok := t.deviceIndex[p.peer]; ok {
			p.peerDevice = d
		}
	}
}

// checkLinks warns of links that only one end knows: paths would lack one of
// their directions.
func (b *builder) checkLinks() {
	t := b.topo
	type link struct{ from, to int32 }
	known := make(map[link]bool)
	for i := range t.ports {
		if p := &t.ports[i]; p.peerDevice != none {
			known[link{p.device, p.peerDevice}] = true
		}
	}
	for i := range t.ports {
		p := &t.ports[i]
		if p.peerDevice != none && !known[link{p.peerDevice, p.device}] {
			b.warnf("port %s faces %s, which has no port that faces %s: paths in that direction are missing",
				p.name, p.peer, t.devices[p.device].name)
		}
	}
	for i := range t.hosts {
		if n := len(t.homes(int32(i), nil)); n > maxHomes && t.attached[i] == none {
			b.warnf("host %s faces %d ports of more than %d devices: paths to and from it count as unknown",
				t.hosts[i].name, n, maxHomes)
		}
	}
	for _, h := range b.spec.Hosts {
		for _, text := range h.Addresses {
			a, err := netip.ParseAddr(text)
			if err == nil && len(t.groups) > 0 && t.groupOf(canonicalAddr(a)) == none {
				b.warnf("address %s of host %s is in no group: it counts as unknown", text, h.Name)
			}
		}
	}
}
