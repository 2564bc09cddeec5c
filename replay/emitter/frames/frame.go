// Package frames makes the bytes that taps capture: headers, encapsulations, tags and reflections,
// and the captures that they go to, or the network interface. It must never know why a packet
// is where it is.
//
// Frames are made only where a tap stands. gopacket writes the headers of each shape
// once; a frame is a copy with its fields set. Payloads are zeros.
//
// Captures are pcapng (nanoseconds, an interface for each tap with its name and a comment) or
// classic pcap (nanoseconds), one for each tap or for all of them, as they are or in gzip or
// zstd.
package frames

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/google/gopacket"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// Lengths of headers in bytes.
const (
	EthernetLen  = 14
	ipv4Len      = 20
	ipv6Len      = 40
	tcpLen       = 20
	timestampLen = 12 // two no-operations and the option
)

// Framer builds frames as they appear on a link: with correct lengths and checksums.
// Payloads are zeros, and noise where they are encrypted. It is not safe for
// concurrent use.
type Framer struct {
	layout     csig.Layout
	tpid       uint16
	reflection csig.Reflection
	styles     []styleFrames
}

// styleFrames are the templates of a style by shape: of frames outside of the
// encapsulation, and inside.
type styleFrames struct {
	scenario.Style
	plain, wrapped [4]template
	overhead       int // bytes by which a wrapped frame is longer
}

// Segment is what a frame carries.
type Segment struct {
	MACs             scenario.MACs
	Tuple            scenario.FiveTuple
	Style            uint8
	Wrapped          bool   // the frame is on a link where its encapsulation stands
	Hops, OuterHops  uint8  // switches that the packet of the hosts and the one around it have passed
	ID               uint32 // number of the packet in its flow
	Sequence, Ack    uint32
	Stamp, Echo      uint32
	Length           int   // of the frame
	ECN              uint8 // codepoint
	Congested        bool  // of acknowledgements: what they answer was marked
	Tagged, Reflects bool
	Doubled          bool // the tag stands twice
	Tag, Reflection  csig.Tag
}

