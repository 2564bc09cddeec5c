package emitter

import (
	"encoding/binary"
	"fmt"

	"github.com/csigscope/csigscope/aggregate/fabric"
)

// topology is a graph of switches and hosts. It numbers the egress ports of
// switches, device by device, and after them the interfaces of hosts, host by host.
// Racks and hosts count from 0 here and from 1 in names. It is immutable but for the
// caches of its paths and not safe for concurrent use.
type topology struct {
	devices []deviceInfo
	ports   []portInfo // of switches; the index is the port's number
	ends    []hostInfo
	nics    []int32 // ports that face the interfaces of hosts, host by host
	racks   []rackInfo
	groups  []fabric.GroupSpec   // as the fabric file has them
	file    *fabric.Spec         // that the topology comes from; nil: from parameters
	attach  []attachment         // of hosts
	sets    map[string]int32     // attachments by their devices
	into    [][]int32            // devices with a port that faces the device
	toward  map[int32][]distance // by attachment
}

type deviceInfo struct {
	name, stage string
	pod         string // that it belongs to; empty: none
	id          uint32
	ports       []int32
	links       []int32 // ports that face devices
	hashesTag   bool    // faulty: the hash that chooses among paths sees signal types
}

// portInfo is an egress port and the direction of the link behind it.
type portInfo struct {
	device, port       string
	deviceID           uint32
	id                 uint32 // port_id of locator metadata; 0: none
	stage, orientation string
	peer               string
	speed              Rate
	buffer             uint64 // bytes; 0: the scenario's

	owner    int32 // device
	peerNode int32 // device that it faces, or none
	peerHost int32 // host that it faces, or none
}

func (p *portInfo) name() string { return p.device + ":" + p.port }

type hostInfo struct {
	name       string
	address    uint32
	rack       int32
	attachment int32
	nic        int32 // index of its first interface in topology.nics
	links      []int32
}

// rackInfo is a group of hosts: cells are pairs of them.
type rackInfo struct {
	name  string
	hosts []int32
}

// newTopology makes the topology that the scenario describes: that of its fabric
// file, three stages if it has pods, otherwise two.
func newTopology(s *Scenario) (*topology, error) {
	t := &topology{sets: map[string]int32{}, toward: map[int32][]distance{}}
	var err error
	switch {
	case s.FabricFile != "":
		err = t.fromFile(s.FabricFile)
	case len(s.Pods) > 0:
		t.threeStages(s)
	default:
		t.leafSpine(s)
	}
	if err == nil {
		err = t.addSideLinks(s.SideLinks)
	}
	if err == nil {
		err = t.index()
	}
	if s.hasField("port_id") && s.hasField("device_id") && t.file == nil {
		t.numberPerDevice()
	}
	return t, err
}

// numberPerDevice gives ports numbers that are unique in their devices: locators that
// name the device beside the port need no more.
func (t *topology) numberPerDevice() {
	for i := range t.devices {
		for n, p := range t.devices[i].ports {
			t.ports[p].id = uint32(n + 1)
		}
	}
}

// addDevice begins the ports of another device.
func (t *topology) addDevice(name, stage, pod string) {
	t.devices = append(t.devices, deviceInfo{name: name, stage: stage, pod: pod, id: uint32(len(t.devices) + 1)})
}

// addPort adds a port to the newest device. Devices that they face may come later.
func (t *topology) addPort(p portInfo) {
	owner := len(t.devices) - 1
	d := &t.devices[owner]
	p.device, p.stage, p.deviceID, p.owner = d.name, d.stage, d.id, int32(owner)
	t.ports = append(t.ports, p)
}

func rackName(l int) string { return fmt.Sprintf("rack%d", l+1) }

func (t *topology) hosts() int                 { return len(t.ends) }
func (t *topology) hostName(host int) string   { return t.ends[host].name }
func (t *topology) rack(host int) int          { return int(t.ends[host].rack) }
func (t *topology) rackName(rack int) string   { return t.racks[rack].name }
func (t *topology) rackHosts(rack int) []int32 { return t.racks[rack].hosts }
func (t *topology) address(host int) uint32    { return t.ends[host].address }

// downlink is the port that faces a host's first interface.
func (t *topology) downlink(host int) int { return int(t.ends[host].links[0]) }

// largestRack is the number of hosts of the rack that has most.
func (t *topology) largestRack() int {
	n := 0
	for i := range t.racks {
		n = max(n, len(t.racks[i].hosts))
	}
	return n
}

// slowest and fastest are the extremes of the links' speeds.
func (t *topology) slowest() Rate {
	v := t.ports[0].speed
	for i := range t.ports {
		v = min(v, t.ports[i].speed)
	}
	return v
}

func (t *topology) fastest() Rate {
	var v Rate
	for i := range t.ports {
		v = max(v, t.ports[i].speed)
	}
	return v
}

// largestID is the highest port_id.
func (t *topology) largestID() uint32 {
	var v uint32
	for i := range t.ports {
		v = max(v, t.ports[i].id)
	}
	return v
}

// stages lists the stages of devices in their order.
func (t *topology) stages() []string {
	var list []string
	seen := map[string]bool{}
	for i := range t.devices {
		if stage := t.devices[i].stage; !seen[stage] {
			seen[stage] = true
			list = append(list, stage)
		}
	}
	return list
}

// rackPrefix is the rack's /24.
func rackPrefix(rack int) uint32 { return 10<<24 | uint32(rack+1)<<8 }

// fiveTuple identifies a TCP connection in one direction.
type fiveTuple struct {
	src, dst         uint32
	srcPort, dstPort uint16
}

func (f fiveTuple) reversed() fiveTuple {
	return fiveTuple{src: f.dst, dst: f.src, srcPort: f.dstPort, dstPort: f.srcPort}
}

// hash is salted with the device, as switches do it so that the choices of
// successive stages are independent.
func (f fiveTuple) hash(seed, device uint64) uint64 {
	r := stream(seed, device, uint64(f.src)<<32|uint64(f.dst), uint64(f.srcPort)<<16|uint64(f.dstPort))
	return r.next()
}

func ipv4(a uint32) string {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], a)
	return fmt.Sprintf("%d.%d.%d.%d", b[0], b[1], b[2], b[3])
}
