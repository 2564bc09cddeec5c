package scenario

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/exact"
)

// Topology is a graph of switches and hosts. It numbers the egress ports of switches, device by
// device, followed by the hosts' interfaces, host by host. Racks and hosts count from 0 here and
// from 1 in names. It is immutable except for its path caches, and not safe for concurrent use.
type Topology struct {
	devices []deviceInfo
	Ports   []Port // of switches; the index is the port's number
	ends    []hostInfo
	NICs    []int32 // ports that face the hosts' interfaces, host by host
	Racks   []Rack
	groups  []fabric.GroupSpec   // in the form of the fabric file
	file    *fabric.Spec         // source of the topology; nil if it was built from parameters
	attach  []attachment         // attachments of hosts
	sets    map[string]int32     // attachments by their devices
	into    [][]int32            // by device: devices with a port that faces it
	toward  map[int32][]distance // by attachment
	ecmp    ecmpHash             // nil: FiveTuple.hash
}

type deviceInfo struct {
	name, stage string
	pod         string // empty: none
	id          uint32
	ports       []int32
	links       []int32 // ports that face devices
	hashesTag   bool    // faulty: the ECMP hash includes the tag's signal type
}

// Port is an egress port and the outgoing direction of its link.
type Port struct {
	Device, Port       string
	DeviceID           uint32
	ID                 uint32 // port_id of locator metadata; 0: none
	Stage, orientation string
	Peer               string
	Speed              Rate
	Buffer             uint64 // bytes; 0: the scenario's

	owner    int32 // device
	PeerNode int32 // device that the port faces, or None
	peerHost int32 // host that the port faces, or None
}

// Name returns the port's full name: "leaf1:up1".
func (p *Port) Name() string { return p.Device + ":" + p.Port }

// Buffer returns the size of a switch port's buffer in bytes.
func (s *Scenario) Buffer(p *Port) uint64 { return cmp.Or(p.Buffer, s.BufferBytes) }

type hostInfo struct {
	name       string
	address    uint32
	rack       int32
	attachment int32
	nic        int32 // index of its first interface in Topology.NICs
	links      []int32
}

// Rack is a group of hosts. A cell is a pair of racks.
type Rack struct {
	name  string
	hosts []int32
}

