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

	// maxExtensions is more than RFC 8200 recommends to send (section 4.1).
	maxExtensions = 8
)

// IP protocol numbers: transports, tunnels, and extension headers of IPv6.
const (
	protoHopByHop    = 0
	protoIPv4        = 4
	protoTCP         = 6
	protoUDP         = 17
	protoIPv6        = 41
	protoRouting     = 43
	protoFragment    = 44
	protoGRE         = 47
	protoESP         = 50
	protoAH          = 51
	protoDestination = 60
	protoMobility    = 135
	protoEthernet    = 143 // RFC 8986, section 10.1
)

// endpoints are what the header that names a packet's ends says. ip is the
// header, 20 bytes of IPv4 or 40 of IPv6.
type endpoints struct {
	ip       []byte
	proto    uint8
	segments bool // a segment routing header stands between
	fragment bool // a fragment header does: more of the packet follows
}

// fragmented tells whether more of the packet follows.
func (e *endpoints) fragmented() bool {
	const moreFragments = 0x2000
	return e.fragment || len(e.ip) == ipv4Len && be16(e.ip[6:])&moreFragments != 0
}

// source is the address that the packet came from.
func (e *endpoints) source() netip.Addr {
	if len(e.ip) == ipv6Len {
		return netip.AddrFrom16([16]byte(e.ip[8:24]))
	}
	return netip.AddrFrom4([4]byte(e.ip[12:16]))
}

// noLength stands for a length of 0, which segmentation offload leaves in
// captures at the sender, and a jumbogram (RFC 2675) in its header: the packet
// may be as long as it likes.
const noLength = 1 << 30

// largestPacket is more than any length that IP states: beyond it, noLength is left.
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
	e := endpoints{ip: b[:ipv4Len], proto: b[9]}
	if d.nest.tunnels == 0 || d.rename(r) {
		r.setAddrs(e)
	}
	if total < len(b) {
		b = b[:total] // the rest is padding
	}
	const fragmentOffset = 0x1fff
	if be16(e.ip[6:])&fragmentOffset != 0 {
		return r.done()
	}
	if len(b) < headerLen {
		return CutIP
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
		r.setAddrs(e) // until the chain of headers is read, without a protocol
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
	for range maxExtensions {
		n, isExtension := extensionLen(next, b)
		if !isExtension {
			e.proto = next
			d.setProto(next, r)
			return d.walkTransport(b, left, e, r)
		}
		if n > left {
			return BadIP
		}
		if n > len(b) {
			return CutIP
		}
		const fragmentOffset, moreFragments = 0xfff8, 1
		if next == protoFragment && be16(b[2:])&fragmentOffset != 0 {
			d.setProto(b[0], r)
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
	return TooDeep
}

// extensionLen is the length of the extension header at the start of b, or a
// length beyond b when too little of it is there to tell.
func extensionLen(proto uint8, b []byte) (n int, isExtension bool) {
	const shortest = 8
	switch proto {
	case protoHopByHop, protoRouting, protoDestination, protoMobility:
		if len(b) < shortest {
			return shortest, true
		}
		return (int(b[1]) + 1) * 8, true
	case protoAH:
		if len(b) < shortest {
			return shortest, true
		}
		return (int(b[1]) + 2) * 4, true
	case protoFragment:
		return shortest, true
	}
	return 0, false
}

// setAddrs gives the observations so far the packet's addresses.
func (r *Result) setAddrs(e endpoints) {
	for i := range r.Obs[:r.N] {
		r.Obs[i].setAddrs(e)
	}
}

func (d *Decoder) setProto(proto uint8, r *Result) {
	if d.settled() {
		return
	}
	for i := range r.Obs[:r.N] {
		r.Obs[i].Proto = proto
	}
}

func (o *Observation) setAddrs(e endpoints) {
	if len(e.ip) == ipv6Len {
		o.Src, o.Dst = [16]byte(e.ip[8:24]), [16]byte(e.ip[24:40])
	} else {
		mapIPv4(&o.Src, e.ip[12:16])
		mapIPv4(&o.Dst, e.ip[16:20])
	}
	o.Proto = e.proto
	o.Flags |= HasAddrs
}

// mapIPv4 writes ::ffff:a.b.c.d into zeroed bytes.
func mapIPv4(to *[16]byte, addr []byte) {
	binary.BigEndian.PutUint64(to[8:], 0xffff<<32|uint64(binary.BigEndian.Uint32(addr)))
}
