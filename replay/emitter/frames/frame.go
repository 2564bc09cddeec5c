// Package frames builds the bytes that taps capture (headers, encapsulations, tags and reflections)
// and writes them to capture files or to a network interface. It knows wire formats. It must never
// know why a packet is where it is.
//
// Only frames that cross a tap are built. gopacket writes the headers of each shape once; each
// frame copies them and sets its own fields. Payloads are zeros.
//
// Captures are pcapng (nanoseconds; one interface per tap, with its name and a comment) or classic
// pcap (nanoseconds), one per tap or one for all, plain or compressed with gzip or zstd.
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

// Header lengths in bytes.
const (
	EthernetLen  = 14
	ipv4Len      = 20
	ipv6Len      = 40
	tcpLen       = 20
	timestampLen = 12 // two no-operations and the option
)

// Framer builds frames as they appear on a link, with correct lengths and checksums. Payloads are
// zeros, or noise if encrypted. A Framer is not safe for concurrent use.
type Framer struct {
	layout     csig.Layout
	tpid       uint16
	reflection csig.Reflection
	styles     []styleFrames
}

// styleFrames holds the templates of one style by shape, without and with the encapsulation.
type styleFrames struct {
	scenario.Style
	plain, wrapped [4]template
	overhead       int // bytes that the encapsulation adds
}

// Segment holds the fields that vary between frames.
type Segment struct {
	MACs             scenario.MACs
	Tuple            scenario.FiveTuple
	Style            uint8
	Wrapped          bool   // the encapsulation is present on this link
	Hops, OuterHops  uint8  // switches passed by the hosts' packet, and by the outer packet
	ID               uint32 // packet number within its flow
	Sequence, Ack    uint32
	Stamp, Echo      uint32
	Length           int   // of the frame
	ECN              uint8 // codepoint
	Congested        bool  // ACKs only: the acknowledged packet was ECN-marked
	Tagged, Reflects bool
	Doubled          bool // the tag appears twice
	Tag, Reflection  csig.Tag
}

// NewFramer returns a framer for flows of the given styles. The reflections that it writes always
// count their total length (RFC 9293), even if r.Payload asks readers for the payload length.
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

// StyleOf returns the style with a number.
func (f *Framer) StyleOf(number uint8) *scenario.Style { return &f.styles[number].Style }

// shape returns the index of a template.
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

// TagLen returns the length of a tag with its TPID, in bytes.
func (f *Framer) TagLen() int { return 2 + f.layout.Format.DataLen() }

// reflectionLen returns the length of the reflection option, including the experiment identifier of
// kinds 253 and 254 (RFC 6994).
func (f *Framer) reflectionLen() int {
	return 2 + int(f.reflection.ExIDLen) + f.layout.Format.DataLen()
}

// optionsLen returns the length of the TCP options.
func (f *Framer) optionsLen(reflects bool) int {
	if !reflects {
		return timestampLen
	}
	return (10 + f.reflectionLen() + 3) &^ 3
}

// ipLen returns the length of the hosts' IP header.
func (f *Framer) ipLen(style uint8) int {
	if f.styles[style].IP == 6 {
		return ipv6Len
	}
	return ipv4Len
}

// AckLen returns the length of an acknowledgement's frame without tag and encapsulation, in bytes.
func (f *Framer) AckLen(style uint8, reflects bool) int {
	if f.styles[style].Pony {
		return EthernetLen + f.ipLen(style) + ponyHeaderAll
	}
	return EthernetLen + f.ipLen(style) + tcpLen + f.optionsLen(reflects)
}

// Payload returns the number of data bytes in a frame of a length without encapsulation.
func (f *Framer) Payload(style uint8, frame int, tagged, reflects bool) int {
	if tagged {
		frame -= f.TagLen()
	}
	return frame - f.AckLen(style, reflects)
}

// Overhead returns the number of bytes that the style's encapsulation adds.
func (f *Framer) Overhead(style uint8) int { return f.styles[style].overhead }

// append appends the frame's headers to b, and as much of the payload as the snap length allows.
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
		noise(b[begin+min(head, size):begin+size], s.noiseKey())
	case t.trailer > 0 && size > s.Length-t.trailer:
		noise(b[begin+s.Length-t.trailer:begin+size], s.icvKey())
	}
	return b[:begin+size]
}

// fillDoubled fills the template's header at the end of b and inserts a second tag before its first
// EtherType.
func (f *Framer) fillDoubled(b []byte, begin int, t *template, s *Segment, st scenario.Style) []byte {
	const etherTypeAt = 12
	s.Length -= f.TagLen()
	t.fill(b[begin:], s, st)
	s.Length += f.TagLen()
	again := s.Tag.Append(binary.BigEndian.AppendUint16(nil, f.tpid))
	return slices.Insert(b, begin+etherTypeAt, again...)
}

var zeros [256]byte

// flow returns a generator that is the flow's own, with the given seed.
func (s *Segment) flow(seed uint64) exact.Random {
	t := &s.Tuple
	return exact.Derive(seed, uint64(t.Src)<<32|uint64(t.Dst), uint64(t.SrcPort)<<16|uint64(t.DstPort))
}

// spi returns the security parameters index of the flow's security association, in which no packet
// number may come twice. Indexes below 256 are reserved (RFC 4303, section 2.1).
func (s *Segment) spi() uint32 { return uint32(s.flow(0)) | 256 }

