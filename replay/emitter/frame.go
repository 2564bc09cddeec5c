package emitter

import (
	"encoding/binary"

	"github.com/csigscope/csigscope/decode/csig"
)

// Lengths of headers in bytes.
const (
	ethernetLen  = 14
	maxL2        = ethernetLen + 8
	ipLen        = 20
	tcpLen       = 20
	timestampLen = 12 // two no-operations and the option
)

// framer builds frames as they appear on the last link before a host: routed, with
// correct lengths and checksums. Payloads are zeros.
type framer struct {
	layout     csig.Layout
	tpid       uint16
	reflection csig.Reflection
	identifier []uint16 // next IPv4 identification, per sending host
}

// segment is what a frame carries.
type segment struct {
	tuple            fiveTuple
	from             int32 // sending host
	rack, hops       int   // of the delivering leaf; switches on the way
	sequence, ack    uint32
	stamp, echo      uint32
	length           int // of the frame
	tagged, reflects bool
	tag, reflection  csig.Tag
}

// tagLen is the length of a tag with its TPID.
func (f *framer) tagLen() int { return 2 + f.layout.Format.DataLen() }

// reflectionLen is the length of the reflection option, of kind 253 or 254 with an
// experiment identifier (RFC 6994); its length octet counts all of it (RFC 9293).
func (f *framer) reflectionLen() int {
	return 2 + int(f.reflection.ExIDLen) + f.layout.Format.DataLen()
}

// optionsLen is the length of TCP options.
func (f *framer) optionsLen(reflects bool) int {
	if !reflects {
		return timestampLen
	}
	return (10 + f.reflectionLen() + 3) &^ 3
}

// ackLen is the length of the frame of an acknowledgement without tag.
func (f *framer) ackLen(reflects bool) int {
	return ethernetLen + ipLen + tcpLen + f.optionsLen(reflects)
}

// payload is the number of bytes of data in a frame.
func (f *framer) payload(frame int, tagged, reflects bool) int {
	if tagged {
		frame -= f.tagLen()
	}
	return frame - f.ackLen(reflects)
}

// append appends the frame's headers to b, and as much of its payload as the snap
// length leaves room for.
func (f *framer) append(b []byte, s *segment, snapLen int) []byte {
	begin := len(b)
	b = f.ethernet(b, s)
	b = f.ip(b, s, begin)
	b = f.tcp(b, s)
	size := min(s.length, snapLen)
	for len(b)-begin < size {
		b = append(b, zeros[:min(size-(len(b)-begin), len(zeros))]...)
	}
	return b[:begin+size]
}

var zeros [256]byte

func (f *framer) ethernet(b []byte, s *segment) []byte {
	b = append(b, 0x02, 0)
	b = binary.BigEndian.AppendUint32(b, s.tuple.dst) // the host
	b = append(b, 0x02, 1, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(s.rack+1)) // the leaf
	if s.tagged {
		b = binary.BigEndian.AppendUint16(b, f.tpid)
		b = s.tag.Append(b)
	}
	return append(b, 0x08, 0x00)
}

func (f *framer) ip(b []byte, s *segment, begin int) []byte {
	at := len(b)
	total := s.length - (at - begin)
	f.identifier[s.from]++
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(total))
	b = binary.BigEndian.AppendUint16(b, f.identifier[s.from])
	b = append(b, 0x40, 0, byte(64-s.hops), 6, 0, 0)
	b = binary.BigEndian.AppendUint32(b, s.tuple.src)
	b = binary.BigEndian.AppendUint32(b, s.tuple.dst)
	binary.BigEndian.PutUint16(b[at+10:], ^fold(sum(b[at:], 0)))
	return b
}

func (f *framer) tcp(b []byte, s *segment) []byte {
	at := len(b)
	header := tcpLen + f.optionsLen(s.reflects)
	b = binary.BigEndian.AppendUint16(b, s.tuple.srcPort)
	b = binary.BigEndian.AppendUint16(b, s.tuple.dstPort)
	b = binary.BigEndian.AppendUint32(b, s.sequence)
	b = binary.BigEndian.AppendUint32(b, s.ack)
	payload := f.payload(s.length, s.tagged, s.reflects)
	flags := byte(0x10)
	if payload > 0 {
		flags |= 0x08
	}
	b = append(b, byte(header/4)<<4, flags, 0x20, 0, 0, 0, 0, 0)
	b = f.options(b, s)
	pseudo := sum(b[at-8:at], 6+uint32(header+payload))
	binary.BigEndian.PutUint16(b[at+16:], ^fold(sum(b[at:], pseudo)))
	return b
}

func (f *framer) options(b []byte, s *segment) []byte {
	if !s.reflects {
		b = append(b, 1, 1)
	}
	b = append(b, 8, 10)
	b = binary.BigEndian.AppendUint32(b, s.stamp)
	b = binary.BigEndian.AppendUint32(b, s.echo)
	if !s.reflects {
		return b
	}
	b = append(b, f.reflection.Kind, byte(f.reflectionLen()))
	switch f.reflection.ExIDLen {
	case 2:
		b = binary.BigEndian.AppendUint16(b, uint16(f.reflection.ExID))
	case 4:
		b = binary.BigEndian.AppendUint32(b, f.reflection.ExID)
	}
	b = s.reflection.Append(b)
	for n := 10 + f.reflectionLen(); n < f.optionsLen(true); n++ {
		b = append(b, 0)
	}
	return b
}

// sum adds 16-bit words to a one's complement sum that is not folded yet; b has an
// even length below 64 KiB.
func sum(b []byte, to uint32) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		to += uint32(binary.BigEndian.Uint16(b))
	}
	return to
}

func fold(s uint32) uint16 {
	s = s>>16 + s&0xffff
	return uint16(s>>16 + s&0xffff)
}
