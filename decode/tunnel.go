package decode

import (
	"encoding/binary"
	"fmt"
)

// maxTunnels bounds the nested tunnels, and so the depth of the walk.
const maxTunnels = 4

// nesting is the position of the walk in a frame. The zero nesting is the outermost L2.
type nesting struct {
	tunnels uint8 // entered so far
	vlans   uint8 // VLAN tags of this L2
	first   uint8 // index of the first observation that belongs to this L2
	mirror  bool  // inside a mirror session that the tap does not hold: everything found there is an orphan
	// holds says that the frame may be a mirror session which the tap holds; mirrored is the
	// outcome.
	holds    bool
	mirrored Mirror
	// named says that an IP header is before the tunnel: ends holds the endpoints of observations
	// inside.
	named bool
}

// enter steps into the payload of a tunnel; kind is its header. e and udp are the headers before
// it, udp nil without one, and e.ip nil for a tunnel that is not in IP. It returns false when the
// frame nests too deep.
func (d *Decoder) enter(kind Encap, id uint32, e endpoints, udp []byte, r *Result) bool {
	return r.Encap.push(kind, id) && d.descend(e, udp, r)
}

// enterIP is enter for a packet directly in IP.
func (d *Decoder) enterIP(e endpoints, r *Result) bool {
	if e.segments {
		return d.descend(e, nil, r)
	}
	return d.enter(IPIP, 0, e, nil, r)
}

func (d *Decoder) descend(e endpoints, udp []byte, r *Result) bool {
	if d.nest.tunnels >= maxTunnels {
		return false
	}
	d.nest.tunnels++
	d.nest.holds = false
	d.nest.first, d.nest.vlans = uint8(r.N), 0
	if e.ip == nil || d.endpointsKnown() {
		return true
	}
	d.nest.named = true
	d.ends = Observation{}
	e.setEnds(&d.ends)
	if udp != nil {
		d.ends.setPorts(udp)
	}
	return true
}

// endpointsKnown reports that the endpoints of the frame's observations come from a header outside the
// current tunnel. No header of a mirrored frame names them.
func (d *Decoder) endpointsKnown() bool { return d.nest.named && (!d.inner || d.nest.mirror) }

// innerTag makes a tag inside a tunnel an orphan, unless the configuration expects it there and no
// tag before it counts.
func (d *Decoder) innerTag(o *Observation, r *Result) {
	if d.nest.named {
		o.setEnds(&d.ends)
	}
	if !d.innerTags || d.nest.mirror {
		d.orphan(o)
		return
	}
	for i := r.Carrier; i < int(d.nest.first); i++ {
		if r.Obs[i].Flags&Orphan == 0 {
			d.orphan(o)
			return
		}
	}
}

// rename reports whether an IP header inside a tunnel names the frame's endpoints, and clears the
// previous ones.
func (d *Decoder) rename(r *Result) bool {
	if d.endpointsKnown() {
		return false
	}
	r.clearEnds()
	return true
}

// forgetCut removes the endpoints from the observations of a frame whose capture ends where a
// tunnel may begin: they may not be the innermost ones. Nothing is inside TCP, nor inside a
// transport whose ports are known and from which the walk entered no tunnel.
func (r *Result) forgetCut() {
	own := r.own()
	if len(own) == 0 || own[0].Proto == protoTCP {
		return
	}
	switch r.Reason {
	case CutTransport:
		if own[0].Flags&HasPorts == 0 {
			r.clearEnds()
		}
	case CutEthernet, CutVLAN, CutMACsec, CutTag, CutMPLS, CutIP, CutTunnel:
		r.clearEnds()
	}
}

func (r *Result) clearEnds() {
	own := r.own()
	for i := range own {
		own[i].setEnds(&Observation{})
	}
}

// setEnds copies the endpoints of from, if any, to o.
func (o *Observation) setEnds(from *Observation) {
	const ends = HasAddrs | HasPorts | HasProto | IPv6
	o.Src, o.Dst = from.Src, from.Dst
	o.SrcPort, o.DstPort, o.Proto = from.SrcPort, from.DstPort, from.Proto
	o.Ack = 0
	o.Flags = o.Flags&^(ends|HasAck) | from.Flags&ends
}