// NewFramer makes the framer of flows of some styles. Its reflections count their
// whole length (RFC 9293), whatever the encoding says of those to be read.
func NewFramer(l csig.Layout, tpid uint16, r csig.Reflection, styles []scenario.Style) (Framer, error) {
	r.Payload = false
	f := Framer{layout: l, tpid: tpid, reflection: r, styles: make([]styleFrames, len(styles))}
	for i, st := range styles {
		f.styles[i].Style = st
	}
	for i := range f.styles {
		st := &f.styles[i]
		for shape := range st.plain {
			for _, wrapped := range [2]bool{false, true} {
				k, err := f.stack(&Segment{
					Style: uint8(i), Wrapped: wrapped && st.Encap != scenario.EncapNone,
					Tagged: shape&1 != 0, Reflects: shape&2 != 0,
				})
				if err != nil {
					return Framer{}, err
				}
				t, err := k.template()
				if err != nil {
					return Framer{}, err
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

// StyleOf is the style of a number.
func (f *Framer) StyleOf(number uint8) *scenario.Style { return &f.styles[number].Style }

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

// TagLen is the length of a tag with its TPID.
func (f *Framer) TagLen() int { return 2 + f.layout.Format.DataLen() }

// reflectionLen is the length of the reflection option, with the experiment
// identifier of kind 253 or 254 (RFC 6994).
func (f *Framer) reflectionLen() int {
	return 2 + int(f.reflection.ExIDLen) + f.layout.Format.DataLen()
}

// optionsLen is the length of TCP options.
func (f *Framer) optionsLen(reflects bool) int {
	if !reflects {
		return timestampLen
	}
	return (10 + f.reflectionLen() + 3) &^ 3
}

// ipLen is the length of the hosts' IP header.
func (f *Framer) ipLen(style uint8) int {
	if f.styles[style].IP == 6 {
		return ipv6Len
	}
	return ipv4Len
}

// AckLen is the length of the frame of an acknowledgement without tag and
// encapsulation.
func (f *Framer) AckLen(style uint8, reflects bool) int {
	if f.styles[style].Pony {
		return EthernetLen + f.ipLen(style) + ponyHeaderAll
	}
	return EthernetLen + f.ipLen(style) + tcpLen + f.optionsLen(reflects)
}

// Payload is the number of bytes of data in a frame without encapsulation.
func (f *Framer) Payload(style uint8, frame int, tagged, reflects bool) int {
	if tagged {
		frame -= f.TagLen()
	}
	return frame - f.AckLen(style, reflects)
}

// Overhead is how much longer frames are inside of their encapsulation.
func (f *Framer) Overhead(style uint8) int { return f.styles[style].overhead }

// append appends the frame's headers to b, and as much of its payload as the snap
// length leaves room for.
func (f *Framer) append(b []byte, s *Segment, snapLen int) []byte {
	begin := len(b)
	st := &f.styles[s.Style]
	t := &st.plain[shape(s.Tagged, s.Reflects)]
	if s.Wrapped {
		t = &st.wrapped[shape(s.Tagged, s.Reflects)]
	}
	b = append(b, t.header...)
	if s.Doubled {
		b = f.fillDoubled(b, begin, t, s, st.Style)
	} else {
		t.fill(b[begin:], s, st.Style)
	}
	size := min(s.Length, snapLen)
	head := len(b) - begin
	for len(b)-begin < size {
		b = append(b, zeros[:min(size-(len(b)-begin), len(zeros))]...)
	}
	switch {
	case t.noise:
		noise(b[begin+min(head, size):begin+size], s.noiseKey(0))
	case t.trailer > 0 && size > s.Length-t.trailer:
		noise(b[begin+s.Length-t.trailer:begin+size], s.noiseKey(1))
	}
	return b[:begin+size]
}

// fillDoubled fills a template's header at the end of b, and puts the tag before its first
// EtherType once more.
func (f *Framer) fillDoubled(b []byte, begin int, t *template, s *Segment, st scenario.Style) []byte {
	const etherTypeAt = 12
	s.Length -= f.TagLen()
	t.fill(b[begin:], s, st)
	s.Length += f.TagLen()
	again := s.Tag.Append(binary.BigEndian.AppendUint16(nil, f.tpid))
	return slices.Insert(b, begin+etherTypeAt, again...)
}

var zeros [256]byte

// noiseKey gives every frame noise of its own.
func (s *Segment) noiseKey(part uint64) uint64 {
	return uint64(s.Tuple.Src)<<32 ^ uint64(s.Tuple.Dst)<<16 ^ uint64(s.Tuple.SrcPort) ^ uint64(s.ID)<<24 ^ part<<63
}

// noise fills b with what stands for encrypted bytes.
func noise(b []byte, key uint64) {
	r := exact.Random(key)
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, r.Next())
	}
	if len(b) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], r.Next())
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

// template is the headers of a frame of one shape, and where they differ between
// frames. gopacket writes a shape once, since it takes longer for a frame than the
// simulation of its journey does.
type template struct {
	header  []byte
	fixes   []fix
	trailer int  // bytes of an integrity check value at the frame's end
	noise   bool // what follows the headers is encrypted
}

// fix is a header whose fields are set in each frame.
type fix struct {
	kind fixKind
	at   int // offset of what is set
	ip   int // offset of the IP header that a TCP checksum covers; 1 for the outer IP header of a tunnel
}

type fixKind uint8

const (
	fixTag        fixKind = iota // data fields
	fixMACs                      // addresses of the hosts' frame inside of a tunnel
	fixIPv4                      // lengths, identification, time to live, addresses, checksum
	fixIPv6                      // lengths, hop limit, addresses
	fixSegments                  // list of a segment routing header, whose first one is the destination
	fixUDP                       // source port and length
	fixNumber                    // 32 bits that count the packets of a flow
	fixNumber16                  // 16 bits
	fixLength                    // 16 bits: what follows the 8 bytes that the field is 2 bytes into
	fixTTL                       // time to live in a byte
	fixTCP                       // ports, numbers, checksum
	fixPony                      // UDP header with its checksum, and the transport's header
	fixStamps                    // TCP timestamps
	fixReflection                // data fields
	fixGRE                       // checksum, the last of all as it covers what is inside
	fixUDPSum                    // the same of a tunnel over IPv6
)

// outerHeader says of an IP header that it is a tunnel's.
const outerHeader = 1

func (k *stack) template() (template, error) {
	b, err := k.serialize(gopacket.SerializeOptions{FixLengths: true})
	if err != nil {
		return template{}, err
	}
	header := b[:k.at]
	// The checksum of a tunnel covers what it carries.
	for i, x := range k.fixes {
		if x.kind == fixGRE || x.kind == fixUDPSum {
			k.fixes = append(append(k.fixes[:i:i], k.fixes[i+1:]...), x)
			break
		}
	}
	return template{header: header, fixes: k.fixes, trailer: k.trailer, noise: k.noise}, nil
}

// serialize writes a whole frame with gopacket, which does not know integrity check
// values.
func (k *stack) serialize(o gopacket.SerializeOptions) ([]byte, error) {
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, o, k.layers...); err != nil {
		return nil, fmt.Errorf("serialize frame: %w", err)
	}
	out := b.Bytes()
	if k.noise {
		return out, nil
	}
	icv := make([]byte, k.trailer)
	noise(icv, k.s.noiseKey(1))
	return append(out, icv...), nil
}

// fill sets the open fields of h, a copy of the template's header.
func (t *template) fill(h []byte, s *Segment, st scenario.Style) {
	be := binary.BigEndian
	copy(h, s.MACs[:])
	end := s.Length
	if !t.noise {
		end -= t.trailer
	}
	for i := range t.fixes {
		x := &t.fixes[i]
		p := h[x.at:]
		switch x.kind {
		case fixTag:
			s.Tag.Append(h[:x.at])
		case fixMACs:
			s.hostMACs(st, p)
		case fixIPv4:
			p[1] |= s.ECN
			be.PutUint16(p[2:], uint16(end-x.at))
			be.PutUint16(p[4:], uint16(s.ID))
			p[8] = s.ttl(x.ip)
			src, dst := s.ends(st, x.ip)
			be.PutUint32(p[12:], src)
			be.PutUint32(p[16:], dst)
			p[10], p[11] = 0, 0
			be.PutUint16(p[10:], ^fold(sum(p[:ipv4Len], 0)))
		case fixIPv6:
			p[1] |= s.ECN << 4
			be.PutUint16(p[4:], uint16(end-x.at-ipv6Len))
			p[7] = s.ttl(x.ip)
			src, dst := s.ends(st, x.ip)
			scenario.PutIPv6(p[8:], src)
			scenario.PutIPv6(p[24:], dst)
		case fixSegments:
			_, dst := s.ends(st, outerHeader)
			scenario.PutIPv6(p, dst)
		case fixUDP:
			be.PutUint16(p, s.entropy())
			be.PutUint16(p[4:], uint16(end-x.at))
		case fixNumber:
			be.PutUint32(p, s.ID)
		case fixNumber16:
			be.PutUint16(p, uint16(s.ID))
		case fixLength:
			be.PutUint16(p, uint16(end-x.at-6))
		case fixTTL:
			p[0] = s.ttl(outerHeader)
		case fixTCP:
			s.fillTCP(p, h[x.ip:], end-x.at)
		case fixPony:
			s.fillUDP(p, h[x.ip:], end-x.at)
		case fixStamps:
			be.PutUint32(p, s.Stamp)
			be.PutUint32(p[4:], s.Echo)
		case fixReflection:
			s.Reflection.Append(h[:x.at])
		case fixUDPSum:
			p[6], p[7] = 0, 0
			be.PutUint16(p[6:], udpSum(h[x.ip:], p, end-x.at))
		case fixGRE:
			p[4], p[5] = 0, 0
			be.PutUint16(p[4:], ^fold(sum(p, 0)))
		}
	}
}

// udpSum is the checksum of a datagram of a length in IPv6, whose bytes behind p are
// zeros.
func udpSum(ip, p []byte, length int) uint16 {
	const protocol = 17
	c := ^fold(sum(p, sum(ip[8:ipv6Len], uint32(protocol+length))))
	if c == 0 {
		return 0xffff
	}
	return c
}

// fillTCP sets a header whose options, which its checksum covers, are set already.
// ip is the IP header before it, length that of the whole segment.
func (s *Segment) fillTCP(p, ip []byte, length int) {
	const push, echo, protocol = 0x08, 0x40, 6
	be := binary.BigEndian
	be.PutUint16(p, s.Tuple.SrcPort)
	be.PutUint16(p[2:], s.Tuple.DstPort)
	be.PutUint32(p[4:], s.Sequence)
	be.PutUint32(p[8:], s.Ack)
	p[13] &^= push
	if length > len(p) {
		p[13] |= push
	}
	if s.Congested {
		p[13] |= echo
	}
	p[16], p[17] = 0, 0
	pseudo := uint32(protocol) + uint32(length)
	if ip[0]>>4 == 6 {
		pseudo = sum(ip[8:ipv6Len], pseudo)
	} else {
		pseudo = sum(ip[12:ipv4Len], pseudo)
	}
	be.PutUint16(p[16:], ^fold(sum(p, pseudo)))
}

// ttl is the time to live of the hosts' packet or of that around it, which start
// with 64 both.
func (s *Segment) ttl(header int) uint8 {
	if header == outerHeader {
		return scenario.FirstTTL - s.OuterHops
	}
	return scenario.FirstTTL - s.Hops
}

// ends are the addresses of the hosts' packet or of that around it.
func (s *Segment) ends(st scenario.Style, header int) (src, dst uint32) {
	src, dst = s.Tuple.Src, s.Tuple.Dst
	switch {
	case header == outerHeader && st.Leaves:
		return scenario.VTEP(src), scenario.VTEP(dst)
	case header != outerHeader && st.Tenants():
		return src ^ scenario.TenantBit, dst ^ scenario.TenantBit
	}
	return src, dst
}

// hostMACs writes the Ethernet addresses of hosts.
func (s *Segment) hostMACs(st scenario.Style, p []byte) {
	src, dst := s.ends(st, 0)
	scenario.PutMAC(p, scenario.HostMAC, dst)
	scenario.PutMAC(p[6:], scenario.HostMAC, src)
}

// entropy is the source port of a tunnel over UDP, by which switches tell the flows
// inside of it apart (RFC 7348, section 5).
func (s *Segment) entropy() uint16 {
	const first, ports = 49152, 1 << 14
	t := &s.Tuple
	h := exact.Mix(uint64(t.Src)<<32 ^ uint64(t.Dst) ^ uint64(t.SrcPort)<<48 ^ uint64(t.DstPort)<<16)
	return uint16(first + h%ports)
}
