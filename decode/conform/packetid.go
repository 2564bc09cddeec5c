package conform

import (
	"encoding/binary"

	"github.com/csigscope/csigscope/decode"
)

// PacketIdentifier gives packets an identity from the parts that no device on the way may change, as
// a Judge does. Its key is fixed, so that a sample of packets by their identities is the same in every
// run. Nobody without the key can choose the packets in the sample. It is not safe for concurrent use.
type PacketIdentifier struct {
	decoder *decode.Decoder
	id      identifier
}

// NewPacketIdentifier makes a PacketIdentifier. It uses prefix bytes of each packet behind
// the IP header, 0 for all. Captures with truncated packets need the number of bytes that all of them
// have (Scan.Cut).
func NewPacketIdentifier(d *decode.Decoder, prefix int, key uint64) *PacketIdentifier {
	return &PacketIdentifier{decoder: d, id: identifier{key: key, prefix: prefix}}
}

// Identify returns a number that almost certainly no other packet has, the same wherever the packet
// is captured, never 0, and its remaining hops. ok is false for packets that are not IP, and for those
// whose capture ends in the IP header. Numbers are comparable only under the same prefix and key.
func (k *PacketIdentifier) Identify(frame []byte) (id uint64, hops uint8, ok bool) {
	etherType, packet, ok := k.decoder.Network(decode.Ethernet, frame)
	switch {
	case !ok:
		return 0, 0, false
	case etherType == etherIPv4 && len(packet) >= ipv4Len:
		hops = packet[8]
	case etherType == etherIPv6 && len(packet) >= ipv6Len:
		hops = packet[7]
	default:
		return 0, 0, false
	}
	one, _, ok := k.id.of(etherType, packet, 0, nil)
	return one.whole, hops, ok
}

// Segment is a TCP segment: its connection and direction, its data and its acknowledgement.
type Segment struct {
	Conversation
	Data     bool   // it carries data
	End, Ack uint32 // sequence numbers: after its data, and of its acknowledgement
}

// Conversation is one direction of a TCP connection. IPv4 addresses fill the first bytes.
type Conversation struct {
	Src, Dst         [16]byte
	SrcPort, DstPort uint16
}

// Back returns the other direction.
func (c Conversation) Back() Conversation { return Conversation{c.Dst, c.Src, c.DstPort, c.SrcPort} }

// Segment returns the innermost TCP segment of the last decoded frame, the same one whatever
// tunnels are around it. ok is false where it cannot be read (decode.Decoder.Segment).
func (k *PacketIdentifier) Segment() (s Segment, ok bool) {
	p, ok := k.decoder.Segment()
	if !ok {
		return s, false
	}
	if len(p.IP) == ipv4Len {
		copy(s.Src[:], p.IP[12:16])
		copy(s.Dst[:], p.IP[16:20])
	} else {
		copy(s.Src[:], p.IP[8:24])
		copy(s.Dst[:], p.IP[24:40])
	}
	s.SrcPort, s.DstPort = binary.BigEndian.Uint16(p.TCP), binary.BigEndian.Uint16(p.TCP[2:])
	data := max(p.Left-int(p.TCP[12]>>4)*4, 0)
	s.Data, s.End = data > 0, binary.BigEndian.Uint32(p.TCP[4:])+uint32(data)
	s.Ack = binary.BigEndian.Uint32(p.TCP[8:])
	return s, true
}

// IdentifyData returns a number for the data of a conversation up to a sequence number, as Identify
// does for a packet.
func (k *PacketIdentifier) IdentifyData(c *Conversation, end uint32) uint64 {
	tail := uint64(c.SrcPort)<<48 | uint64(c.DstPort)<<32 | uint64(end)
	return k.id.mix(k.id.mix(k.id.hash(c.Src[:]), k.id.hash(c.Dst[:])), tail)
}
