package capture

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"unicode"
)

// Block types of draft-ietf-opsawg-pcapng. The section header's type is the same in both byte
// orders.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockOldPacket = 2
	blockSimple    = 3
	blockEnhanced  = 6
	lastBlock      = 10 // of the standard types, but for section headers and custom blocks

	byteOrderMagic = 0x1a2b3c4d
)

// Lengths in bytes: of a block without body, of the length field that ends every block, and the
// minimum of each block type.
const (
	minBlock     = 12
	blockTrailer = 4
	minSection   = 28
	minInterface = 20
	minEnhanced  = 32
	minSimple    = 16
	packetHeader = 28 // enhanced and obsolete packet block, before the data
	simpleHeader = 12
)

// blocks is the state of a pcapng stream. The parser appends interfaces as it meets their blocks;
// their numbers continue across sections.
type blocks struct {
	swapped    bool // the section is big-endian
	opts       Options
	interfaces []Interface
	clocks     []clock // parallel to interfaces: their timestamp conversions
	first      int     // index of the section's interface 0
	sections   uint32  // begun so far
	unsure     bool    // an interface of the section may be lost in damage, so later ones have no number
	scan       bool    // read sections and interfaces alone
	skipped    uint64
	saturated  uint64
}

func newBlocks(opts Options) blocks { return blocks{opts: opts} }

// byteOrder parses the byte-order magic at p; swapped means big-endian.
func byteOrder(p []byte) (swapped, ok bool) {
	switch binary.LittleEndian.Uint32(p) {
	case byteOrderMagic:
		return false, true
	case bits.ReverseBytes32(byteOrderMagic):
		return true, true
	}
	return false, false
}

// damaged prepares the state to resume behind unreadable blocks; p is the beginning of the first
// one. If that is a section header, no interface of the section is known.
func (s *blocks) damaged(p []byte) {
	s.unsure = true
	if len(p) >= minBlock && isSection(p) {
		s.first = len(s.interfaces)
	}
}

func (s *blocks) u32(p []byte) uint32 {
	v := binary.LittleEndian.Uint32(p)
	if s.swapped {
		v = bits.ReverseBytes32(v)
	}
	return v
}

func (s *blocks) u16(p []byte) uint16 {
	v := binary.LittleEndian.Uint16(p)
	if s.swapped {
		v = bits.ReverseBytes16(v)
	}
	return v
}

// parse appends the packets of complete blocks in p to b. off is the file offset of p, count the
// number of packets before it.
func (s *blocks) parse(b *Batch, p []byte, off int64, count uint64) progress {
	pos := 0
	for {
		pos += s.plain(b, p[pos:], off+int64(pos), count)
		if b.N == BatchSize {
			return progress{used: pos}
		}
		rest := p[pos:]
		if len(rest) < minBlock {
			return progress{used: pos, need: minBlock, what: "block header"}
		}
		kind, total, bad := s.header(rest)
		if bad != "" {
			return progress{used: pos, fail: malformed(bad)}
		}
		least, held := s.shape(kind)
		switch {
		case total < int64(least):
			return progress{used: pos, fail: malformed(fmt.Sprintf("block of type %#x is %d bytes long, it needs at least %d", kind, total, least))}
		case held && total > int64(s.opts.maxRecord()):
			return progress{used: pos, fail: s.tooLong(kind, total)}
		case !held && total > int64(len(rest)):
			if b.N > 0 || len(rest) < least {
				return progress{used: pos, need: least, what: "block header"}
			}
			return progress{used: pos, skip: total}
		case total > int64(len(rest)):
			return progress{used: pos, need: int(total), what: "block"}
		}
		block := rest[:total]
		if bad = s.checkTrailer(block[total-blockTrailer:], total); bad != "" {
			return progress{used: pos, fail: malformed(bad)}
		}
		before := b.N
		if fail := s.block(kind, block, b); fail != nil {
			return progress{used: pos, fail: fail}
		}
		if b.N > before {
			f := &b.Frames[before]
			f.Packet = count + uint64(b.N)
			f.Offset = off + int64(pos)
		}
		pos += int(total)
	}
}

