package conform

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Packet is one captured frame. Data belongs to the caller and is not kept.
type Packet struct {
	Data    []byte
	Number  uint64 // in its file, from 1
	File    int    // index into Config.Files
	TimeNS  int64  // Unix ns; needed for Metrics alone
	WireLen uint32 // bytes
}

// Judge takes the packets before and after a device and reports the rules that the device breaks.
// It is not safe for concurrent use.
//
// To bound memory, captures are judged in parts. The caller passes the whole captures once for each
// part, and the Judge keeps the packets whose hash belongs to the part, so matching packets are always
// in the same one:
//
//	for part := range parts {
//		judge.StartPart(part, parts)
//		... all of Before, then all of After, of whole captures ...
//		judge.EndPart()
//	}
//	report := judge.Report()
type Judge struct {
	cfg     Config
	domain  *csig.Domain
	decoder *decode.Decoder
	result  decode.Result
	id      identifier

	part, parts uint64
	came        uint32 // packets before the device so far, in this pass over them
	wait        waiting
	counts      Counts
	breaches    [NumRules]breach
	locators    map[writer]*written
	writers     writers
	stripping   []stripping // by port
	losses      losses
	paths       paths
}

// tagState is the CSIG tag of a frame.
type tagState struct {
	csig.Tag
	tagged  bool
	orphan  bool // a tag is where none belongs
	strange bool // something as long as a tag is there, with an unknown TPID
}

// sighting is a packet on one side of the device.
type sighting struct {
	tagState
	identity
	place  uint64 // its file, and its number there
	time   int64
	length uint32 // bytes behind the IP header, or of the payload
	port   uint8  // after the device
	first  bool   // it is a first fragment
	by     uint16 // after the device; the tag's possible writers: an index into Judge.writers.lists
}

// numberBits is the length of a packet's number in a sighting's place.
const numberBits = 40

func (s *sighting) number() uint64 { return s.place & (1<<numberBits - 1) }

func (s *sighting) file() int { return int(s.place >> numberBits) }

// New makes a Judge. It fails when the configuration contradicts itself.
func New(cfg Config) (*Judge, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("make judge: %w", err)
	}
	d, err := newDecoder(&cfg)
	if err != nil {
		return nil, fmt.Errorf("make judge: %w", err)
	}
	cfg.MaxPackets = cmp.Or(cfg.MaxPackets, DefaultMaxPackets)
	j := &Judge{
		cfg: cfg, domain: cfg.Decode.Domain, decoder: d, parts: 1,
		id:       identifier{seed: newSeed(), match: cfg.Match, prefix: cfg.Prefix},
		locators: make(map[writer]*written), stripping: make([]stripping, len(cfg.Ports)),
	}
	j.result.Obs = make([]decode.Observation, decode.MaxObservations)
	j.paths.flows, j.losses.of = make(map[uint64]*flowPaths), make(map[stratum]*crossing)
	j.writers = writers{lists: []string{""}, of: make(map[tagOnWay]uint16)}
	return j, nil
}

// StartPart begins part number part, from 0, of parts.
func (j *Judge) StartPart(part, parts int) {
	j.part, j.parts, j.came = uint64(part), uint64(max(parts, 1)), 0
	j.wait.reset(min(j.cfg.Expect, j.cfg.MaxPackets))
}

// Before takes a packet that entered the device. Its only error is ErrTooMany.
func (j *Judge) Before(p *Packet) error {
	if j.came < math.MaxUint32 { // all further ones have one place in the order
		j.came++
	}
	s, ok := j.see(p)
	if !ok {
		return nil
	}
	j.counts.Before++
	if s.tagged {
		j.counts.BeforeTagged++
	}
	if len(j.wait.list) >= j.cfg.MaxPackets {
		return ErrTooMany
	}
	j.wait.add(&s)
	j.wait.list[len(j.wait.list)-1].order = j.came
	return nil
}

// After takes a packet that left by a port, an index into Config.Ports. All calls of Before come
// first.
func (j *Judge) After(port int, p *Packet) {
	s, ok := j.see(p)
	if s.first { // of a packet in any part
		j.wait.addFragment(s.head, j.cfg.MaxPackets)
	}
	if !ok {
		return
	}
	s.port = uint8(port)
	if s.tagged && j.cfg.Writers != nil {
		s.by = j.writersOf(&s)
	}
	j.counts.After++
	if s.tagged {
		j.counts.AfterTagged++
	}
	chain := j.wait.find(s.whole)
	switch {
	case chain == none:
		j.unmatched(&s)
	case j.wait.alike(chain):
		j.match(chain, &s)
	case len(j.wait.later) < j.cfg.MaxPackets:
		j.wait.later = append(j.wait.later, s)
	default:
		j.counts.Forgotten++
	}
}

// see returns the packet's tag and identity. ok is false if it has no identity or belongs to another
// part.
func (j *Judge) see(p *Packet) (s sighting, ok bool) {
	etherType, packet, ok := j.decoder.Network(decode.Ethernet, p.Data)
	if ok && etherType != etherIPv4 && etherType != etherIPv6 {
		etherType, packet, s.strange = behindUnknown(etherType, packet)
	}
	if ok {
		j.decoder.Decode(p.Data, &j.result)
		inner, _ := j.decoder.Transport()
		var length int
		s.identity, length, ok = j.id.of(etherType, packet, max(int(p.WireLen)-len(p.Data), 0), &inner)
		s.length, s.first = uint32(length), firstFragment(etherType, packet)
	}
	if !ok {
		if j.part == 0 {
			j.counts.Unknown++
		}
		return s, false
	}
	by := s.whole // varies more
	if !j.cfg.Untrimmed {
		by = s.head
	}
	if by%j.parts != j.part {
		return s, false
	}
	s.place, s.time = uint64(p.File)<<numberBits|p.Number, p.TimeNS
	if j.closedTunnel(packet) {
		s.flow = 0
	}
	for i := range j.result.Obs[:j.result.N] {
		switch o := &j.result.Obs[i]; {
		case o.Kind != decode.Tag:
		case o.Flags&decode.Orphan != 0:
			s.orphan = true
		default:
			s.tagged, s.Tag = true, o.Tag
		}
	}
	return s, true
}

