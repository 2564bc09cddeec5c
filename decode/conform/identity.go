package conform

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/decode"
)

// Match selects the parts of a packet that the device leaves alone.
type Match uint8

// Most devices change nothing above L2 but hop limits and class of service. A device that
// translates addresses or tunnels packets changes all headers, so that only the payload of the
// innermost TCP or UDP header remains; packets without one are not matched then.
const (
	MatchPacket Match = iota
	MatchPayload
)

// ParseMatch reads packet or payload.
func ParseMatch(s string) (Match, error) {
	switch s {
	case "", "packet":
		return MatchPacket, nil
	case "payload":
		return MatchPayload, nil
	}
	return 0, fmt.Errorf("match %q: expected packet or payload", s)
}

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd

	moreFragments, fragmentOffset = 0x2000, 0x1fff // of IPv4

	protoHopByHop = 0
	protoTCP      = 6
	protoUDP      = 17
	protoDCCP     = 33
	protoNone     = 59 // nothing follows the header of IPv6
	protoSCTP     = 132
	protoUDPLite  = 136

	ipv4Len = 20
	ipv6Len = 40
	udpLen  = 8
)

// identity holds the hashes by which a packet is matched.
type identity struct {
	whole uint64 // of all parts that stay the same
	head  uint64 // of the parts that also survive trimming
	flow  uint64 // of all fields that devices choose ports by, 0 if they are not known
	to    uint64 // of the destination address, 0 without one
}

// identifier makes identities. With a seed, only identities of one identifier are comparable, and
// nobody can craft packets that look equal. Without a seed, all identifiers with the same key make
// the same identities, in every run.
type identifier struct {
	seed    *maphash.Seed
	key     uint64
	keyed   xxhash.Digest
	match   Match
	prefix  int // bytes behind the IP header that count, 0 for all
	scratch [ipv6Len + 4]byte
}

// parts are the inputs of an identity.
type parts struct {
	fixed   []byte // of the IP header, without its length
	length  uint16 // of the packet, from its header
	proto   uint8
	rest    []byte // all behind the IP header with its options, without padding
	claimed int    // length of rest according to the header
}

// of returns the identity of the packet behind L2, of whose frame the capture left out missing bytes;
// inner is its innermost TCP or UDP header, if any. length is the number of bytes behind the IP header,
// or of the payload, that were on the wire; padding and lengths in headers do not change it. ok is
// false for a packet without anything to match by.
func (i *identifier) of(etherType uint16, packet []byte, missing int, inner *decode.Transport) (id identity, length int, ok bool) {
	p, isIP := i.split(etherType, packet, missing)
	var ends uint64 // addresses, protocol and ports
	if isIP {
		addresses := p.fixed[:len(p.fixed)-5]
		ends, id.to = i.mix(i.hash(p.fixed[:len(p.fixed)-4]), i.hash(ports(p))), i.hash(addresses[len(addresses)/2:])
		id.flow = i.flow(p, ends, inner)
	}
	switch {
	case i.match == MatchPayload:
		p, _ = innermost(p, inner)
		payload := transportPayload(p)
		if len(payload) == 0 {
			return id, 0, false
		}
		id.head = i.mix(uint64(p.proto), i.hash(payload[:min(len(payload), 16)]))
		id.whole = i.mix(uint64(p.proto), i.hash(i.limit(payload)))
		return id, min(p.claimed, len(p.rest)+missing) - (len(p.rest) - len(payload)), true
	case !isIP && len(packet) == 0:
		return id, 0, false
	case !isIP:
		packet = bytes.TrimRight(packet, "\x00") // links pad short frames
		id.whole = i.mix(uint64(etherType), i.hash(i.limit(packet)))
		id.head = id.whole
		return id, len(packet) + missing, true
	}
	fixed := i.hash(p.fixed)
	if etherType == etherIPv4 {
		p.fixed[len(p.fixed)-2] &= fragmentOffset >> 8 // a first fragment has the head of its packet
	}
	id.head = i.mix(i.mix(i.hash(p.fixed), ends), i.hash(head(p)))
	id.whole = i.mix(i.mix(fixed, uint64(p.length)), i.hash(i.limit(p.rest)))
	return id, min(p.claimed, len(p.rest)+missing), true
}

// flow returns the hash of a packet's flow. Devices may choose a port by the fields of inner packets too,
// by the flow label of IPv6, and by the queue pair of RoCEv2. They differ in the fields of fragments.
func (i *identifier) flow(p parts, ends uint64, inner *decode.Transport) uint64 {
	tail := p.fixed[len(p.fixed)-4:]
	v6 := len(p.fixed) > ipv6Len-8
	switch {
	case !v6 && binary.BigEndian.Uint16(tail[2:])&(moreFragments|fragmentOffset) != 0:
		return 0
	case v6:
		ends = i.mix(ends, i.hash(tail))
	}
	if inner != nil && inner.Header != nil && (len(p.rest) == 0 || &inner.Header[0] != &p.rest[0]) {
		p = parts{proto: inner.Proto, rest: inner.Header}
		addresses := inner.IP[len(inner.IP)-8:]
		if len(inner.IP) == ipv6Len {
			addresses = inner.IP[8:]
			ends = i.mix(ends, uint64(binary.BigEndian.Uint32(inner.IP)&0xfffff)) // flow label
		}
		ends = i.mix(i.mix(ends, i.hash(addresses)), i.hash(ports(p)))
	}
	const rocePort, queuePair = 4791, udpLen + 5
	switch {
	case ports(p) == nil:
		return 0
	case p.proto == protoUDP && len(p.rest) >= queuePair+3 && binary.BigEndian.Uint16(p.rest[2:]) == rocePort:
		return i.mix(ends, i.hash(p.rest[queuePair:queuePair+3]))
	}
	return ends
}