// plain reads the enhanced packet blocks at the beginning of p, up to the first unusual one, and
// returns their length. Files consist mostly of these, so one loop does all tests of a block at
// once; parse then finds the reason why a block is unusual.
func (s *blocks) plain(b *Batch, p []byte, off int64, count uint64) (used int) {
	if s.swapped {
		return 0
	}
	clocks := s.clocks[s.first:]
	maxFrame, maxRecord := int64(s.opts.MaxFrame), int64(s.opts.maxRecord())
	for b.N < BatchSize {
		rest := p[used:]
		if len(rest) < minEnhanced || binary.LittleEndian.Uint32(rest) != blockEnhanced {
			break
		}
		total, caplen := int64(binary.LittleEndian.Uint32(rest[4:])), int64(binary.LittleEndian.Uint32(rest[20:]))
		id := int64(binary.LittleEndian.Uint32(rest[8:]))
		if caplen > maxFrame || total > maxRecord || total < packetHeader+caplen+blockTrailer || total%4 != 0 ||
			total > int64(len(rest)) || int64(binary.LittleEndian.Uint32(rest[total-blockTrailer:])) != total || id >= int64(len(clocks)) {
			break
		}
		if s.scan {
			used += int(total)
			continue
		}
		f := &b.Frames[b.N]
		f.Data = rest[packetHeader : packetHeader+caplen]
		ticks := uint64(binary.LittleEndian.Uint32(rest[12:]))<<32 | uint64(binary.LittleEndian.Uint32(rest[16:]))
		ns, saturated := clocks[id].nanos(ticks)
		if saturated {
			s.saturated++
		}
		f.TimeNS = ns
		f.WireLen = binary.LittleEndian.Uint32(rest[24:])
		f.Interface = uint32(s.first) + uint32(id)
		f.NoTime = false
		b.N++
		f.Packet = count + uint64(b.N)
		f.Offset = off + int64(used)
		used += int(total)
	}
	return used
}

// header parses the type and total length at the start of every block. A section header determines
// the byte order of its own length.
func (s *blocks) header(p []byte) (kind uint32, total int64, bad string) {
	if isSection(p) {
		swapped, ok := byteOrder(p[8:])
		if !ok {
			return 0, 0, fmt.Sprintf("section header with byte-order magic % 02x, expected 1a 2b 3c 4d or its reverse", p[8:12])
		}
		s.swapped = swapped
	}
	kind, total = s.u32(p), int64(s.u32(p[4:]))
	if total < minBlock || total%4 != 0 {
		return 0, 0, fmt.Sprintf("block of type %#x has length %d, expected a multiple of 4 from %d on", kind, total, minBlock)
	}
	return kind, total, ""
}

// shape returns the minimum length of a block, and whether the block must be in memory completely;
// all other blocks may have any length.
func (s *blocks) shape(kind uint32) (least int, held bool) {
	switch kind {
	case blockEnhanced, blockOldPacket:
		return minEnhanced, true
	case blockSimple:
		return minSimple, true
	case blockInterface:
		return minInterface, true
	case blockSection:
		return minSection, false
	}
	return minBlock, false
}

func (s *blocks) checkTrailer(p []byte, total int64) string {
	if got := s.u32(p); int64(got) != total {
		return fmt.Sprintf("block of %d bytes ends with length %d, expected the same", total, got)
	}
	return ""
}

// tooLong returns the failure for a block that must be held in memory but is too large.
func (s *blocks) tooLong(kind uint32, total int64) *failure {
	what := "packet block length"
	if kind == blockInterface {
		what = "interface block length"
	}
	return &failure{what: what, size: total, max: int64(s.opts.maxRecord()), option: optionMaxFrame}
}

// block interprets one whole block and appends at most one frame.
func (s *blocks) block(kind uint32, p []byte, b *Batch) *failure {
	if s.scan && isPacket(kind) {
		return nil
	}
	switch kind {
	case blockEnhanced:
		return s.packet(p, int64(s.u32(p[8:])), b)
	case blockOldPacket:
		return s.packet(p, int64(s.u16(p[8:])), b)
	case blockSimple:
		return s.simple(p, b)
	case blockInterface:
		return s.iface(p)
	}
	if bad := s.skip(p); bad != "" {
		return malformed(bad)
	}
	return nil
}

// skip counts a block without a packet, whose first bytes are in memory. A section header starts a
// new section. The section's length is not needed, since blocks follow each other in any case.
func (s *blocks) skip(p []byte) string {
	if isSection(p) {
		s.first = len(s.interfaces)
		s.sections++
		s.unsure = false
		if major := s.u16(p[12:]); major != 1 {
			return fmt.Sprintf("section of pcapng version %d.%d, only 1.x is read", major, s.u16(p[14:]))
		}
	}
	s.skipped++
	return ""
}

// isSection reports whether a section header starts at p.
func isSection(p []byte) bool { return binary.LittleEndian.Uint32(p) == blockSection }