// ipPayload parses an IP packet (RFC 2003, RFC 2473, RFC 4213) or, in SRv6, an Ethernet frame
// directly in IP. Behind a segment routing header, the tunnel already has its name.
func (d *Decoder) ipPayload(b []byte, e endpoints, r *Result) Reason {
	if !d.enterIP(e, r) {
		return TooDeep
	}
	switch e.proto {
	case protoIPv4:
		return d.walkIPv4(b, r)
	case protoIPv6:
		return d.walkIPv6(b, r)
	}
	return d.ethernet(b, r)
}

// esp names an ESP packet (RFC 4303) and ends the walk: the payload is encrypted.
func (d *Decoder) esp(b []byte, left int, r *Result) Reason {
	const fixed = 8 // security parameters index and sequence number
	if len(b) < fixed {
		return shortTunnel(fixed, left)
	}
	return d.encrypted(ESP, binary.BigEndian.Uint32(b), r)
}

// transparentEthernet is the protocol type of Ethernet frames inside GRE and
// Geneve.
const transparentEthernet = 0x6558

// Flags of GRE.
const (
	greChecksum = 0x8000
	greRouting  = 0x4000
	greKey      = 0x2000
	greSequence = 0x1000
	greVersion  = 0x0007

	greLen = 4 // without optional fields
)

// greHeader is the header of GRE (RFC 2784, RFC 2890). In a truncated header, missing key and
// sequence are 0.
type greHeader struct {
	flags, proto  uint16
	key, sequence uint32
	len           int // may be beyond the captured bytes
}

// readGRE reads the header at the start of b, at least greLen bytes.
func readGRE(b []byte) (h greHeader) {
	h.flags, h.proto, h.len = be16(b), be16(b[2:]), greLen
	if h.flags&greChecksum != 0 {
		h.len += 4
	}
	if h.flags&greKey != 0 {
		h.key = h.word(b)
	}
	if h.flags&greSequence != 0 {
		h.sequence = h.word(b)
	}
	return h
}

// word adds a 32-bit field to the header.
func (h *greHeader) word(b []byte) (value uint32) {
	if len(b) >= h.len+4 {
		value = binary.BigEndian.Uint32(b[h.len:])
	}
	h.len += 4
	return value
}

// gre parses the payload of a header with any of its checksum, key and sequence number. It refuses
// source routes (RFC 1701): no one uses them, and they have a length of their own. Other versions
// end the walk.
func (d *Decoder) gre(b []byte, left int, e endpoints, r *Result) Reason {
	if len(b) < greLen {
		return shortTunnel(greLen, left)
	}
	h := readGRE(b)
	if d.nest.holds {
		if reason, ok := d.greSession(&h, b, left, e, r); ok {
			return reason
		}
	}
	if h.flags&greRouting != 0 {
		return BadTunnel
	}
	if len(b) < h.len {
		return shortTunnel(h.len, left)
	}
	kind, id := GRE, h.key
	if h.proto == transparentEthernet && h.flags&(greChecksum|greKey|greSequence) == greKey {
		kind, id = NVGRE, id>>8 // the low byte distinguishes flows (RFC 7637)
	}
	if !d.enter(kind, id, e, nil, r) {
		return TooDeep
	}
	switch {
	case h.flags&greVersion != 0:
		return r.done()
	case h.proto == erspanII || h.proto == erspanIII:
		return d.erspan(&h, b[h.len:], left-h.len, r)
	}
	return d.etherPayload(h.proto, b[h.len:], r)
}

// etherPayload parses a tunnel's payload by its EtherType.
func (d *Decoder) etherPayload(proto uint16, b []byte, r *Result) Reason {
	if proto == transparentEthernet {
		return d.ethernet(b, r)
	}
	return d.walk(proto, b, r)
}

// shortTunnel returns the reason of an incomplete tunnel header: its packet is too short, or the
// capture truncated it.
func shortTunnel(headerLen, left int) Reason {
	if left < headerLen {
		return BadTunnel
	}
	return CutTunnel
}

// walkMPLS reads a stack of MPLS labels (RFC 3032), then recognizes the payload by its first four
// bits, as routers do (RFC 4928): IPv4, IPv6, or the control word of a pseudowire.
func (d *Decoder) walkMPLS(b []byte, r *Result) Reason {
	const (
		entryLen      = 4
		bottomOfStack = 0x100
		labelShift    = 12
	)
	for bottom := false; !bottom; b = b[entryLen:] {
		if len(b) < entryLen {
			return CutMPLS
		}
		entry := binary.BigEndian.Uint32(b)
		if !r.Encap.push(MPLS, entry>>labelShift) {
			return TooDeep
		}
		bottom = entry&bottomOfStack != 0
	}
	if len(b) == 0 {
		return CutMPLS
	}
	switch b[0] >> 4 {
	case 4:
		return d.walkIPv4(b, r)
	case 6:
		return d.walkIPv6(b, r)
	case 0:
		return d.pseudowire(b, r)
	}
	return r.done()
}

