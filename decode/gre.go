package decode

import "encoding/binary"

// transparentEthernet is the protocol type of Ethernet frames inside GRE and
// Geneve.
const transparentEthernet = 0x6558

// Flags of GRE.
const (
	greChecksum = 0x8000
	greRouting  = 0x4000
	greKey      = 0x2000
	greSequence = 0x1000
	greVersion  = 0x0007

	greLen = 4 // without optional fields
)

// greHeader is the header of GRE (RFC 2784, RFC 2890). Of a header that is cut, key and
// sequence are 0 where they are missing.
type greHeader struct {
	flags, proto  uint16
	key, sequence uint32
	len           int // may be beyond what was captured
}

// readGRE reads the header at the start of b, at least greLen bytes.
func readGRE(b []byte) (h greHeader) {
	h.flags, h.proto, h.len = be16(b), be16(b[2:]), greLen
	if h.flags&greChecksum != 0 {
		h.len += 4
	}
	if h.flags&greKey != 0 {
		h.key = h.word(b)
	}
	if h.flags&greSequence != 0 {
		h.sequence = h.word(b)
	}
	return h
}

// word adds a field of 32 bits to the header.
func (h *greHeader) word(b []byte) (value uint32) {
	if len(b) >= h.len+4 {
		value = binary.BigEndian.Uint32(b[h.len:])
	}
	h.len += 4
	return value
}

// gre walks what is behind a header with any of its checksum, key and sequence
// number. Source routes (RFC 1701), which no one uses and which have a length of
// their own, are refused. Other versions end the walk.
func (d *Decoder) gre(b []byte, left int, e endpoints, r *Result) Reason {
	if len(b) < greLen {
		return shortTunnel(greLen, left)
	}
	h := readGRE(b)
	if d.nest.holds {
		if reason, ok := d.greSession(&h, b, left, e, r); ok {
			return reason
		}
	}
	if h.flags&greRouting != 0 {
		return BadTunnel
	}
	if len(b) < h.len {
		return shortTunnel(h.len, left)
	}
	kind, id := GRE, h.key
	if h.proto == transparentEthernet && h.flags&(greChecksum|greKey|greSequence) == greKey {
		kind, id = NVGRE, id>>8 // the low byte tells flows apart (RFC 7637)
	}
	if !d.enter(kind, id, e, nil, r) {
		return TooDeep
	}
	switch {
	case h.flags&greVersion != 0:
		return r.done()
	case h.proto == erspanII || h.proto == erspanIII:
		return d.erspan(&h, b[h.len:], left-h.len, r)
	}
	return d.etherPayload(h.proto, b[h.len:], r)
}

// etherPayload walks a payload that its tunnel names by an EtherType.
func (d *Decoder) etherPayload(proto uint16, b []byte, r *Result) Reason {
	if proto == transparentEthernet {
		return d.ethernet(b, r)
	}
	return d.walk(proto, b, r)
}

// shortTunnel is the reason of a tunnel header that is not there whole: its packet
// is too short for it, or the capture cut it.
func shortTunnel(headerLen, left int) Reason {
	if left < headerLen {
		return BadTunnel
	}
	return CutTunnel
}
