package decode

import (
	"encoding/binary"
	"net/netip"
)

const (
	ipv4Len = 20 // without options
	ipv6Len = 40 // without extension headers

	// segmentRouting is the type of the routing header of SRv6 (RFC 8754).
	segmentRouting = 4

	// maxExtensions is the maximum number of extension headers parsed, more than RFC 8200
	// recommends to send (section 4.1).
	maxExtensions = 8
)

// IP protocol numbers: transports, tunnels, and extension headers of IPv6.
const (
	protoHopByHop    = 0
	protoIPv4        = 4
	protoTCP         = 6
	protoUDP         = 17
	protoDCCP        = 33
	protoIPv6        = 41
	protoRouting     = 43
	protoFragment    = 44
	protoGRE         = 47
	protoESP         = 50
	protoAH          = 51
	protoNone        = 59 // nothing follows
	protoDestination = 60
	protoSCTP        = 132
	protoMobility    = 135
	protoUDPLite     = 136
	protoEthernet    = 143 // RFC 8986, section 10.1
)

// endpoints holds the header that names a packet's endpoints. ip is the header, 20 bytes of IPv4 or
// 40 of IPv6. A fourth byte-sized member would make the copies of endpoints on the stack stall,
// which costs each frame 4 ns.
type endpoints struct {
	ip       []byte
	proto    uint8
	segments bool // a segment routing header is in between
	fragment bool // a fragment header is in between, and more of the packet follows
}

// fragmented reports whether more of the packet follows.
func (e *endpoints) fragmented() bool {
	const moreFragments = 0x2000
	return e.fragment || len(e.ip) == ipv4Len && be16(e.ip[6:])&moreFragments != 0
}

// source returns the packet's source address.
func (e *endpoints) source() netip.Addr {
	if len(e.ip) == ipv6Len {
		return netip.AddrFrom16([16]byte(e.ip[8:24]))
	}
	return netip.AddrFrom4([4]byte(e.ip[12:16]))
}

// noLength stands for a length of 0. Segmentation offload leaves it in captures at the sender, and
// a jumbogram (RFC 2675) in its header: the packet may have any length.
const noLength = 1 << 30

// largestPacket is above any length that IP states; only noLength is above it.
const largestPacket = 1 << 16

func (d *Decoder) walkIPv4(b []byte, r *Result) Reason {
	if len(b) < ipv4Len {
		return CutIP
	}
	headerLen := int(b[0]&15) * 4
	total := int(be16(b[2:]))
	if total == 0 {
		total = noLength
	}
	if b[0]>>4 != 4 || headerLen < ipv4Len || total < headerLen {
		return BadIP
	}
	const fragmentOffset = 0x1fff
	later := be16(b[6:])&fragmentOffset != 0
	e := endpoints{ip: b[:ipv4Len], proto: b[9]}
	if d.nest.tunnels == 0 || d.rename(r) {
		r.setAddrs(e.ip)
		if e.proto != protoAH || later {
			r.setProto(e.proto)
		}
	}
	if total < len(b) {
		b = b[:total] // the rest is padding
	}
	switch {
	case later:
		return r.done()
	case len(b) < headerLen:
		return CutIP
	case e.proto == protoAH:
		return d.walkExtensions(protoAH, b[headerLen:], total-headerLen, e, r)
	}
	return d.walkTransport(b[headerLen:], total-headerLen, e, r)
}

func (d *Decoder) walkIPv6(b []byte, r *Result) Reason {
	if len(b) < ipv6Len {
		return CutIP
	}
	if b[0]>>4 != 6 {
		return BadIP
	}
	e := endpoints{ip: b[:ipv6Len]}
	if d.nest.tunnels == 0 || d.rename(r) {
		r.setAddrs(e.ip) // until the chain of headers is read, without a protocol
	}
	next := b[6]
	left := int(be16(b[4:]))
	if left == 0 {
		left = noLength
	}
	b = b[ipv6Len:]
	if left < len(b) {
		b = b[:left]
	}
	return d.walkExtensions(next, b, left, e, r)
}