// pseudowire reads the control word of an Ethernet pseudowire and the frame behind it: four zero
// bits, twelve reserved bits that are zero, and a sequence number (RFC 4448, section 4.6). Anything
// else ends the walk, such as an Ethernet frame without a control word, whose addresses begin with
// other bits.
func (d *Decoder) pseudowire(b []byte, r *Result) Reason {
	const controlWordLen = 4
	if len(b) < controlWordLen {
		return CutMPLS
	}
	if be16(b) != 0 {
		return r.done()
	}
	if !d.enter(Pseudowire, 0, endpoints{}, nil, r) {
		return TooDeep
	}
	return d.ethernet(b[controlWordLen:], r)
}

// DefaultUDPTunnels returns the destination ports that IANA assigns to tunnels.
func DefaultUDPTunnels() map[uint16]Encap {
	return map[uint16]Encap{1000: PSP, 2152: GTPU, 4789: VXLAN, 4790: VXLANGPE, 6081: Geneve}
}

// udpClass is the decoder's meaning of a UDP destination port: an Encap, or a transport's
// reflections.
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

// udpTunnel reads the tunnel header behind a UDP header. left is the rest of the datagram according
// to the UDP header, at least len(b).
func (d *Decoder) udpTunnel(kind Encap, b []byte, left int, e endpoints, udp []byte, r *Result) Reason {
	const fixed = 8 // length of the fixed part of each other header
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

// networkID returns the 24-bit identifier of a virtual network, which VXLAN and Geneve have in the
// same place.
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

// vxlanGPE reads draft-ietf-nvo3-vxlan-gpe: VXLAN whose last reserved byte names the payload.
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

// geneve reads RFC 8926. It skips the options as a whole: they do not affect the payload's
// position.
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

// psp names a PSP packet and ends the walk: the payload is encrypted. The last bit of the header's
// first word is always 1; without it, the datagram is not PSP.
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

// gtpu reads GTP-U (3GPP TS 29.281) and the user's packet in it. Messages without a packet end the
// walk.
func (d *Decoder) gtpu(b []byte, left int, e endpoints, udp []byte, r *Result) Reason {
	const (
		versionAndProtocol = 0xf0
		version1           = 0x30 // and not GTP'
		userPacket         = 255  // message type G-PDU
	)
	if b[0]&versionAndProtocol != version1 {
		return BadTunnel
	}
	n, reason := gtpuLen(b, left)
	if n == 0 {
		return reason
	}
	if !d.enter(GTPU, binary.BigEndian.Uint32(b[4:]), e, udp, r) {
		return TooDeep
	}
	kind := b[1]
	b = b[n:]
	if kind != userPacket {
		return r.done()
	}
	if len(b) == 0 {
		return shortTunnel(n+1, left)
	}
	switch b[0] >> 4 {
	case 4:
		return d.walkIPv4(b, r)
	case 6:
		return d.walkIPv6(b, r)
	}
	return r.done()
}

// gtpuLen returns the length of a GTP-U header with its chain of extension headers, or 0 and the
// reason to stop.
func gtpuLen(b []byte, left int) (int, Reason) {
	const (
		optional     = 0x07 // a sequence number, N-PDU number or extension follows
		hasExtension = 0x04
		fixed        = 8
		withOptional = 12
	)
	if b[0]&optional == 0 {
		return fixed, OK
	}
	n := withOptional
	if len(b) < n {
		return 0, shortTunnel(n, left)
	}
	if b[0]&hasExtension == 0 {
		return n, OK
	}
	for walked := 0; ; walked++ {
		switch {
		case b[n-1] == 0: // type of the next extension header
			return n, OK
		case walked == maxExtensions:
			return 0, TooDeep
		}
		if len(b) <= n {
			return 0, shortTunnel(n+1, left)
		}
		words := int(b[n])
		if words == 0 {
			return 0, BadTunnel
		}
		n += words * 4
		if len(b) < n {
			return 0, shortTunnel(n, left)
		}
	}
}
