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
// correct lengths and checksums. Payloads are zeros. It is not safe for concurrent
// use.
type framer struct {
	layout     csig.Layout
	tpid       uint16
	reflection csig.Reflection
	identifier []uint16    // next IPv4 identification, per sending host
	templates  [4]template // by shape
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

// newFramer makes the framer of a network of hosts. Its reflections count their
// whole length (RFC 9293), whatever the encoding says of those to be read.
func newFramer(l csig.Layout, tpid uint16, r csig.Reflection, hosts int) (framer, error) {
	r.Payload = false
	f := framer{layout: l, tpid: tpid, reflection: r, identifier: make([]uint16, hosts)}
	for i := range f.templates {
		t, err := f.newTemplate(i&1 != 0, i&2 != 0)
		if err != nil {
			return framer{}, err
		}
		f.templates[i] = t
	}
	return f, nil
}

// tagLen is the length of a tag with its TPID.
func (f *framer) tagLen() int { return 2 + f.layout.Format.DataLen() }

// reflectionLen is the length of the reflection option, with the experiment
// identifier of kind 253 or 254 (RFC 6994).
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
	f.identifier[s.from]++
	t := &f.templates[shape(s.tagged, s.reflects)]
	b = append(b, t.header...)
	t.fill(b[begin:], s, f.identifier[s.from])
	size := min(s.length, snapLen)
	for len(b)-begin < size {
		b = append(b, zeros[:min(size-(len(b)-begin), len(zeros))]...)
	}
	return b[:begin+size]
}

var zeros [256]byte

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
