package capture

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Magic numbers of classic pcap files, in the writer's byte order.
const (
	magicMicros   = 0xa1b2c3d4
	magicNanos    = 0xa1b23c4d
	magicModified = 0xa1b2cd34 // records have 8 more bytes of interface metadata

	classicFileHeader   = 24
	classicRecordHeader = 16
	modifiedHeader      = 24
)

// classic is the layout of one classic pcap file.
type classic struct {
	swapped  bool   // the file is big-endian
	head     int    // length of a record header in bytes
	perTick  int64  // ns per unit of the sub-second field
	perSec   uint32 // units per second
	snapLen  uint32
	link     LinkType
	maxFrame uint32
	maxWire  uint32
}

// classicMagic reports whether the four bytes at p start a classic pcap file, and returns its
// layout.
func classicMagic(p []byte) (c classic, ok bool) {
	magic := binary.LittleEndian.Uint32(p)
	if p[0] == magicMicros>>24 {
		c.swapped = true
		magic = bits.ReverseBytes32(magic)
	}
	c.head, c.perTick, c.perSec = classicRecordHeader, 1000, 1e6
	switch magic {
	case magicMicros:
	case magicNanos:
		c.perTick, c.perSec = 1, 1e9
	case magicModified:
		c.head = modifiedHeader
	default:
		return classic{}, false
	}
	return c, true
}

// parseClassicHeader parses the file header. p holds classicFileHeader bytes whose magic has been
// checked; maxFrame is a bounded option.
func parseClassicHeader(p []byte, name string, maxFrame int) (*classic, error) {
	c, _ := classicMagic(p) // checked by the caller
	var order binary.ByteOrder = binary.LittleEndian
	if c.swapped {
		order = binary.BigEndian
	}
	major, minor := order.Uint16(p[4:]), order.Uint16(p[6:])
	if major != 2 || minor != 4 {
		return nil, &FormatError{
			File: name, First: append([]byte(nil), p[:4]...),
			What: fmt.Sprintf("pcap file of version %d.%d, only 2.4 is read", major, minor),
		}
	}
	c.snapLen = order.Uint32(p[16:])
	// The upper half of the field is the length of a trailing FCS.
	c.link = LinkType(order.Uint32(p[20:]) & 0xffff)
	c.maxFrame = uint32(maxFrame)
	c.maxWire = max(maxWire, c.maxFrame)
	return &c, nil
}

func (c *classic) describe() Interface {
	return Interface{Link: c.link, SnapLen: c.snapLen, NanosPerTick: float64(c.perTick)}
}

// record is the header of one classic record.
type record struct {
	sec, frac, incl, orig uint32
}

// recordAt decodes the header at p, which must hold at least 16 bytes.
func (c *classic) recordAt(p []byte) record {
	_ = p[15]
	h := record{
		sec:  binary.LittleEndian.Uint32(p),
		frac: binary.LittleEndian.Uint32(p[4:]),
		incl: binary.LittleEndian.Uint32(p[8:]),
		orig: binary.LittleEndian.Uint32(p[12:]),
	}
	if c.swapped {
		h.sec, h.frac = bits.ReverseBytes32(h.sec), bits.ReverseBytes32(h.frac)
		h.incl, h.orig = bits.ReverseBytes32(h.incl), bits.ReverseBytes32(h.orig)
	}
	return h
}

// noPacket returns the reason why a header cannot belong to a packet, or nil. Such headers follow a
// corrupted length, appear in a hole of zeros, or where files were joined. An empty packet is
// valid.
func (c *classic) noPacket(h record) *failure {
	switch {
	case h.orig > c.maxWire:
		return malformed(fmt.Sprintf("packet of %d bytes on the wire, expected at most %d", h.orig, c.maxWire))
	case h.sec == 0 && h.frac == 0:
		return malformed("record of zeros")
	case h.sec == magicMicros || h.sec == magicNanos || h.sec == magicModified:
		return malformed("the header of another pcap file, expected a record: join captures with a tool that knows pcap")
	}
	return nil
}

// parse appends the complete records in p to b. off is the file offset of p, count the number of
// packets before it.
func (c *classic) parse(b *Batch, p []byte, off int64, count uint64) progress {
	pos := 0
	for b.N < BatchSize {
		rest := p[pos:]
		if len(rest) < c.head {
			return progress{used: pos, need: c.head, what: "record header"}
		}
		h := c.recordAt(rest)
		if h.incl > c.maxFrame {
			return progress{used: pos, fail: tooLarge(int64(h.incl), int64(c.maxFrame))}
		}
		if h.orig > c.maxWire || h.incl|h.orig == 0 {
			if fail := c.noPacket(h); fail != nil {
				return progress{used: pos, fail: fail}
			}
		}
		end := c.head + int(h.incl)
		if len(rest) < end {
			return progress{used: pos, need: end, what: "packet data"}
		}
		f := &b.Frames[b.N]
		f.Data = rest[c.head:end]
		// The factors are below 2^32 and at most 1e9, so the sum fits int64.
		f.TimeNS = int64(h.sec)*1e9 + int64(h.frac)*c.perTick
		f.WireLen = h.orig
		f.Interface = 0
		f.NoTime = false
		f.Packet = count + uint64(b.N) + 1
		f.Offset = off + int64(pos)
		b.N++
		pos += end
	}
	return progress{used: pos}
}
