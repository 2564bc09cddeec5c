package capture

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Block types of draft-ietf-opsawg-pcapng. The section header's type reads the
// same in both byte orders.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockOldPacket = 2
	blockSimple    = 3
	blockEnhanced  = 6

	byteOrderMagic = 0x1a2b3c4d
)

// Lengths in bytes: of a block without body, of the length that ends every
// block, and the least that blocks of each type hold.
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

// blocks is the state of a pcapng stream. Its parser appends interfaces as
// their blocks come by; they are numbered through all sections.
type blocks struct {
	swapped    bool // the section's byte order is big endian
	opts       Options
	interfaces []Interface
	clocks     []clock // parallel to interfaces: what a packet needs of them
	first      int     // index of the section's interface 0
	skipped    uint64
	saturated  uint64
}

func newBlocks(opts Options) blocks { return blocks{opts: opts} }

// byteOrder reads the byte-order magic at p; swapped says big endian.
func byteOrder(p []byte) (swapped, ok bool) {
	switch binary.LittleEndian.Uint32(p) {
	case byteOrderMagic:
		return false, true
	case bits.ReverseBytes32(byteOrderMagic):
		return true, true
	}
	return false, false
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

// parse appends the packets of the whole blocks of p to b. off is the file
// offset of p, count the number of packets before it.
func (s *blocks) parse(b *Batch, p []byte, off int64, count uint64) progress {
	pos := 0
	for b.N < BatchSize {
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
			if bad = s.section(kind, rest); bad != "" {
				return progress{used: pos, fail: malformed(bad)}
			}
			s.skipped++
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
	return progress{used: pos}
}

// header reads the type and total length that start every block. A section
// header decides the byte order of its own length.
func (s *blocks) header(p []byte) (kind uint32, total int64, bad string) {
	if binary.LittleEndian.Uint32(p) == blockSection {
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

// shape returns the least length of a block and whether the block has to be in
// memory as a whole; all others may be of any length.
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

// tooLong describes a block that has to be held in memory and is too large.
func (s *blocks) tooLong(kind uint32, total int64) *failure {
	what := "packet block length"
	if kind == blockInterface {
		what = "interface block length"
	}
	return &failure{what: what, size: total, max: int64(s.opts.maxRecord()), option: optionMaxFrame}
}

// block interprets one whole block and appends at most one frame.
func (s *blocks) block(kind uint32, p []byte, b *Batch) *failure {
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
	if bad := s.section(kind, p); bad != "" {
		return malformed(bad)
	}
	s.skipped++
	return nil
}

// section starts a new section where the block is a section header. Its
// section length is not needed: blocks follow each other in any case.
func (s *blocks) section(kind uint32, p []byte) string {
	if kind != blockSection {
		return ""
	}
	if major := s.u16(p[12:]); major != 1 {
		return fmt.Sprintf("section of pcapng version %d.%d, only 1.x is read", major, s.u16(p[14:]))
	}
	s.first = len(s.interfaces)
	return ""
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
	f.Data = p[packetHeader : packetHeader+caplen : packetHeader+caplen]
	f.TimeNS = ns
	f.WireLen = s.u32(p[24:])
	f.Interface = uint32(index)
	f.NoTime = false
	b.N++
	return nil
}

// simple reads a simple packet block: interface 0, no time, and a captured
// length that follows from the snapshot length.
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
	f.Data = p[simpleHeader : simpleHeader+caplen : simpleHeader+caplen]
	f.TimeNS = 0
	f.WireLen = wire
	f.Interface = uint32(s.first)
	f.NoTime = true
	b.N++
	return nil
}

// checkData tests a captured length against the limit and against the block,
// whose data starts at from.
func (s *blocks) checkData(p []byte, caplen int64, from int) *failure {
	if caplen > int64(s.opts.MaxFrame) {
		return tooLarge(caplen, int64(s.opts.MaxFrame))
	}
	if room := int64(len(p) - from - blockTrailer); caplen > room {
		return malformed(fmt.Sprintf("packet of %d captured bytes in a block with room for %d", caplen, room))
	}
	return nil
}
