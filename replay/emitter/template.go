package emitter

import (
	"encoding/binary"
	"fmt"

	"github.com/google/gopacket"
)

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
func (t *template) fill(h []byte, s *segment, st style) {
	be := binary.BigEndian
	copy(h, s.link[:])
	end := s.length
	if !t.noise {
		end -= t.trailer
	}
	for i := range t.fixes {
		x := &t.fixes[i]
		p := h[x.at:]
		switch x.kind {
		case fixTag:
			s.tag.Append(h[:x.at])
		case fixMACs:
			s.hostMACs(st, p)
		case fixIPv4:
			p[1] |= s.ecn
			be.PutUint16(p[2:], uint16(end-x.at))
			be.PutUint16(p[4:], uint16(s.id))
			p[8] = s.ttl(x.ip)
			src, dst := s.ends(st, x.ip)
			be.PutUint32(p[12:], src)
			be.PutUint32(p[16:], dst)
			p[10], p[11] = 0, 0
			be.PutUint16(p[10:], ^fold(sum(p[:ipv4Len], 0)))
		case fixIPv6:
			p[1] |= s.ecn << 4
			be.PutUint16(p[4:], uint16(end-x.at-ipv6Len))
			p[7] = s.ttl(x.ip)
			src, dst := s.ends(st, x.ip)
			putIPv6(p[8:], src)
			putIPv6(p[24:], dst)
		case fixSegments:
			_, dst := s.ends(st, outerHeader)
			putIPv6(p, dst)
		case fixUDP:
			be.PutUint16(p, s.entropy())
			be.PutUint16(p[4:], uint16(end-x.at))
		case fixNumber:
			be.PutUint32(p, s.id)
		case fixNumber16:
			be.PutUint16(p, uint16(s.id))
		case fixLength:
			be.PutUint16(p, uint16(end-x.at-6))
		case fixTTL:
			p[0] = s.ttl(outerHeader)
		case fixTCP:
			s.fillTCP(p, h[x.ip:], end-x.at)
		case fixPony:
			s.fillUDP(p, h[x.ip:], end-x.at)
		case fixStamps:
			be.PutUint32(p, s.stamp)
			be.PutUint32(p[4:], s.echo)
		case fixReflection:
			s.reflection.Append(h[:x.at])
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
func (s *segment) fillTCP(p, ip []byte, length int) {
	const push, echo, protocol = 0x08, 0x40, 6
	be := binary.BigEndian
	be.PutUint16(p, s.tuple.srcPort)
	be.PutUint16(p[2:], s.tuple.dstPort)
	be.PutUint32(p[4:], s.sequence)
	be.PutUint32(p[8:], s.ack)
	p[13] &^= push
	if length > len(p) {
		p[13] |= push
	}
	if s.congested {
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
func (s *segment) ttl(header int) uint8 {
	if header == outerHeader {
		return firstTTL - s.outerHops
	}
	return firstTTL - s.hops
}

// ends are the addresses of the hosts' packet or of that around it.
func (s *segment) ends(st style, header int) (src, dst uint32) {
	src, dst = s.tuple.src, s.tuple.dst
	switch {
	case header == outerHeader && st.leaves:
		return vtep(src), vtep(dst)
	case header != outerHeader && st.tenants():
		return src ^ tenantBit, dst ^ tenantBit
	}
	return src, dst
}

// hostMACs writes the Ethernet addresses of hosts.
func (s *segment) hostMACs(st style, p []byte) {
	src, dst := s.ends(st, 0)
	putMAC(p, hostMAC, dst)
	putMAC(p[6:], hostMAC, src)
}

// entropy is the source port of a tunnel over UDP, by which switches tell the flows
// inside of it apart (RFC 7348, section 5).
func (s *segment) entropy() uint16 {
	const first, ports = 49152, 1 << 14
	t := &s.tuple
	h := mix(uint64(t.src)<<32 ^ uint64(t.dst) ^ uint64(t.srcPort)<<48 ^ uint64(t.dstPort)<<16)
	return uint16(first + h%ports)
}

// Kinds of locally administered addresses, by their second byte.
const (
	hostMAC   = 0 // a host, by its address
	switchMAC = 1 // a switch, by its number
)

// putMAC writes six bytes.
func putMAC(b []byte, kind byte, n uint32) {
	b[0], b[1] = 2, kind
	binary.BigEndian.PutUint32(b[2:], n)
}