// noiseKey returns the seed of an encrypted payload, which is unique to the frame.
func (s *Segment) noiseKey() uint64 { return uint64(s.flow(1 + uint64(s.ID))) }

// icvKey returns the seed of an integrity check value.
func (s *Segment) icvKey() uint64 {
	return uint64(s.Tuple.Src)<<32 ^ uint64(s.Tuple.Dst)<<16 ^ uint64(s.Tuple.SrcPort) ^ uint64(s.ID)<<24 ^ 1<<63
}

// noise fills b with pseudorandom bytes in place of encrypted ones.
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

// sum adds b's 16-bit words to a one's complement sum that is not folded yet. The length of b is
// even and below 64 KiB.
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

// template holds the headers of one frame shape and the positions of the fields that vary. gopacket
// serializes each shape only once, since it takes longer per frame than the simulation of the
// frame's journey.
type template struct {
	header  []byte
	fixes   []fix
	trailer int  // bytes of the integrity check value at the frame's end
	noise   bool // everything after the headers is encrypted
}

// fix describes a header whose fields are set in each frame.
type fix struct {
	kind fixKind
	at   int // offset of the field or header
	ip   int // offset of the IP header that a checksum of TCP, UDP or Pony covers; outerHeader for a tunnel's IP header
}

type fixKind uint8

const (
	fixTag        fixKind = iota // data fields
	fixMACs                      // addresses of the hosts' frame inside a tunnel
	fixIPv4                      // lengths, identification, TTL, addresses, checksum
	fixIPv6                      // lengths, hop limit, addresses
	fixSegments                  // segment list of a segment routing header; its first segment is the destination
	fixUDP                       // source port and length
	fixSPI                       // security parameters index of the flow
	fixNumber                    // 32-bit packet number within the flow
	fixNumber16                  // 16-bit packet number within the flow
	fixLength                    // 16-bit length of everything after the 8-byte header; the field is at offset 2
	fixTTL                       // 8-bit TTL
	fixTCP                       // ports, sequence numbers, checksum
	fixPony                      // UDP header with its checksum, and the transport's header
	fixStamps                    // TCP timestamps
	fixReflection                // data fields
	fixGRE                       // checksum, set last since it covers the inner headers
	fixUDPSum                    // UDP checksum of a tunnel over IPv6, set last too
)

// outerHeader in fix.ip marks a tunnel's IP header.
const outerHeader = 1

func (k *stack) template() (template, error) {
	b, err := k.serialize(gopacket.SerializeOptions{FixLengths: true})
	if err != nil {
		return template{}, err
	}
	header := b[:k.at]
	// A tunnel's checksum covers its payload, so it is set last.
	for i, x := range k.fixes {
		if x.kind == fixGRE || x.kind == fixUDPSum {
			k.fixes = append(append(k.fixes[:i:i], k.fixes[i+1:]...), x)
			break
		}
	}
	return template{header: header, fixes: k.fixes, trailer: k.trailer, noise: k.noise}, nil
}

// serialize writes a whole frame with gopacket and adds the integrity check value, which gopacket
// does not know.
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
	noise(icv, k.s.icvKey())
	return append(out, icv...), nil
}

// fill sets the variable fields of h, a copy of the template's header.
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
		case fixSPI:
			be.PutUint32(p, s.spi())
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

// pseudoSum begins the checksum of a transport segment with the given length behind an IP header.
func pseudoSum(ip []byte, protocol, length int) uint32 {
	if ip[0]>>4 == 6 {
		return sum(ip[8:ipv6Len], uint32(protocol+length))
	}
	return sum(ip[12:ipv4Len], uint32(protocol+length))
}

// udpSum returns the checksum of a datagram with the given length. All bytes after p are zeros.
func udpSum(ip, p []byte, length int) uint16 {
	const protocol = 17
	c := ^fold(sum(p, pseudoSum(ip, protocol, length)))
	if c == 0 {
		return 0xffff // 0 means no checksum
	}
	return c
}

// fillTCP sets the TCP header. The options must be set before, since the checksum covers them. ip
// is the preceding IP header, length the length of the whole segment.
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
	be.PutUint16(p[16:], ^fold(sum(p, pseudoSum(ip, protocol, length))))
}

// ttl returns the time to live of the hosts' packet or of the outer packet. Both start at 64.
func (s *Segment) ttl(header int) uint8 {
	if header == outerHeader {
		return scenario.FirstTTL - s.OuterHops
	}
	return scenario.FirstTTL - s.Hops
}

// ends returns the addresses of the hosts' packet or of the outer packet.
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

// hostMACs writes the hosts' Ethernet addresses.
func (s *Segment) hostMACs(st scenario.Style, p []byte) {
	src, dst := s.ends(st, 0)
	scenario.PutMAC(p, scenario.HostMAC, dst)
	scenario.PutMAC(p[6:], scenario.HostMAC, src)
}

// entropy returns the source port of a UDP tunnel, by which switches tell apart the flows inside
// (RFC 7348, section 5).
func (s *Segment) entropy() uint16 {
	const first, ports = 49152, 1 << 14
	t := &s.Tuple
	h := exact.Mix(uint64(t.Src)<<32 ^ uint64(t.Dst) ^ uint64(t.SrcPort)<<48 ^ uint64(t.DstPort)<<16)
	return uint16(first + h%ports)
}
