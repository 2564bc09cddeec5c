package decode

import (
	"encoding/binary"
	"fmt"
)

// DefaultUDPTunnels are the destination ports that IANA assigns to tunnels.
func DefaultUDPTunnels() map[uint16]Encap {
	return map[uint16]Encap{1000: PSP, 2152: GTPU, 4789: VXLAN, 4790: VXLANGPE, 6081: Geneve}
}

// udpClass is what a UDP destination port means to the walk: an Encap, or the
// reflections of a transport.
type udpClass uint8

const udpReflects udpClass = numEncaps

func (d *Decoder) setUDPTunnels(tunnels map[uint16]Encap) error {
	if tunnels == nil {
		tunnels = DefaultUDPTunnels()
	}
	for port, kind := range tunnels {
		switch kind {
		case PSP, GTPU, VXLAN, VXLANGPE, Geneve:
			d.udpPorts[port] = udpClass(kind)
		default:
			return fmt.Errorf("udp port %d: %s is no tunnel over UDP: expected vxlan, vxlan-gpe, geneve, gtpu or psp", port, kind)
		}
	}
	return nil
}

// udpTunnel reads the tunnel header behind a UDP header. left is what the UDP
// header leaves for it, at least len(b).
func (d *Decoder) udpTunnel(kind Encap, b []byte, left int, e endpoints, udp []byte, r *Result) Reason {
	const fixed = 8 // bytes that each of the other headers has
	if kind == TZSP {
		return d.tzsp(b, left, e, udp, r)
	}
	if len(b) < fixed {
		return shortTunnel(fixed, left)
	}
	switch kind {
	case VXLAN:
		return d.vxlan(b, e, udp, r)
	case VXLANGPE:
		return d.vxlanGPE(b, e, udp, r)
	case Geneve:
		return d.geneve(b, left, e, udp, r)
	case GTPU:
		return d.gtpu(b, left, e, udp, r)
	default:
		return d.psp(b, r)
	}
}

// networkID is the 24-bit identifier of a virtual network, which VXLAN and Geneve
// have in the same place.
func networkID(b []byte) uint32 { return binary.BigEndian.Uint32(b[4:]) >> 8 }

func (d *Decoder) vxlan(b []byte, e endpoints, udp []byte, r *Result) Reason {
	const hasID = 0x08
	if b[0]&hasID == 0 {
		return BadTunnel
	}
	if !d.enter(VXLAN, networkID(b), e, udp, r) {
		return TooDeep
	}
	return d.ethernet(b[8:], r)
}

// vxlanGPE reads draft-ietf-nvo3-vxlan-gpe: VXLAN whose last reserved byte names
// the payload.
func (d *Decoder) vxlanGPE(b []byte, e endpoints, udp []byte, r *Result) Reason {
	const (
		version      = 0x30
		hasProto     = 0x04
		maintenance  = 0x01
		nextIPv4     = 1
		nextIPv6     = 2
		nextEthernet = 3
	)
	flags := b[0]
	if flags&version != 0 {
		return BadTunnel
	}
	if !d.enter(VXLANGPE, networkID(b), e, udp, r) {
		return TooDeep
	}
	next := b[3]
	switch {
	case flags&maintenance != 0:
		return r.done()
	case flags&hasProto == 0 || next == nextEthernet:
		return d.ethernet(b[8:], r)
	case next == nextIPv4:
		return d.walkIPv4(b[8:], r)
	case next == nextIPv6:
		return d.walkIPv6(b[8:], r)
	}
	return r.done()
}

// geneve reads RFC 8926. Its options are stepped over as a whole: they have no
// part in where the payload is.
func (d *Decoder) geneve(b []byte, left int, e endpoints, udp []byte, r *Result) Reason {
	const (
		version    = 0xc0
		optionsLen = 0x3f // in words
		control    = 0x80
	)
	if b[0]&version != 0 {
		return BadTunnel
	}
	n := 8 + int(b[0]&optionsLen)*4
	if len(b) < n {
		return shortTunnel(n, left)
	}
	if !d.enter(Geneve, networkID(b), e, udp, r) {
		return TooDeep
	}
	if b[1]&control != 0 {
		return r.done()
	}
	return d.etherPayload(be16(b[2:]), b[n:], r)
}

// psp names a packet of PSP and ends the walk: what is inside is encrypted. The
// last bit of the header's first word is always 1; without it, this is another
// user of the port.
func (d *Decoder) psp(b []byte, r *Result) Reason {
	if b[3]&1 == 0 {
		return r.done()
	}
	return d.encrypted(PSP, binary.BigEndian.Uint32(b[4:]), r)
}

func (d *Decoder) encrypted(kind Encap, spi uint32, r *Result) Reason {
	if !r.Encap.push(kind, spi) {
		return TooDeep
	}
	d.counters.Encrypted++
	return r.done()
}
