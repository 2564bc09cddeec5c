package emitter

import (
	"encoding/binary"
	"fmt"
)

// topology numbers the ports of the fabric: first the switches' egress ports
// (leaf by leaf, uplinks before downlinks, then spine by spine), then the
// network interfaces of the hosts. Racks, spines and hosts count from 0 here and
// from 1 in names.
type topology struct {
	leaves, spines, perLeaf int
	ports                   []portInfo // of switches; the index is the port's number
}

type portInfo struct {
	device, port       string
	deviceID           uint32
	stage, orientation string
	peer               string
	speed              Rate
}

func (p *portInfo) name() string { return p.device + ":" + p.port }

func newTopology(s *Scenario) *topology {
	t := &topology{leaves: s.Leaves, spines: s.Spines, perLeaf: s.HostsPerLeaf}
	uplink := func(leaf int) Rate {
		if speed, ok := s.RackUplinkSpeed[leaf+1]; ok {
			return speed
		}
		return s.UplinkSpeed
	}
	for l := range t.leaves {
		for k := range t.spines {
			t.ports = append(t.ports, portInfo{
				device: leafName(l), deviceID: uint32(l + 1), port: fmt.Sprintf("up%d", k+1),
				stage: "leaf", orientation: "up", peer: spineName(k), speed: uplink(l),
			})
		}
		for h := range t.perLeaf {
			t.ports = append(t.ports, portInfo{
				device: leafName(l), deviceID: uint32(l + 1), port: fmt.Sprintf("down%d", h+1),
				stage: "leaf", orientation: "down", peer: t.hostName(l*t.perLeaf + h), speed: s.HostSpeed,
			})
		}
	}
	for k := range t.spines {
		for l := range t.leaves {
			t.ports = append(t.ports, portInfo{
				device: spineName(k), deviceID: uint32(t.leaves + k + 1), port: fmt.Sprintf("down%d", l+1),
				stage: "spine", orientation: "down", peer: leafName(l), speed: uplink(l),
			})
		}
	}
	return t
}

func leafName(l int) string  { return fmt.Sprintf("leaf%d", l+1) }
func spineName(k int) string { return fmt.Sprintf("spine%d", k+1) }
func rackName(l int) string  { return fmt.Sprintf("rack%d", l+1) }

func (t *topology) hostName(h int) string {
	return fmt.Sprintf("host%d-%d", h/t.perLeaf+1, h%t.perLeaf+1)
}

func (t *topology) hosts() int             { return t.leaves * t.perLeaf }
func (t *topology) rack(host int) int      { return host / t.perLeaf }
func (t *topology) uplink(l, k int) int    { return l*(t.spines+t.perLeaf) + k }
func (t *topology) downlink(host int) int  { return t.uplink(t.rack(host), t.spines) + host%t.perLeaf }
func (t *topology) spineDown(k, l int) int { return t.uplink(t.leaves, 0) + k*t.leaves + l }
func (t *topology) nic(host int) int       { return len(t.ports) + host }
func (t *topology) address(host int) uint32 {
	return rackPrefix(t.rack(host)) | uint32(host%t.perLeaf+1)
}

// rackPrefix is the rack's /24.
func rackPrefix(rack int) uint32 { return 10<<24 | uint32(rack+1)<<8 }

// route is the queues that a packet passes, from its sender's interface on.
type route struct {
	ports [4]int32
	n     int8
}

// route finds the way of a 5-tuple. Of the uplinks that lead to another rack, the
// leaf takes the one that the hash of the 5-tuple names: tags have no part in it.
func (t *topology) route(seed uint64, f fiveTuple, src, dst int) route {
	r := route{n: 1}
	r.ports[0] = int32(t.nic(src))
	from, to := t.rack(src), t.rack(dst)
	if from != to {
		spine := int(f.hash(seed, uint64(from)) % uint64(t.spines))
		r.ports[1] = int32(t.uplink(from, spine))
		r.ports[2] = int32(t.spineDown(spine, to))
		r.n = 3
	}
	r.ports[r.n] = int32(t.downlink(dst))
	r.n++
	return r
}

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
