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
	options := d.transportOf(c, (*[plainLen]byte)(b[:plainLen]), len(b), o)
	if options < 0 {
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

// Plainness is how much of a frame DecodePlain read.
type Plainness uint8

// NotPlain is a frame for DecodeFrame. TagAlone is a frame with a tag that is its only observation,
// without a fault, and Plain is any other that was read.
const (
	NotPlain Plainness = iota
	TagAlone
	Plain
)

// DecodePlain reads the most common Ethernet frames: at most a tag, and a TCP or UDP packet without
// tunnels. It returns the number of observations and the frame's reason, as DecodeFrame does, and
// fills everything of each observation but TimeNS and Packet. If the frame is NotPlain, obs is
// undefined, and nothing is counted.
//
// It reads up to 86 bytes of the frame's memory, also behind its length, and ignores those. A frame
// with less capacity is NotPlain. Nobody may write to that memory meanwhile.
func (d *Decoder) DecodePlain(frame []byte, wireLen uint32, obs *[MaxObservations]Observation) (n int, reason Reason, is Plainness) {
	const data = etherTypeOffset + 2
	const most = data + maxTag + plainLen
	if len(frame) < data || cap(frame) < most || d.keeps {
		return 0, OK, NotPlain
	}
	b := (*[most]byte)(frame[:most])
	o, c := &obs[0], d.classes[be16(b[etherTypeOffset:])]
	if c < firstTag {
		return d.plainUntagged(c, frame, wireLen, obs)
	}
	l := csig.LayoutAt(int(c - firstTag))
	o.Tag.Parse(l, b[data:data+maxTag])
	at := data + l.Format.DataLen() + 2
	if c = d.classes[be16(b[at-2:])]; c-ipv4 > ipv6-ipv4 { // one comparison, because the processor cannot predict which of the two it is
		return 0, OK, NotPlain
	}
	o.Kind, o.Bytes, o.Flow = Tag, wireLen, 0
	if options := d.transportOf(c, (*[plainLen]byte)(b[at:]), len(frame)-at, o); options != 0 {
		return d.plainOptionsOf(c, frame, at, options, 1, obs)
	}
	d.tagged++
	return 1, OK, TagAlone
}

// plainUntagged is DecodePlain for a frame whose first EtherType has class c.
func (d *Decoder) plainUntagged(c class, frame []byte, wireLen uint32, obs *[MaxObservations]Observation) (n int, reason Reason, is Plainness) {
	if c-ipv4 > ipv6-ipv4 {
		return 0, OK, NotPlain
	}
	const at = etherTypeOffset + 2
	o := &obs[0] // of the endpoints, which count for nothing
	o.Bytes = wireLen
	if options := d.transportOf(c, (*[plainLen]byte)(frame[at:at+plainLen]), len(frame)-at, o); options != 0 {
		return d.plainOptionsOf(c, frame, at, options, 0, obs)
	}
	d.untagged++
	return 0, NoCSIG, Plain
}

// plainOptionsOf finishes a frame for which transportOf returned options other than 0. Its packet begins at at; obs has
// its n tags with their endpoints.
func (d *Decoder) plainOptionsOf(c class, frame []byte, at, options, n int, obs *[MaxObservations]Observation) (all int, reason Reason, is Plainness) {
	if options < 0 {
		return 0, OK, NotPlain
	}
	r, wireLen := &d.result, obs[0].Bytes
	r.Obs, r.N, r.Carrier = obs[:], n, 0
	d.nest = nesting{}
	d.counters.Tags += uint64(n)
	r.Reason = d.plainOptions(c, frame[at:], options, r)
	r.setBytes(wireLen)
	r.Obs = nil // it is the caller's
	d.counters.Frames++
	d.counters.Reasons[r.Reason]++
	return r.N, r.Reason, Plain
}

const (
	// maxTag is the length of the longest tag, without its TPID and with the EtherType after it.
	maxTag = 6 + 2
	// plainLen is the number of bytes that transportOf reads: the longest IP header, the shortest one
	// of TCP, and the beginning of its options.
	plainLen = ipv6Len + plainTransport

	plainTransport = tcpLen + 4

	// stampedLen is the length of a TCP header whose only option is a timestamp, as in nearly all
	// segments (RFC 7323, appendix A). stamped is how its options begin, as a little-endian number:
	// twice no operation, kind 8, length 10. No reflection has that kind.
	stampedLen = tcpLen + 12
	stamped    = 0x0a080101
)

// transportOf reads the endpoints of a common packet into o: TCP or UDP, without tunnels, behind
// IPv4 without options or IPv6 without extension headers. captured is the number of captured bytes
// of the packet: b may have fewer of them, or bytes behind its end. For a packet with TCP options other
// than a timestamp alone, it returns the length of its segment according to the IP header, else 0. For
// any packet that is not common it returns -1, and leaves o as it was.
//
// It gives the same results as walkIPv4 and walkIPv6, but does not branch on the version and the
// transport. Processors cannot predict those where packets of many flows alternate, and a wrong
// guess costs as much as the rest of the header.
func (d *Decoder) transportOf(c class, b *[plainLen]byte, captured int, o *Observation) (options int) {
	const (
		mapped = 0xffff0000 // of an IPv4 address, in front of its 32 bits
		ackBit = 4          // of the flags

		// Of the first 8 bytes of a header, as a little-endian number: the bits that matter, and their
		// values. They are the version, and in IPv4 the length of the header and the fragment.
		care4, care6 = 0xff3f_0000_0000_00ff, 0xf0
		want4, want6 = 0x45, 0x60
	)
	v6 := uint64(c-ipv4) & 1 // 1 for IPv6, as tcp for TCP, else 0: numbers for arithmetic
	six := -v6
	headerLen := ipv4Len + (ipv6Len-ipv4Len)*v6
	t := (*[plainTransport]byte)(b[headerLen:])
	proto, tcp, udp := b[9-3*v6], 0, 0
	if proto == protoTCP {
		tcp = 1
	}
	if proto == protoUDP {
		udp = 1
	}
	word := func(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
	odd := (word(b[:]) ^ want4 ^ (want4^want6)&six) & (care4 ^ (care4^care6)&six)
	left := int(be16(b[2+2*v6:])) - ipv4Len + ipv4Len*int(v6)
	least := udpLen + (tcpLen-udpLen)*tcp
	room := min(left, captured-int(headerLen))
	if odd != 0 || tcp|udp == 0 || room < least || d.udpPorts[be16(t[2:])&-uint16(udp)] != 0 {
		return -1
	}
	four := word(b[12:])
	binary.LittleEndian.PutUint64(o.Src[:], word(b[8:])&six)
	binary.LittleEndian.PutUint64(o.Src[8:], word(b[16:])&six|(mapped|four<<32)&^six)
	binary.LittleEndian.PutUint64(o.Dst[:], word(b[24:])&six)
	binary.LittleEndian.PutUint64(o.Dst[8:], word(b[32:])&six|(mapped|four>>32<<32)&^six)
	acks := int(t[13]) >> ackBit & tcp
	o.SrcPort, o.DstPort = be16(t[:]), be16(t[2:])
	o.Proto, o.Ack = proto, binary.BigEndian.Uint32(t[8:])&-uint32(acks)
	o.Flags = HasAddrs | HasPorts | HasProto | IPv6*Flags(v6) | HasAck*Flags(acks)
	words := int(t[12]) >> 4 // of 4 bytes
	// 0 for a timestamp alone
	other := uint64(words^stampedLen/4) | uint64(binary.LittleEndian.Uint32(t[tcpLen:])^stamped) | uint64(room-stampedLen)>>63
	if options = (words ^ tcpLen/4) & -tcp; other == 0 { // without a branch, as above
		options = 0
	}
	if options != 0 {
		return left
	}
	return 0
}

// plainOptions reads the TCP options of a packet b.
func (d *Decoder) plainOptions(c class, b []byte, left int, r *Result) Reason {
	headerLen := ipv4Len + (ipv6Len-ipv4Len)*int(c-ipv4)
	t := b[headerLen:]
	return d.walkTransport(t[:min(len(t), left)], left, endpoints{ip: b[:headerLen], proto: protoTCP}, r)
}