// isPacket reports whether blocks of a type hold a packet.
func isPacket(kind uint32) bool {
	return kind == blockEnhanced || kind == blockOldPacket || kind == blockSimple
}

// packet reads an enhanced or obsolete packet block, which differ only in the
// width of the interface id.
func (s *blocks) packet(p []byte, id int64, b *Batch) *failure {
	known := len(s.interfaces) - s.first
	if id >= int64(known) {
		return malformed(fmt.Sprintf("packet of interface %d, the section has described %d", id, known))
	}
	caplen := int64(s.u32(p[20:]))
	if fail := s.checkData(p, caplen, packetHeader); fail != nil {
		return fail
	}
	index := s.first + int(id)
	ticks := uint64(s.u32(p[12:]))<<32 | uint64(s.u32(p[16:]))
	ns, saturated := s.clocks[index].nanos(ticks)
	if saturated {
		s.saturated++
	}
	f := &b.Frames[b.N]
	f.Data = p[packetHeader : packetHeader+caplen]
	f.TimeNS = ns
	f.WireLen = s.u32(p[24:])
	f.Interface = uint32(index)
	f.NoTime = false
	b.N++
	return nil
}

// simple parses a simple packet block: interface 0, no time, and a captured length that follows
// from the snapshot length.
func (s *blocks) simple(p []byte, b *Batch) *failure {
	if s.first >= len(s.interfaces) {
		return malformed("simple packet before the first interface of its section")
	}
	wire := s.u32(p[8:])
	caplen := int64(wire)
	if snap := s.interfaces[s.first].SnapLen; snap != 0 {
		caplen = min(caplen, int64(snap))
	}
	if fail := s.checkData(p, caplen, simpleHeader); fail != nil {
		return fail
	}
	f := &b.Frames[b.N]
	f.Data = p[simpleHeader : simpleHeader+caplen]
	f.TimeNS = 0
	f.WireLen = wire
	f.Interface = uint32(s.first)
	f.NoTime = true
	b.N++
	return nil
}

// checkData checks a captured length against the limit and against the block, whose data starts at
// from.
func (s *blocks) checkData(p []byte, caplen int64, from int) *failure {
	if caplen > int64(s.opts.MaxFrame) {
		return tooLarge(caplen, int64(s.opts.MaxFrame))
	}
	if room := int64(len(p) - from - blockTrailer); caplen > room {
		return malformed(fmt.Sprintf("packet of %d captured bytes in a block with room for %d", caplen, room))
	}
	return nil
}

// Relevant options of an interface description block.
const (
	optEnd         = 0
	optName        = 2
	optDescription = 3
	optResolution  = 9
	optOffset      = 14

	interfaceHeader = 16
	// microsecondTicks is the default of if_tsresol.
	microsecondTicks = 6
	// maxText is the maximum stored length of a name or description in bytes, so that the maximum
	// number of interfaces takes a few tens of MiB at most.
	maxText = 256
)

// iface reads an interface description block.
func (s *blocks) iface(p []byte) *failure {
	if s.unsure {
		// It may belong to a section that begins in the damage. No packet from here on is
		// then of a known interface.
		s.first = len(s.interfaces)
		return malformed("interface behind damage in which others may be described: its number is not known")
	}
	if len(s.interfaces) >= s.opts.MaxInterfaces {
		return &failure{
			what: "number of interfaces", size: int64(len(s.interfaces)) + 1,
			max: int64(s.opts.MaxInterfaces), option: "Options.MaxInterfaces",
		}
	}
	in := Interface{Section: s.sections - 1, Link: LinkType(s.u16(p[8:])), SnapLen: s.u32(p[12:])}
	resol := byte(microsecondTicks)
	for o := p[interfaceHeader : len(p)-blockTrailer]; len(o) >= 4; {
		code, size := s.u16(o), int(s.u16(o[2:]))
		if code == optEnd {
			break
		}
		padded := (size + 3) &^ 3
		if padded > len(o)-4 {
			return malformed(fmt.Sprintf("option %d of an interface is %d bytes long, its block has %d left", code, size, len(o)-4))
		}
		if bad := s.ifaceOption(&in, &resol, code, o[4:4+size]); bad != "" {
			return malformed(bad)
		}
		o = o[4+padded:]
	}
	c := newClock(resol, in.OffsetSeconds)
	in.NanosPerTick = c.nanosPerTick()
	s.interfaces = append(s.interfaces, in)
	s.clocks = append(s.clocks, c)
	return nil
}