// closedTunnel reports whether the last decoded packet is a tunnel without TCP or UDP that can be read.
func (j *Judge) closedTunnel(packet []byte) bool {
	isTunnel := func(l decode.Layer) bool { return l.Encap > decode.MPLS }
	if !slices.ContainsFunc(j.result.Encap.Layers(), isTunnel) {
		return false
	}
	inner, ok := j.decoder.Transport()
	return !ok || &inner.IP[0] == &packet[0]
}

// behindUnknown returns the IP packet two or six bytes after an unknown EtherType, as behind a tag
// whose TPID is broken or not configured. Otherwise it returns the packet unchanged.
func behindUnknown(etherType uint16, packet []byte) (uint16, []byte, bool) {
	for _, n := range [...]int{2, 6} {
		if len(packet) < n+2 {
			break
		}
		next := uint16(packet[n])<<8 | uint16(packet[n+1])
		if next == etherIPv4 || next == etherIPv6 {
			return next, packet[n+2:], true
		}
	}
	return etherType, packet, false
}

// match judges a packet with the first one of a chain that waits for it.
func (j *Judge) match(chain int32, after *sighting) {
	before, more := j.wait.take(chain)
	if more {
		j.counts.Matched++
	} else {
		j.counts.Copies++ // the device sent it more often than it came in
	}
	if after.trimmedFrom(&before.sighting) {
		j.counts.Trimmed++
	}
	j.pair(before, after)
}

// trimmedFrom reports whether the packet lost its end. Captures that end before the end that it lost
// have equal bytes of both packets.
func (s *sighting) trimmedFrom(before *sighting) bool {
	return s.whole != before.whole || s.length < before.length
}

// unmatched keeps a packet that equals none before the device.
func (j *Judge) unmatched(s *sighting) {
	if s.D && len(j.wait.trimmed) < j.cfg.MaxPackets {
		j.wait.trimmed = append(j.wait.trimmed, *s)
		return
	}
	j.counts.Extra++
}

// EndPart judges the packets that could not be judged one by one.
func (j *Judge) EndPart() {
	j.judgeLater()
	j.judgeTrimmed()
	for i := range j.wait.list {
		w := &j.wait.list[i]
		j.losses.add(w, j.wait.fragmented(w.head))
	}
}

// judgeLater matches equal packets with different tags: in their order, where none of them is
// missing.
func (j *Judge) judgeLater() {
	groups := make(map[int32][]int)
	for i := range j.wait.later {
		chain := j.wait.find(j.wait.later[i].whole)
		groups[chain] = append(groups[chain], i)
	}
	for _, chain := range slices.Sorted(maps.Keys(groups)) {
		after := groups[chain]
		if before := j.wait.count(chain); before != len(after) || !j.onePort(after) {
			j.counts.Ambiguous += uint64(min(before, len(after)))
			for at := chain; at != none; at = j.wait.list[at].next {
				j.wait.list[at].taken = true
			}
			continue
		}
		for _, i := range after {
			j.match(chain, &j.wait.later[i])
		}
	}
}

func (j *Judge) onePort(list []int) bool {
	return !slices.ContainsFunc(list, func(i int) bool { return j.wait.later[i].port != j.wait.later[list[0]].port })
}

// judgeTrimmed matches packets that lost their end with longer ones.
func (j *Judge) judgeTrimmed() {
	if len(j.wait.trimmed) == 0 {
		return
	}
	heads := make(map[uint64]int32)
	for i := range j.wait.list {
		if p := &j.wait.list[i]; !p.taken {
			if _, twice := heads[p.head]; twice {
				heads[p.head] = none
				continue
			}
			heads[p.head] = int32(i)
		}
	}
	for i := range j.wait.trimmed {
		s := &j.wait.trimmed[i]
		at, ok := heads[s.head]
		switch {
		case !ok || at == none || j.wait.list[at].taken || j.wait.list[at].length <= s.length:
			j.counts.Extra++ // no packet can be the original, or several can
		default:
			j.wait.list[at].taken = true
			j.counts.Matched++
			j.counts.Trimmed++
			j.pair(&j.wait.list[at], s)
		}
	}
}

// stripping counts the tagged packets whose tags a port kept and removed.
type stripping struct {
	kept, removed       uint64
	firstKept, firstOff Example
}

func (s *stripping) add(before, after *sighting) {
	if after.tagged {
		s.kept++
		s.firstKept = first(s.kept, s.firstKept, before, after)
		return
	}
	s.removed++
	s.firstOff = first(s.removed, s.firstOff, before, after)
}

// judgeStripping judges each port: a port strips all tags or none.
func (j *Judge) judgeStripping() {
	for i := range j.stripping {
		s := &j.stripping[i]
		switch {
		case j.cfg.Strip == StripAlways:
			j.brokeOften(NotStripped, s.kept, s.firstKept)
		case s.removed == 0:
		case s.kept == 0 && j.cfg.Strip == StripUnknown:
			j.brokeOften(Stripped, s.removed, s.firstOff)
		case s.kept == 0 || s.kept >= s.removed:
			j.brokeOften(StrippedPartly, s.removed, s.firstOff)
		default:
			j.brokeOften(StrippedPartly, s.kept, s.firstKept)
		}
	}
}
