package emitter

import (
	"encoding/binary"
	"slices"

	"github.com/csigscope/csigscope/decode/csig"
)

// Lengths of headers in bytes.
const (
	ethernetLen  = 14
	maxAround    = 192 // more than a frame has beside the packet of the hosts
	ipv4Len      = 20
	ipv6Len      = 40
	tcpLen       = 20
	timestampLen = 12 // two no-operations and the option
)

// framer builds frames as they appear on a link: with correct lengths and checksums.
// Payloads are zeros, and noise where they are encrypted. It is not safe for
// concurrent use.
type framer struct {
	layout     csig.Layout
	tpid       uint16
	reflection csig.Reflection
	styles     []styleFrames
}

// styleFrames are the templates of a style by shape: of frames outside of the
// encapsulation, and inside.
type styleFrames struct {
	style
	plain, wrapped [4]template
	overhead       int // bytes by which a wrapped frame is longer
}

// segment is what a frame carries.
type segment struct {
	link             link
	tuple            fiveTuple
	style            uint8
	wrapped          bool   // the frame is on a link where its encapsulation stands
	hops, outerHops  uint8  // switches that the packet of the hosts and the one around it have passed
	id               uint32 // number of the packet in its flow
	sequence, ack    uint32
	stamp, echo      uint32
	length           int   // of the frame
	ecn              uint8 // codepoint
	congested        bool  // of acknowledgements: what they answer was marked
	tagged, reflects bool
	doubled          bool // the tag stands twice
	tag, reflection  csig.Tag
}

// link is the addresses that frames on a link have: destination and source.
type link [12]byte

// newFramer makes the framer of flows of some styles. Its reflections count their
// whole length (RFC 9293), whatever the encoding says of those to be read.
func newFramer(l csig.Layout, tpid uint16, r csig.Reflection, styles []style) (framer, error) {
	r.Payload = false
	f := framer{layout: l, tpid: tpid, reflection: r, styles: make([]styleFrames, len(styles))}
	for i, st := range styles {
		f.styles[i].style = st
	}
	for i := range f.styles {
		st := &f.styles[i]
		for shape := range st.plain {
			for _, wrapped := range [2]bool{false, true} {
				k, err := f.stack(&segment{
					style: uint8(i), wrapped: wrapped && st.encap != encapNone,
					tagged: shape&1 != 0, reflects: shape&2 != 0,
				})
				if err != nil {
					return framer{}, err
				}
				t, err := k.template()
				if err != nil {
					return framer{}, err
				}
				if wrapped {
					st.wrapped[shape], st.overhead = t, k.overhead
				} else {
					st.plain[shape] = t
				}
			}
		}
	}
	return f, nil
}

// shape is the index of a template.
func shape(tagged, reflects bool) int {
	i := 0
	if tagged {
		i |= 1
	}
	if reflects {
		i |= 2
	}
	return i
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

// ipLen is the length of the hosts' IP header.
func (f *framer) ipLen(style uint8) int {
	if f.styles[style].ip == 6 {
		return ipv6Len
	}
	return ipv4Len
}

// ackLen is the length of the frame of an acknowledgement without tag and
// encapsulation.
func (f *framer) ackLen(style uint8, reflects bool) int {
	if f.styles[style].pony {
		return ethernetLen + f.ipLen(style) + ponyHeaderAll
	}
	return ethernetLen + f.ipLen(style) + tcpLen + f.optionsLen(reflects)
}

// payload is the number of bytes of data in a frame without encapsulation.
func (f *framer) payload(style uint8, frame int, tagged, reflects bool) int {
	if tagged {
		frame -= f.tagLen()
	}
	return frame - f.ackLen(style, reflects)
}

// overhead is how much longer frames are inside of their encapsulation.
func (f *framer) overhead(style uint8) int { return f.styles[style].overhead }

// append appends the frame's headers to b, and as much of its payload as the snap
// length leaves room for.
func (f *framer) append(b []byte, s *segment, snapLen int) []byte {
	begin := len(b)
	st := &f.styles[s.style]
	t := &st.plain[shape(s.tagged, s.reflects)]
	if s.wrapped {
		t = &st.wrapped[shape(s.tagged, s.reflects)]
	}
	b = append(b, t.header...)
	if s.doubled {
		b = f.fillDoubled(b, begin, t, s, st.style)
	} else {
		t.fill(b[begin:], s, st.style)
	}
	size := min(s.length, snapLen)
	head := len(b) - begin
	for len(b)-begin < size {
		b = append(b, zeros[:min(size-(len(b)-begin), len(zeros))]...)
	}
	switch {
	case t.noise:
		noise(b[begin+min(head, size):begin+size], s.noiseKey(0))
	case t.trailer > 0 && size > s.length-t.trailer:
		noise(b[begin+s.length-t.trailer:begin+size], s.noiseKey(1))
	}
	return b[:begin+size]
}

// fillDoubled fills a template's header at the end of b, and puts the tag before its first
// EtherType once more.
func (f *framer) fillDoubled(b []byte, begin int, t *template, s *segment, st style) []byte {
	const etherTypeAt = 12
	s.length -= f.tagLen()
	t.fill(b[begin:], s, st)
	s.length += f.tagLen()
	again := s.tag.Append(binary.BigEndian.AppendUint16(nil, f.tpid))
	return slices.Insert(b, begin+etherTypeAt, again...)
}

var zeros [256]byte

// noiseKey gives every frame noise of its own.
func (s *segment) noiseKey(part uint64) uint64 {
	return uint64(s.tuple.src)<<32 ^ uint64(s.tuple.dst)<<16 ^ uint64(s.tuple.srcPort) ^ uint64(s.id)<<24 ^ part<<63
}

// noise fills b with what stands for encrypted bytes.
func noise(b []byte, key uint64) {
	r := random(key)
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, r.next())
	}
	if len(b) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], r.next())
		copy(b, last[:])
	}
}

// sum adds 16-bit words to a one's complement sum that is not folded yet; b has an
// even length below 64 KiB.
func sum(b []byte, to uint32) uint32 {
	for ; len(b) >= 4; b = b[4:] {
		v := binary.BigEndian.Uint32(b)
		to += v>>16 + v&0xffff
	}
	if len(b) >= 2 {
		to += uint32(binary.BigEndian.Uint16(b))
	}
	return to
}

func fold(s uint32) uint16 {
	s = s>>16 + s&0xffff
	return uint16(s>>16 + s&0xffff)
}