// ifaceOption stores one option. Wrong times are worse than none, so a malformed option that
// affects times is an error.
func (s *blocks) ifaceOption(in *Interface, resol *byte, code uint16, v []byte) string {
	switch code {
	case optName:
		in.Name = name(v)
	case optDescription:
		in.Description = text(v)
	case optResolution:
		if len(v) != 1 {
			return fmt.Sprintf("if_tsresol of an interface is %d bytes long, expected 1", len(v))
		}
		*resol = v[0]
	case optOffset:
		if len(v) != 8 {
			return fmt.Sprintf("if_tsoffset of an interface is %d bytes long, expected 8", len(v))
		}
		hi, lo := s.u32(v), s.u32(v[4:])
		if !s.swapped {
			hi, lo = lo, hi
		}
		in.OffsetSeconds = int64(uint64(hi)<<32 | uint64(lo))
	}
	return ""
}

// text copies an option's string from the read buffer, truncated and made valid UTF-8 so that it
// can be printed. Some writers end it with a zero byte.
func text(v []byte) string {
	t := string(v[:min(len(v), maxText)])
	if i := strings.IndexByte(t, 0); i >= 0 {
		t = t[:i]
	}
	return strings.ToValidUTF8(t, "")
}

// name is text for the name of a tap, which terminals and tables show: characters that cannot be
// printed, such as ends of lines and escape sequences, become spaces.
func name(v []byte) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text(v)))
}

// clock converts the ticks of one pcapng interface to Unix ns without rounding twice: ns = (ticks *
// mul >> shift) / div + offset.
type clock struct {
	mul      uint64
	div      uint64
	shift    uint  // 0 to 127
	offset   int64 // if_tsoffset, seconds
	straight bool  // only mul matters, as for all resolutions in use
}

// newClock returns the clock for an if_tsresol byte (draft-ietf-opsawg-pcapng section 4.2): the top
// bit selects powers of 2 instead of powers of 10.
func newClock(resol byte, offset int64) clock {
	c := clock{mul: 1e9, div: 1, offset: offset}
	exp := uint(resol & 0x7f)
	switch {
	case resol&0x80 != 0:
		c.shift = exp
	case exp <= 9:
		c.mul = uint64(math.Pow10(int(9 - exp)))
	case exp-9 <= 19:
		c.mul, c.div = 1, uint64(math.Pow10(int(exp-9)))
	default: // no 64-bit count reaches one ns
		c.mul = 0
	}
	c.straight = c.shift == 0 && c.div == 1 && offset == 0
	return c
}

// nanosPerTick returns the resolution; times are not computed from it.
func (c clock) nanosPerTick() float64 {
	return math.Ldexp(float64(c.mul)/float64(c.div), -int(c.shift))
}

// nanos converts ticks. It returns true if the result was saturated.
func (c *clock) nanos(ticks uint64) (int64, bool) {
	hi, lo := bits.Mul64(ticks, c.mul)
	if c.straight && hi == 0 && lo <= math.MaxInt64 {
		return int64(lo), false
	}
	return c.reduce(hi, lo)
}

// reduce completes the conversion of the 128-bit product hi:lo.
func (c *clock) reduce(hi, lo uint64) (int64, bool) {
	// In Go a shift by 64 or more gives 0, which is correct here.
	lo = lo>>c.shift | hi<<(64-c.shift)
	if c.shift >= 64 {
		lo = hi >> (c.shift - 64)
	}
	hi >>= c.shift
	if c.div > 1 { // mul is 1 and hi is 0 here
		lo /= c.div
	}
	return addSeconds(hi, lo, c.offset)
}

// addSeconds returns hi:lo ns plus s seconds, saturated at the range of int64.
func addSeconds(hi, lo uint64, s int64) (int64, bool) {
	abs := uint64(s)
	if s < 0 {
		abs = -abs
	}
	oh, ol := bits.Mul64(abs, 1e9)
	if s < 0 {
		var borrow uint64
		lo, borrow = bits.Sub64(lo, ol, 0)
		hi, _ = bits.Sub64(hi, oh, borrow)
	} else {
		var carry uint64
		lo, carry = bits.Add64(lo, ol, 0)
		hi, _ = bits.Add64(hi, oh, carry)
	}
	// hi:lo is below 2^94 in magnitude, so its sign bit is valid.
	switch {
	case int64(hi) < 0 && (hi != math.MaxUint64 || int64(lo) >= 0):
		return math.MinInt64, true
	case int64(hi) >= 0 && (hi != 0 || int64(lo) < 0):
		return math.MaxInt64, true
	}
	return int64(lo), false
}