// split takes an IP packet apart, of whose frame the capture left out missing bytes. The fixed part is
// the addresses, the protocol, and four bytes that distinguish packets of a flow. A packet of length 0, as
// before segmentation offload or in a jumbogram, ends with its frame.
func (i *identifier) split(etherType uint16, b []byte, missing int) (p parts, ok bool) {
	switch {
	case etherType == etherIPv4 && len(b) >= ipv4Len && b[0]>>4 == 4:
		header := int(b[0]&15) * 4
		p.length, p.proto = binary.BigEndian.Uint16(b[2:]), b[9]
		total := int(p.length)
		if total == 0 {
			total = len(b) + missing
		}
		if header < ipv4Len || header > len(b) || total < header {
			return p, false
		}
		p.fixed = append(i.scratch[:0], b[12:20]...)
		p.fixed = append(p.fixed, p.proto)
		p.fixed = append(p.fixed, b[4:8]...) // identification, fragment
		p.claimed = total - header
		p.rest = b[header:min(len(b), total)]
		return p, true
	case etherType == etherIPv6 && len(b) >= ipv6Len && b[0]>>4 == 6:
		p.length, p.proto = binary.BigEndian.Uint16(b[4:]), b[6]
		p.claimed = int(p.length)
		if p.length == 0 && p.proto != protoNone {
			p.claimed = len(b) - ipv6Len + missing
		}
		p.rest = b[ipv6Len:min(len(b), ipv6Len+p.claimed)]
		p.skipHopByHop()
		p.fixed = append(i.scratch[:0], b[8:40]...)
		p.fixed = append(p.fixed, p.proto, 0, b[1]&0x0f, b[2], b[3]) // flow label
		return p, true
	}
	return p, false
}

// skipHopByHop removes the options that devices on the way process (RFC 8200, section 4.3), and may change,
// like those of IPv4.
func (p *parts) skipHopByHop() {
	if p.proto != protoHopByHop || len(p.rest) < 2 {
		return
	}
	if n := (int(p.rest[1]) + 1) * 8; n <= len(p.rest) {
		p.proto, p.rest, p.claimed = p.rest[0], p.rest[n:], p.claimed-n
	}
}

// firstFragment reports whether the packet is the first fragment of an IPv4 packet.
func firstFragment(etherType uint16, packet []byte) bool {
	return etherType == etherIPv4 && len(packet) >= ipv4Len && binary.BigEndian.Uint16(packet[6:])&(moreFragments|fragmentOffset) == moreFragments
}

// head returns the bytes behind the IP header that survive trimming, without lengths and checksums: ports and sequence
// numbers of TCP, or the first bytes of the UDP payload, in which RoCEv2 has its
// sequence number.
func head(p parts) []byte {
	switch {
	case p.proto == protoTCP:
		return p.rest[:min(len(p.rest), 12)]
	case p.proto == protoUDP && len(p.rest) > udpLen:
		return p.rest[udpLen:min(len(p.rest), udpLen+12)]
	}
	return p.rest[:min(len(p.rest), 8)]
}

// ports returns the two ports of a transport that has them at its start.
func ports(p parts) []byte {
	switch p.proto {
	case protoTCP, protoUDP, protoDCCP, protoSCTP, protoUDPLite:
		if len(p.rest) >= 4 {
			return p.rest[:4]
		}
	}
	return nil
}

// innermost returns the parts of a packet from its innermost TCP or UDP header on. Fragments have none
// that can be read: they are returned as they are.
func innermost(p parts, inner *decode.Transport) (in parts, ok bool) {
	if inner.Header == nil {
		return p, false
	}
	return parts{proto: inner.Proto, rest: inner.Header, claimed: inner.Left}, true
}

// transportPayload returns the payload of TCP and UDP.
func transportPayload(p parts) []byte {
	n := udpLen
	switch {
	case p.proto == protoTCP && len(p.rest) > 12:
		n = int(p.rest[12]>>4) * 4
	case p.proto != protoUDP:
		return nil
	}
	return p.rest[min(n, len(p.rest)):]
}

func (i *identifier) limit(b []byte) []byte {
	if i.prefix > 0 && len(b) > i.prefix {
		return b[:i.prefix]
	}
	return b
}

// hash is never 0.
func (i *identifier) hash(b []byte) uint64 {
	if i.seed != nil {
		return max(maphash.Bytes(*i.seed, b), 1)
	}
	i.keyed.ResetWithSeed(i.key)
	_, _ = i.keyed.Write(b) // never fails
	return max(i.keyed.Sum64(), 1)
}