// NewTopology builds the scenario's topology: from its fabric file, as three stages if it has pods,
// else as leaves and spines.
func NewTopology(s *Scenario) (*Topology, error) {
	t := &Topology{sets: map[string]int32{}, toward: map[int32][]distance{}, ecmp: ecmpHashes[s.ECMPHash]}
	var err error
	switch {
	case s.FabricFile != "":
		err = t.fromFile(s)
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

// numberPerDevice numbers ports from 1 in each device, which is enough for locators that also name
// the device.
func (t *Topology) numberPerDevice() {
	for i := range t.devices {
		for n, p := range t.devices[i].ports {
			t.Ports[p].ID = uint32(n + 1)
		}
	}
}

// addDevice adds a device. The next ports are added to it.
func (t *Topology) addDevice(name, stage, pod string) {
	t.devices = append(t.devices, deviceInfo{name: name, stage: stage, pod: pod, id: uint32(len(t.devices) + 1)})
}

// addPort adds a port to the newest device. The device that it faces may be added later.
func (t *Topology) addPort(p Port) {
	owner := len(t.devices) - 1
	d := &t.devices[owner]
	p.Device, p.Stage, p.DeviceID, p.owner = d.name, d.stage, d.id, int32(owner)
	t.Ports = append(t.Ports, p)
}

func rackName(l int) string { return fmt.Sprintf("rack%d", l+1) }

// Hosts returns the number of hosts. The methods below take numbers of hosts and racks from 0.
func (t *Topology) Hosts() int { return len(t.ends) }

// HostName returns the name of a host.
func (t *Topology) HostName(host int) string { return t.ends[host].name }

// Address returns a host's number in the network, which is its IPv4 address.
func (t *Topology) Address(host int) uint32 { return t.ends[host].address }

// Rack returns the rack of a host.
func (t *Topology) Rack(host int) int { return int(t.ends[host].rack) }

// RackName returns the name of a rack.
func (t *Topology) RackName(rack int) string { return t.Racks[rack].name }

// RackHosts lists the hosts of a rack.
func (t *Topology) RackHosts(rack int) []int32 { return t.Racks[rack].hosts }

// Downlink returns the port that faces a host's first interface.
func (t *Topology) Downlink(host int) int { return int(t.ends[host].links[0]) }

// LargestRack returns the largest number of hosts in a rack.
func (t *Topology) LargestRack() int {
	n := 0
	for i := range t.Racks {
		n = max(n, len(t.Racks[i].hosts))
	}
	return n
}

// slowest and fastest return the lowest and highest link speed.
func (t *Topology) slowest() Rate {
	v := t.Ports[0].Speed
	for i := range t.Ports {
		v = min(v, t.Ports[i].Speed)
	}
	return v
}

func (t *Topology) fastest() Rate {
	var v Rate
	for i := range t.Ports {
		v = max(v, t.Ports[i].Speed)
	}
	return v
}

// largestID returns the highest port_id.
func (t *Topology) largestID() uint32 {
	var v uint32
	for i := range t.Ports {
		v = max(v, t.Ports[i].ID)
	}
	return v
}

// stages lists the stages of devices in their order.
func (t *Topology) stages() []string {
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

// rackPrefix returns the rack's /24.
func rackPrefix(rack int) uint32 { return 10<<24 | uint32(rack+1)<<8 }

// FiveTuple identifies a TCP connection in one direction.
type FiveTuple struct {
	Src, Dst         uint32
	SrcPort, DstPort uint16
}

// hash is salted with the device, as in real switches, so that the choices of successive stages are
// independent.
func (f FiveTuple) hash(seed, device uint64) uint64 {
	r := exact.Derive(seed, device, uint64(f.Src)<<32|uint64(f.Dst), uint64(f.SrcPort)<<16|uint64(f.DstPort))
	return r.Next()
}

// ecmpHash is a hash of a 5-tuple with a device's seed.
type ecmpHash func(f FiveTuple, seed uint32) uint32

// ecmpHashes are the functions of Scenario.ECMPHash. CRC-32 starts with the seed in its register.
var ecmpHashes = map[string]ecmpHash{
	"crc32": func(f FiveTuple, seed uint32) uint32 {
		crc := ^seed
		for _, c := range f.bytes() {
			crc ^= uint32(c)
			for range 8 {
				crc = crc>>1 ^ 0xedb88320&-(crc&1)
			}
		}
		return ^crc
	},
	"xor16": func(f FiveTuple, seed uint32) uint32 {
		x := f.Src>>16 ^ f.Src ^ f.Dst>>16 ^ f.Dst ^ uint32(f.SrcPort) ^ uint32(f.DstPort) ^ seed
		return x & 0xffff
	},
}

func (f FiveTuple) bytes() (b [12]byte) {
	binary.BigEndian.PutUint32(b[:], f.Src)
	binary.BigEndian.PutUint32(b[4:], f.Dst)
	binary.BigEndian.PutUint16(b[8:], f.SrcPort)
	binary.BigEndian.PutUint16(b[10:], f.DstPort)
	return b
}

// ecmpSeed returns a device's seed for an ecmpHash.
func ecmpSeed(device int) uint32 { return uint32(device+1) * 0x9e3779b1 }

func ipv4(a uint32) string {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], a)
	return fmt.Sprintf("%d.%d.%d.%d", b[0], b[1], b[2], b[3])
}

// Pod is one or more equal pods of a three-stage fabric: top-of-rack switches, aggregation
// switches, and the core that joins the pods (the 5-stage Clos of Figure 5). Pods may be of
// different generations. Zero speeds are the scenario's.
type Pod struct {
	Count        int  `yaml:"count,omitempty"` // number of such pods; default 1
	Racks        int  `yaml:"racks"`
	Aggs         int  `yaml:"aggs"` // aggregation switches; every rack has a link to each
	HostsPerRack int  `yaml:"hosts_per_rack"`
	HostSpeed    Rate `yaml:"host_speed,omitempty"`
	UplinkSpeed  Rate `yaml:"uplink_speed,omitempty"` // between racks and aggregation
	CoreSpeed    Rate `yaml:"core_speed,omitempty"`   // between aggregation and core
	// Oversubscription, if set, determines UplinkSpeed.
	Oversubscription Ratio `yaml:"oversubscription,omitempty"`
	// BufferBytes is the buffer of each switch port in the pod; 0: the scenario's.
	BufferBytes uint64 `yaml:"buffer_bytes,omitempty"`
}

// SideLink joins neighbors of one stage in a ring or a full mesh. Neighbors are in the same pod,
// except in stages without pods.
type SideLink struct {
	Stage string `yaml:"stage"`
	Speed Rate   `yaml:"speed"`
	Mesh  bool   `yaml:"mesh,omitempty"`
}

// uplinkOf returns the link speed between a rack and the stage above it.
func (s *Scenario) uplinkOf(rack int, speed Rate) Rate {
	if slow, ok := s.RackUplinkSpeed[rack+1]; ok {
		return slow
	}
	return speed
}

// leafSpine builds two stages: every leaf is a rack and has a link to every spine.
func (t *Topology) leafSpine(s *Scenario) {
	t.addPodGroup(0)
	speed := s.Oversubscription.uplink(s.UplinkSpeed, s.HostSpeed, s.HostsPerLeaf, s.Spines)
	for l := range s.Leaves {
		t.addDevice(leafName(l), "leaf", "")
		for k := range s.Spines {
			t.link("up", k, spineName(k), s.uplinkOf(l, speed), 0)
		}
		t.addHosts(s, 0, l, s.HostsPerLeaf, s.HostSpeed, 0)
	}
	for k := range s.Spines {
		t.addDevice(spineName(k), "spine", "")
		for l := range s.Leaves {
			t.link("down", l, leafName(l), s.uplinkOf(l, speed), 0)
		}
	}
}

func leafName(l int) string     { return fmt.Sprintf("leaf%d", l+1) }
func spineName(k int) string    { return fmt.Sprintf("spine%d", k+1) }
func torName(rack int) string   { return fmt.Sprintf("tor%d", rack+1) }
func aggName(pod, k int) string { return fmt.Sprintf("agg%d-%d", pod+1, k+1) }
func coreName(c int) string     { return fmt.Sprintf("core%d", c+1) }
func podName(pod int) string    { return fmt.Sprintf("pod%d", pod+1) }

// link adds a port to the newest device.
func (t *Topology) link(direction string, n int, peer string, speed Rate, buffer uint64) {
	t.addPort(Port{
		Port: fmt.Sprintf("%s%d", direction, n+1), orientation: direction, Peer: peer, Speed: speed,
		ID: uint32(len(t.Ports) + 1), Buffer: buffer,
	})
}

// threeStages builds pods and the core. Core switch c has one link to each pod, to aggregation
// switch c modulo the number of aggregation switches.
func (t *Topology) threeStages(s *Scenario) {
	pods := s.eachPod()
	rack := 0
	for n := range pods {
		p := &pods[n]
		t.addPodGroup(n)
		for range p.Racks {
			t.addDevice(torName(rack), "tor", podName(n))
			for k := range p.Aggs {
				t.link("up", k, aggName(n, k), s.uplinkOf(rack, p.UplinkSpeed), p.BufferBytes)
			}
			t.addHosts(s, n, rack, p.HostsPerRack, p.HostSpeed, p.BufferBytes)
			rack++
		}
	}
	first := 0
	for n := range pods {
		p := &pods[n]
		for k := range p.Aggs {
			t.addDevice(aggName(n, k), "agg", podName(n))
			for c := k; c < s.Cores; c += p.Aggs {
				t.link("up", c/p.Aggs, coreName(c), p.CoreSpeed, p.BufferBytes)
			}
			for r := range p.Racks {
				t.link("down", r, torName(first+r), s.uplinkOf(first+r, p.UplinkSpeed), p.BufferBytes)
			}
		}
		first += p.Racks
	}
	for c := range s.Cores {
		t.addDevice(coreName(c), "core", "")
		for n := range pods {
			t.link("down", n, aggName(n, c%pods[n].Aggs), pods[n].CoreSpeed, 0)
		}
	}
}

// eachPod lists the pods one by one, with the scenario's speeds in place of zero ones.
func (s *Scenario) eachPod() []Pod {
	var pods []Pod
	for _, p := range s.Pods {
		orDefault(&p.HostSpeed, s.HostSpeed)
		orDefault(&p.UplinkSpeed, s.UplinkSpeed)
		orDefault(&p.CoreSpeed, s.CoreSpeed)
		over := p.Oversubscription
		if over == (Ratio{}) {
			over = s.Oversubscription
		}
		p.UplinkSpeed = over.uplink(p.UplinkSpeed, p.HostSpeed, p.HostsPerRack, p.Aggs)
		orDefault(&p.CoreSpeed, p.UplinkSpeed)
		pods = append(pods, slices.Repeat([]Pod{p}, max(p.Count, 1))...)
	}
	return pods
}

func (t *Topology) addPodGroup(n int) {
	t.groups = append(t.groups, fabric.GroupSpec{Name: podName(n), Level: "pod"})
}

// addHosts adds a rack of n hosts below the newest device.
func (t *Topology) addHosts(s *Scenario, pod, rack, n int, speed Rate, buffer uint64) {
	t.Racks = append(t.Racks, Rack{name: rackName(rack)})
	t.groups = append(t.groups, fabric.GroupSpec{
		Name: rackName(rack), Level: "rack", Parent: podName(pod), Prefixes: s.known(rackPrefix(rack), prefixOf),
	})
	for h := range n {
		name := fmt.Sprintf("host%d-%d", rack+1, h+1)
		t.ends = append(t.ends, hostInfo{name: name, address: rackPrefix(rack) | uint32(h+1), rack: int32(rack)})
		t.link("down", h, name, speed, buffer)
	}
}

// addSideLinks adds its ports last, so that side links do not change the numbers of other ports.
func (t *Topology) addSideLinks(links []SideLink) error {
	named := map[int32]int{}
	for i, l := range links {
		pods := t.neighbours(l.Stage)
		if len(pods) == 0 {
			return fmt.Errorf("build fabric: side_links[%d]: no device has the stage %q", i, l.Stage)
		}
		for _, pod := range pods {
			if ports := len(t.Ports) + sidePorts(len(pod), l.Mesh); ports > maxPorts {
				return fmt.Errorf("build fabric: side_links[%d]: need more than %d ports", i, maxPorts)
			}
			t.join(pod, l, named)
		}
	}
	return nil
}

// sidePorts returns the number of ports that join n devices.
func sidePorts(n int, mesh bool) int {
	if mesh {
		return n * (n - 1)
	}
	return 2 * n
}

// join connects devices; named counts the side ports of each.
func (t *Topology) join(devices []int32, l SideLink, named map[int32]int) {
	side := func(from, to int32) {
		named[from]++
		d := &t.devices[from]
		t.Ports = append(t.Ports, Port{
			Device: d.name, Stage: d.stage, DeviceID: d.id, owner: from,
			Port: fmt.Sprintf("side%d", named[from]), orientation: "side",
			Peer: t.devices[to].name, Speed: l.Speed, ID: uint32(len(t.Ports) + 1),
		})
	}
	for i := range devices {
		for j := i + 1; j < len(devices); j++ {
			if l.Mesh || j == i+1 || (i == 0 && j == len(devices)-1) {
				side(devices[i], devices[j])
				side(devices[j], devices[i])
			}
		}
	}
}

// neighbours groups the devices of a stage by pod.
func (t *Topology) neighbours(stage string) [][]int32 {
	pods := map[string]int{}
	var list [][]int32
	for i := range t.devices {
		d := &t.devices[i]
		if d.stage != stage {
			continue
		}
		n, known := pods[d.pod]
		if !known {
			n = len(list)
			pods[d.pod] = n
			list = append(list, nil)
		}
		list[n] = append(list[n], int32(i))
	}
	return list
}

// fromFile takes devices, ports, hosts and groups from a fabric file in the form of the other
// commands. Its csig section supplies the layout of the locator "file"; all other tag settings are
// the scenario's.
func (t *Topology) fromFile(s *Scenario) error {
	path := s.FabricFile
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
			t.addPort(Port{Port: p.Name, ID: p.ID, orientation: p.Orientation, Peer: p.Peer, Speed: Rate(speed)})
		}
	}
	if len(t.Ports) == 0 {
		return fmt.Errorf("load fabric %s: no device has a port: nothing can be simulated", path)
	}
	t.numberPorts(s.Locator == "port" || s.hasField("port_id") && !s.hasField("device_id"))
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

