package emitter

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/gaissmai/bart"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// fromFile takes devices, ports, hosts and groups of the file that the other
// commands read. Its csig section gives the locator layout of the locator "file";
// everything else about tags is the scenario's.
func (t *topology) fromFile(path string) error {
	spec, err := fabric.Load(path)
	if err != nil {
		return err
	}
	t.file, t.groups = spec, spec.Groups
	for i := range spec.Devices {
		d := &spec.Devices[i]
		t.addDevice(d.Name, d.Stage, "")
		t.devices[i].id = d.ID
		for _, p := range d.Ports {
			speed, err := csig.ParseQuantity(csig.BitPerSecond, p.Speed)
			if err != nil {
				return fmt.Errorf("load fabric %s: port %s:%s: %w", path, d.Name, p.Name, err)
			}
			t.addPort(portInfo{port: p.Name, id: p.ID, orientation: p.Orientation, peer: p.Peer, speed: Rate(speed)})
		}
	}
	if len(t.ports) == 0 {
		return fmt.Errorf("load fabric %s: no device has a port: nothing can be simulated", path)
	}
	t.numberPorts()
	for i := range spec.Hosts {
		if err := t.hostFrom(&spec.Hosts[i]); err != nil {
			return fmt.Errorf("load fabric %s: %w", path, err)
		}
	}
	if len(spec.Groups) == 0 {
		t.groupByDevice()
		return nil
	}
	if err := t.groupByPrefix(); err != nil {
		return fmt.Errorf("load fabric %s: %w", path, err)
	}
	return nil
}

// numberPorts gives ports and devices identifiers where the file has none at all.
func (t *topology) numberPorts() {
	ports, devices := false, false
	for i := range t.ports {
		ports = ports || t.ports[i].id != 0
		devices = devices || t.ports[i].deviceID != 0
	}
	for i := range t.ports {
		if !ports {
			t.ports[i].id = uint32(i + 1)
		}
		if !devices {
			t.ports[i].deviceID = uint32(t.ports[i].owner + 1)
			t.devices[t.ports[i].owner].id = t.ports[i].deviceID
		}
	}
}

// hostFrom takes the first IPv4 address of a host: the simulated packets have one.
func (t *topology) hostFrom(h *fabric.HostSpec) error {
	for _, text := range h.Addresses {
		a, err := netip.ParseAddr(text)
		if err != nil || !a.Unmap().Is4() {
			continue
		}
		b := a.Unmap().As4()
		t.ends = append(t.ends, hostInfo{name: h.Name, address: binary.BigEndian.Uint32(b[:])})
		return nil
	}
	return fmt.Errorf("host %s: has no IPv4 address", h.Name)
}

// groupByPrefix assigns hosts to the groups with the longest prefix of their
// addresses, as the readers of captures do. Groups without hosts are no racks.
func (t *topology) groupByPrefix() error {
	var prefixes bart.Table[int32]
	for i := range t.groups {
		for _, text := range t.groups[i].Prefixes {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return fmt.Errorf("group %s: %w", t.groups[i].Name, err)
			}
			prefixes.Insert(p, int32(i))
		}
	}
	racks := map[int32]int32{} // by group
	for i := range t.ends {
		h := &t.ends[i]
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], h.address)
		group, ok := prefixes.Lookup(netip.AddrFrom4(b))
		if !ok {
			return fmt.Errorf("host %s: %s is in no group: add a prefix that holds it", h.name, ipv4(h.address))
		}
		rack, known := racks[group]
		if !known {
			rack = int32(len(t.racks))
			racks[group] = rack
			t.racks = append(t.racks, rackInfo{name: t.groups[group].Name})
		}
		h.rack = rack
	}
	return nil
}

// groupByDevice makes a rack of the hosts of each device, for files without groups.
func (t *topology) groupByDevice() {
	owner := map[string]int32{}
	for i := len(t.ports) - 1; i >= 0; i-- {
		owner[t.ports[i].peer] = t.ports[i].owner
	}
	racks := map[int32]int32{}
	for i := range t.ends {
		h := &t.ends[i]
		device := owner[h.name]
		rack, known := racks[device]
		if !known {
			rack = int32(len(t.racks))
			racks[device] = rack
			name := "rack-" + t.devices[device].name
			t.racks = append(t.racks, rackInfo{name: name})
			t.groups = append(t.groups, fabric.GroupSpec{Name: name, Level: "rack"})
		}
		h.rack = rack
		t.groups[rack].Prefixes = append(t.groups[rack].Prefixes, ipv4(h.address)+"/32")
	}
}