func newSeed() *maphash.Seed {
	seed := maphash.MakeSeed()
	return &seed
}

// mix combines two hashes; their order matters.
func (i *identifier) mix(a, b uint64) uint64 {
	var both [16]byte
	binary.LittleEndian.PutUint64(both[:], a)
	binary.LittleEndian.PutUint64(both[8:], b)
	return i.hash(both[:])
}

// index finds packets by their hash: open addressing with linear probing, at most half full. A slot
// holds some bits of the hash, so that mostly only the wanted packet is read. Packets leave a
// device in about the order in which they entered, so they are next to each other in memory, while
// an index is never in the cache.
type index struct {
	slots []slot
	used  int
}

// slot is empty where the packet is 0.
type slot struct {
	bits   uint32 // of the hash
	packet int32  // plus 1
}

const minSlots = 1 << 10

// reset empties the index and makes room for that many packets.
func (x *index) reset(packets int) {
	size := minSlots
	for size < 2*packets {
		size *= 2
	}
	if x.used = 0; len(x.slots) >= size {
		clear(x.slots)
		return
	}
	x.slots = make([]slot, size)
}

// start returns the first slot for a hash.
func (x *index) start(hash uint64) int { return int(hash & uint64(len(x.slots)-1)) }

// after returns the next slot of a probe.
func (x *index) after(at int) int { return (at + 1) & (len(x.slots) - 1) }

// get returns the packet in a slot, none for an empty one, and whether it may have the hash.
func (x *index) get(at int, hash uint64) (packet int32, probable bool) {
	s := &x.slots[at]
	return s.packet - 1, s.bits == uint32(hash>>32)
}

// add inserts a packet that is not in the index yet.
func (x *index) add(hash uint64, packet int32) {
	at := x.start(hash)
	for x.slots[at].packet != 0 {
		at = x.after(at)
	}
	x.slots[at] = slot{uint32(hash >> 32), packet + 1}
	x.used++
}

// Scan reads captures before they are judged, to count their packets and find out how far they are
// truncated and whether switches trimmed packets. It is not safe for concurrent use.
type Scan struct {
	decoder *decode.Decoder
	result  decode.Result
	id      identifier
	n       int
	cut     uint64
	least   int // bytes behind the IP header of the shortest truncated packet
	trimmed bool
}

// newDecoder makes a decoder that keeps the innermost headers of frames.
func newDecoder(cfg *Config) (*decode.Decoder, error) {
	c := cfg.Decode
	c.Segments = true
	return decode.New(c)
}

// NewScan makes a Scan for a Judge's configuration. It fails if decode.New does.
func NewScan(cfg *Config) (*Scan, error) {
	d, err := newDecoder(cfg)
	if err != nil {
		return nil, fmt.Errorf("make scan: %w", err)
	}
	s := &Scan{decoder: d, id: identifier{seed: newSeed(), match: cfg.Match}}
	s.result.Obs = make([]decode.Observation, decode.MaxObservations)
	return s, nil
}

// Add counts a packet of either side. One that claims more bytes than it had on the wire is
// malformed, not truncated.
func (s *Scan) Add(p *Packet) {
	s.n++
	payload := s.id.match == MatchPayload
	if payload || !s.trimmed {
		s.decoder.Decode(p.Data, &s.result)
		s.trimmed = s.trimmed || slices.ContainsFunc(s.result.Obs[:s.result.N], func(o decode.Observation) bool { return o.Tag.D })
	}
	etherType, packet, ok := s.decoder.Network(decode.Ethernet, p.Data)
	missing := int(p.WireLen) - len(p.Data)
	if !ok || missing <= 0 {
		return
	}
	parts, ok := s.id.split(etherType, packet, missing)
	var cut bool // before the innermost header is complete
	if inner, found := s.decoder.Transport(); payload && found {
		parts, ok = innermost(parts, &inner)
		cut = s.result.Reason.Cut()
	}
	switch {
	case cut || etherType == etherIPv4 && len(packet) < ipv4Len || etherType == etherIPv6 && len(packet) < ipv6Len:
		s.addCut(0)
	case !ok || len(parts.rest) >= parts.claimed:
	case !payload:
		s.addCut(len(parts.rest))
	case parts.proto == protoTCP || parts.proto == protoUDP:
		s.addCut(len(transportPayload(parts)))
	}
}

// addCut counts a truncated packet with n bytes behind its IP header, or in its payload.
func (s *Scan) addCut(n int) {
	if s.cut++; s.cut == 1 || n < s.least {
		s.least = n
	}
}

// Packets returns the number of packets added.
func (s *Scan) Packets() int { return s.n }

// Untrimmed reports that no tag has D: use it as Config.Untrimmed.
func (s *Scan) Untrimmed() bool { return !s.trimmed }

// Cut returns the number of truncated packets, and the fewest bytes that any of them has behind its
// IP header (or in its payload). If it is above 0, use it as Config.Prefix.
func (s *Scan) Cut() (packets uint64, prefix int) { return s.cut, s.least }