// numberPorts numbers ports and devices if the file has no such numbers at all, and ports also if
// they have to be unique and the file's are not.
func (t *Topology) numberPorts(unique bool) {
	ports, devices := map[uint32]bool{}, false
	for i := range t.Ports {
		if t.Ports[i].ID != 0 {
			ports[t.Ports[i].ID] = true
		}
		devices = devices || t.Ports[i].DeviceID != 0
	}
	renumber := len(ports) == 0 || unique && len(ports) < len(t.Ports)
	for i := range t.Ports {
		if renumber {
			t.Ports[i].ID = uint32(i + 1)
		}
		if !devices {
			t.Ports[i].DeviceID = uint32(t.Ports[i].owner + 1)
			t.devices[t.Ports[i].owner].id = t.Ports[i].DeviceID
		}
	}
}

// hostFrom takes a host's first IPv4 address, since simulated hosts have just one.
func (t *Topology) hostFrom(h *fabric.HostSpec) error {
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

// groupByPrefix assigns hosts to groups by longest prefix, as the readers of captures do. Groups
// without hosts do not become racks.
func (t *Topology) groupByPrefix() error {
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
			rack = int32(len(t.Racks))
			racks[group] = rack
			t.Racks = append(t.Racks, Rack{name: t.groups[group].Name})
		}
		h.rack = rack
	}
	return nil
}

// groupByDevice makes each device's hosts a rack, for files without groups.
func (t *Topology) groupByDevice() {
	owner := map[string]int32{}
	for i := len(t.Ports) - 1; i >= 0; i-- {
		owner[t.Ports[i].Peer] = t.Ports[i].owner
	}
	racks := map[int32]int32{}
	for i := range t.ends {
		h := &t.ends[i]
		device := owner[h.name]
		rack, known := racks[device]
		if !known {
			rack = int32(len(t.Racks))
			racks[device] = rack
			name := "rack-" + t.devices[device].name
			t.Racks = append(t.Racks, Rack{name: name})
			t.groups = append(t.groups, fabric.GroupSpec{Name: name, Level: "rack"})
		}
		h.rack = rack
		t.groups[rack].Prefixes = append(t.groups[rack].Prefixes, ipv4(h.address)+"/32")
	}
}
