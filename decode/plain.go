package decode

import (
	"encoding/binary"

	"github.com/csigscope/csigscope/decode/csig"
)

// walkIP reads an IP packet from its header on; c is its version.
func (d *Decoder) walkIP(c class, b []byte, r *Result) Reason {
	if reason, ok := d.plain(c, b, r); ok {
		return reason
	}
	if c == ipv4 {
		return d.walkIPv4(b, r)
	}
	return d.walkIPv6(b, r)
}

// plain reads a packet such as most are: TCP or UDP, of no tunnel and in none, behind IPv4
// without options or IPv6 without extension headers. Of all others it changes nothing.
//
// It comes to what walkIPv4 and walkIPv6 come to, but does not branch on the version and the
// transport, which processors cannot predict where packets of many flows follow each
// other: a wrong guess costs as much as the rest of the header.
func (d *Decoder) plain(c class, b []byte, r *Result) (reason Reason, ok bool) {
	v6 := int(c - ipv4) // 1 for IPv6, else 0
	headerLen := ipv4Len + (ipv6Len-ipv4Len)*v6
	if d.keeps || d.nest.holds || d.nest.tunnels > 0 || len(b) < headerLen+udpLen {
		return OK, false
	}
	proto, tcp, udp := b[9-3*v6], 0, 0
	if proto == protoTCP {
		tcp = 1
	}
	if proto == protoUDP {
		udp = 1
	}
	const fragments, version4, version6 = 0x3fff, 0x45, 0x60
	odd := int(b[0]^byte(version4+(version6-version4)*v6)) &^ (0xf * v6)
	odd |= int(be16(b[6:])) & (fragments * (1 - v6))
	left := int(be16(b[2+2*v6:])) - ipv4Len*(1-v6)
	t, n := b[headerLen:], udpLen+(tcpLen-udpLen)*tcp
	if odd != 0 || tcp|udp == 0 || left < n || len(t) < n || d.udpPorts[int(be16(t[2:]))*udp] != 0 {
		return OK, false
	}
	const ackBit = 4 // of the flags
	acks := int(t[13*tcp]) >> ackBit & tcp
	for i := r.Carrier; i < r.N; i++ {
		o := &r.Obs[i]
		o.setEither(b, uint64(v6))
		o.setPorts(t)
		o.Proto, o.Ack = proto, binary.BigEndian.Uint32(t[8*tcp:])*uint32(acks)
		o.Flags |= HasAddrs | HasProto | IPv6*Flags(v6) | HasAck*Flags(acks)
	}
	if options := (int(t[12*tcp])>>4 ^ tcpLen/4) & -tcp; options != 0 {
		return d.tcp(t[:min(len(t), left)], left, endpoints{ip: b[:headerLen], proto: proto}, r), true
	}
	return r.done(), true
}

// tagged reads an Ethernet frame such as most are at a receiver: a tag, and a packet that plain reads.
// Of all others it changes nothing.
func (d *Decoder) tagged(frame []byte, r *Result) bool {
	const offset = etherTypeOffset + 2
	if len(frame) < offset {
		return false
	}
	c := d.classes[be16(frame[etherTypeOffset:])]
	if c < firstTag {
		return false
	}
	l := csig.LayoutAt(int(c - firstTag))
	rest := frame[offset:]
	n := l.Format.DataLen()
	if len(rest) < n+2 {
		return false
	}
	next := d.classes[be16(rest[n:])]
	if next-ipv4 > ipv6-ipv4 { // one comparison, since which of both it is cannot be predicted
		return false
	}
	o := &r.Obs[0]
	o.Kind, o.Flags = Tag, 0
	o.Tag.Parse(l, rest)
	r.N = 1
	reason, ok := d.plain(next, rest[n+2:], r)
	if !ok {
		r.N = 0
		return false
	}
	r.Reason = reason
	d.counters.Tags++
	return true
}

// setEither is setAddrs for a header of either version; v6 is 1 for IPv6, else 0.
func (o *Observation) setEither(ip []byte, v6 uint64) {
	const mapped = 0xffff0000 // of an IPv4 address, in front of its 32 bits
	word := func(at uint64) uint64 { return binary.LittleEndian.Uint64(ip[at:]) }
	six, at := -v6, 12-4*v6
	a, b, c, e := word(at), word(at+8*v6), word(at+16*v6), word(at+24*v6)
	binary.LittleEndian.PutUint64(o.Src[:], a&six)
	binary.LittleEndian.PutUint64(o.Src[8:], b&six|(mapped|a<<32)&^six)
	binary.LittleEndian.PutUint64(o.Dst[:], c&six)
	binary.LittleEndian.PutUint64(o.Dst[8:], e&six|(mapped|a>>32<<32)&^six)
}
