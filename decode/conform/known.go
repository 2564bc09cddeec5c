package conform

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/csigscope/csigscope/decode"
)

// Known knows packets again by what no device on the way may change, as a Judge does. It
// is not safe for concurrent use.
type Known struct {
	decoder *decode.Decoder
	id      identifier
}

// NewKnown makes a Known. What counts of packets that captures cut is prefix bytes behind
// the IP header, 0 for all (Scan.Cut).
func NewKnown(d *decode.Decoder, prefix int) *Known {
	return &Known{decoder: d, id: identifier{seed: maphash.MakeSeed(), prefix: prefix}}
}

// Of is a number that no other packet is likely to have, the same wherever the packet is
// captured, and how many hops it may still go. ok is false for packets that are not IP.
// Numbers of different Knowns do not compare.
func (k *Known) Of(frame []byte) (id uint64, hops uint8, ok bool) {
	etherType, packet, ok := k.decoder.Network(frame)
	if !ok || etherType != etherIPv4 && etherType != etherIPv6 {
		return 0, 0, false
	}
	one, ok := k.id.of(etherType, packet)
	if !ok {
		return 0, 0, false
	}
	if etherType == etherIPv4 {
		return one.whole, packet[8], true
	}
	return one.whole, packet[7], true
}

// Segment is a TCP segment: who sent it to whom, and what it carries and acknowledges.
type Segment struct {
	Conversation
	Data     bool   // it carries some
	End, Ack uint32 // sequence numbers: behind its data, and behind what it acknowledges
}

// Conversation is one direction of a TCP connection. IPv4 addresses fill the first bytes.
type Conversation struct {
	Src, Dst         [16]byte
	SrcPort, DstPort uint16
}

// Back is the other direction.
func (c Conversation) Back() Conversation { return Conversation{c.Dst, c.Src, c.DstPort, c.SrcPort} }

// Segment reads the TCP header right behind that of IP. ok is false for fragments and where
// there is none.
func (k *Known) Segment(frame []byte) (s Segment, ok bool) {
	etherType, packet, ok := k.decoder.Network(frame)
	if !ok {
		return s, false
	}
	p, ok := k.id.split(etherType, packet)
	fragment := etherType == etherIPv4 && ok && binary.BigEndian.Uint16(packet[6:])&0x3fff != 0
	if !ok || fragment || p.proto != protoTCP || len(p.rest) < 13 {
		return s, false
	}
	if etherType == etherIPv4 {
		copy(s.Src[:], packet[12:16])
		copy(s.Dst[:], packet[16:20])
	} else {
		copy(s.Src[:], packet[8:24])
		copy(s.Dst[:], packet[24:40])
	}
	s.SrcPort, s.DstPort = binary.BigEndian.Uint16(p.rest), binary.BigEndian.Uint16(p.rest[2:])
	data := max(p.claimed-int(p.rest[12]>>4)*4, 0)
	s.Data, s.End = data > 0, binary.BigEndian.Uint32(p.rest[4:])+uint32(data)
	s.Ack = binary.BigEndian.Uint32(p.rest[8:])
	return s, true
}
