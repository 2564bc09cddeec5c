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

// plain reads a common packet, as defined by transportOf. It changes nothing for any other packet.
func (d *Decoder) plain(c class, b []byte, r *Result) (reason Reason, ok bool) {
	if d.keeps || d.nest.holds || d.nest.tunnels > 0 || cap(b) < plainLen {
		return OK, false
	}
	o := &d.ends
	o.Flags = 0
	options, ok := d.transportOf(c, (*[plainLen]byte)(b[:plainLen]), len(b), o)
	if !ok {
		return OK, false
	}
	for i := r.Carrier; i < r.N; i++ {
		r.Obs[i].copyEnds(o)
	}
	if options > 0 {
		return d.plainOptions(c, b, options, r), true
	}
	return r.done(), true
}

// DecodeTagged reads the Ethernet frames that are most common at a receiver: a tag, and a TCP or
// UDP packet without tunnels. It returns the number of observations and the frame's reason, as
// DecodeFrame does, and fills everything of each observation but TimeNS and Packet. For any other
// frame it returns 0, leaves obs undefined, and counts nothing: DecodeFrame reads that.
//
// It reads up to 76 bytes of the frame's memory, also behind its length, and ignores those. For a
// frame with less capacity it returns 0. Nobody may write to that memory meanwhile.
func (d *Decoder) DecodeTagged(frame []byte, wireLen uint32, obs *[MaxObservations]Observation) (n int, reason Reason) {
	const data = etherTypeOffset + 2
	const most = data + maxTag + plainLen
	if len(frame) < data || cap(frame) < most || d.keeps {
		return 0, OK
	}
	b := (*[most]byte)(frame[:most])
	c := d.classes[be16(b[etherTypeOffset:])]
	if c < firstTag {
		return 0, OK
	}
	o, l := &obs[0], csig.LayoutAt(int(c-firstTag))
	o.Tag.Parse(l, b[data:data+maxTag])
	at := data + l.Format.DataLen() + 2
	next := d.classes[be16(b[at-2:])]
	if next-ipv4 > ipv6-ipv4 { // one comparison, because the processor cannot predict which of the two it is
		return 0, OK
	}
	o.Kind, o.Flags, o.Bytes = Tag, 0, wireLen
	options, ok := d.transportOf(next, (*[plainLen]byte)(b[at:]), len(frame)-at, o)
	if !ok {
		return 0, OK
	}
	if options > 0 {
		return d.taggedOptions(next, frame[at:], options, obs)
	}
	d.tagged++
	return 1, OK
}

// taggedOptions finishes the frame of a packet b with TCP options, whose tag and ends are read.
func (d *Decoder) taggedOptions(c class, b []byte, left int, obs *[MaxObservations]Observation) (n int, reason Reason) {
	r := &d.result
	r.Obs, r.N, r.Carrier = obs[:], 1, 0
	d.nest = nesting{}
	d.counters.Tags++
	r.Reason = d.plainOptions(c, b, left, r)
	r.setBytes(obs[0].Bytes)
	r.Obs = nil // it is the caller's
	d.counters.Frames++
	d.counters.Reasons[r.Reason]++
	return r.N, r.Reason
}

const (
	// maxTag is the length of the longest tag, without its TPID and with the EtherType after it.
	maxTag = 6 + 2
	// plainLen is the number of bytes that transportOf reads: the longest IP header, and of the
	// transport header all but the end of TCP's.
	plainLen = ipv6Len + plainTransport

	plainTransport = 14
)

// transportOf reads the endpoints of a common packet into o: TCP or UDP, without tunnels, behind
// IPv4 without options or IPv6 without extension headers. captured is the number of captured bytes
// of the packet: b may have fewer of them, or bytes behind its end. It returns false for any other packet, and leaves o as it was. For a packet
// with TCP options, options is the length of its segment according to the IP header, else 0.
//
// It gives the same results as walkIPv4 and walkIPv6, but does not branch on the version and the
// transport. Processors cannot predict those where packets of many flows alternate, and a wrong
// guess costs as much as the rest of the header.
func (d *Decoder) transportOf(c class, b *[plainLen]byte, captured int, o *Observation) (options int, ok bool) {
	const (
		fragments, version4, version6 = 0x3fff, 0x45, 0x60
		mapped                        = 0xffff0000 // of an IPv4 address, in front of its 32 bits
		ackBit                        = 4          // of the flags
	)
	v6 := uint64(c-ipv4) & 1 // 1 for IPv6, as tcp for TCP, else 0: numbers for arithmetic
	six := -v6
	headerLen := ipv4Len + int(six&(ipv6Len-ipv4Len))
	t := (*[plainTransport]byte)(b[headerLen:])
	proto, tcp, udp := b[9-3*v6], 0, 0
	if proto == protoTCP {
		tcp = 1
	}
	if proto == protoUDP {
		udp = 1
	}
	odd := uint64(b[0]^version4)&^six | uint64(b[0]^version6)&0xf0&six | uint64(be16(b[6:]))&fragments&^six
	left := (int(be16(b[2:]))-ipv4Len)&^int(six) | int(be16(b[4:]))&int(six)
	least := udpLen + (tcpLen-udpLen)*tcp
	if odd != 0 || tcp|udp == 0 || min(left, captured-headerLen) < least || d.udpPorts[be16(t[2:])&-uint16(udp)] != 0 {
		return 0, false
	}
	word := func(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
	four := word(b[12:])
	binary.LittleEndian.PutUint64(o.Src[:], word(b[8:])&six)
	binary.LittleEndian.PutUint64(o.Src[8:], word(b[16:])&six|(mapped|four<<32)&^six)
	binary.LittleEndian.PutUint64(o.Dst[:], word(b[24:])&six)
	binary.LittleEndian.PutUint64(o.Dst[8:], word(b[32:])&six|(mapped|four>>32<<32)&^six)
	acks := int(t[13]) >> ackBit & tcp
	o.SrcPort, o.DstPort = be16(t[:]), be16(t[2:])
	o.Proto, o.Ack = proto, binary.BigEndian.Uint32(t[8:])&-uint32(acks)
	o.Flags |= HasAddrs | HasPorts | HasProto | IPv6*Flags(v6) | HasAck*Flags(acks)
	if (int(t[12])>>4^tcpLen/4)&-tcp != 0 {
		return left, true
	}
	return 0, true
}

// plainOptions reads the TCP options of a packet b.
func (d *Decoder) plainOptions(c class, b []byte, left int, r *Result) Reason {
	headerLen := ipv4Len + (ipv6Len-ipv4Len)*int(c-ipv4)
	t := b[headerLen:]
	return d.tcp(t[:min(len(t), left)], left, endpoints{ip: b[:headerLen], proto: protoTCP}, r)
}