// walkExtensions follows the chain of headers behind the IP header to the transport; next is the
// type of the header at the start of b, and left is as for walkTransport. Of these headers IPv4 has
// only the authentication header (RFC 4302).
func (d *Decoder) walkExtensions(next uint8, b []byte, left int, e endpoints, r *Result) Reason {
	for walked := 0; ; walked++ {
		switch {
		case !e.extension(next):
			e.proto = next
			if !d.endpointsKnown() {
				r.setProto(next)
			}
			return d.walkTransport(b, left, e, r)
		case walked == maxExtensions:
			return TooDeep
		}
		n := extensionLen(next, b)
		if n > left {
			return BadIP
		}
		if n > len(b) {
			return CutIP
		}
		const fragmentOffset, moreFragments = 0xfff8, 1
		if next == protoFragment && be16(b[2:])&fragmentOffset != 0 {
			if !d.endpointsKnown() {
				r.setProto(b[0])
			}
			return r.done()
		}
		e.fragment = e.fragment || next == protoFragment && b[3]&moreFragments != 0
		if next == protoRouting && b[2] == segmentRouting {
			if !r.Encap.push(SRv6, 0) {
				return TooDeep
			}
			e.segments = true
		}
		next, b, left = b[0], b[n:], left-n
	}
}

// extension reports whether the protocol's header is one of those between the IP header and the
// transport.
func (e *endpoints) extension(proto uint8) bool {
	switch proto {
	case protoAH:
		return true
	case protoHopByHop, protoRouting, protoDestination, protoMobility, protoFragment:
		return len(e.ip) == ipv6Len
	}
	return false
}

// extensionLen returns the length of the extension header at the start of b, or a length beyond b
// if too little of it is there.
func extensionLen(proto uint8, b []byte) int {
	const shortest = 8
	switch {
	case len(b) < shortest || proto == protoFragment:
		return shortest
	case proto == protoAH:
		return (int(b[1]) + 2) * 4
	}
	return (int(b[1]) + 1) * 8
}

// setAddrs sets the packet's addresses in the observations so far.
func (r *Result) setAddrs(ip []byte) {
	for i := r.Carrier; i < r.N; i++ {
		r.Obs[i].setAddrs(ip)
	}
}

func (r *Result) setProto(proto uint8) {
	for i := r.Carrier; i < r.N; i++ {
		r.Obs[i].setProto(proto)
	}
}

func (o *Observation) setProto(proto uint8) {
	o.Proto = proto
	o.Flags |= HasProto
}

// setAddrs reads the addresses of a header of 20 or 40 bytes.
func (o *Observation) setAddrs(ip []byte) {
	if len(ip) == ipv6Len {
		o.Src, o.Dst = [16]byte(ip[8:24]), [16]byte(ip[24:40])
		o.Flags |= HasAddrs | IPv6
		return
	}
	mapIPv4(&o.Src, ip[12:16])
	mapIPv4(&o.Dst, ip[16:20])
	o.Flags |= HasAddrs
}

// flow returns a hash of the packet's addresses, protocol and ports, with which its transport header begins.
// It is never 0.
func (e *endpoints) flow(header []byte) uint32 {
	const spread = 0x9e3779b97f4a7c15
	addresses := e.ip[len(e.ip)-8:]
	if len(e.ip) == ipv6Len {
		addresses = e.ip[8:]
	}
	h := (uint64(binary.BigEndian.Uint32(header)) | uint64(e.proto)<<32) * spread // ports and addresses are numbered alike
	for ; len(addresses) > 0; addresses = addresses[8:] {
		h = (h ^ h>>32 ^ binary.BigEndian.Uint64(addresses)) * spread
	}
	return uint32(h>>32) | 1
}

// setEnds sets the addresses and the protocol of a packet whose headers are parsed up to its
// transport.
func (e *endpoints) setEnds(o *Observation) {
	o.setAddrs(e.ip)
	o.setProto(e.proto)
}

// mapIPv4 writes ::ffff:a.b.c.d into zeroed bytes.
func mapIPv4(to *[16]byte, addr []byte) {
	binary.BigEndian.PutUint64(to[8:], 0xffff<<32|uint64(binary.BigEndian.Uint32(addr)))
}
