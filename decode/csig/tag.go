package csig

import "encoding/binary"

// Tag holds the data fields of one CSIG tag or reflection.
type Tag struct {
	Layout Layout
	T      uint8  // signal type: 0 to 7 compact, 0 to 15 wide
	S      uint32 // raw signal value: 0 to 31 compact, 0 to 2^20-1 wide
	LM     uint16 // locator metadata: Layout.LMBits bits
	D      bool   // trimmed, do not update (uec050 only)
	R      uint8  // reserved: 0 or 1 compact, 0 to 255 wide
}

// Signal returns the signal by the tag's profile alone; see SignalOf.
func (t Tag) Signal() Signal { return SignalOf(t.Layout.Profile, t.T) }

// Parse reads the data fields after a TPID or in a reflection. b must hold at least
// l.Format.DataLen() bytes. Every bit pattern is a valid tag.
//
// Compact (Figure 1; IEEE slides, "Two L2 Tags"), 16 bits:
//
//	ietf01   T:3 R:1 S:5 LM:7
//	uec050   T:3 R:1 S:5 LM:6 D:1
//
// Wide (Figure 2; IEEE slides, "Two L2 Tags"), 48 bits:
//
//	ietf01   LM:16      T:4 S:20 R:8
//	uec050   LM:15 D:1  T:4 S:20 R:8
func Parse(l Layout, b []byte) (t Tag) {
	t.Parse(l, b)
	return t
}

// Parse is the function Parse into t, and sets all of its fields. It avoids the copy, which costs
// more than reading the fields.
func (t *Tag) Parse(l Layout, b []byte) {
	t.Layout = l
	var lm uint16
	if l.Format == Wide {
		_ = b[5]
		lm = binary.BigEndian.Uint16(b)
		v := binary.BigEndian.Uint32(b[2:])
		t.T, t.S, t.R = uint8(v>>28), v>>8&(1<<20-1), uint8(v)
	} else {
		v := binary.BigEndian.Uint16(b)
		lm = v & 0x7f
		t.T, t.S, t.R = uint8(v>>13), uint32(v>>7&31), uint8(v>>12&1)
	}
	t.D = false
	if l.Profile == UEC050 {
		t.D = lm&1 != 0
		lm >>= 1
	}
	t.LM = lm
}

// Append appends the tag's data fields (2 or 6 bytes) to b. It truncates fields that are wider than
// the layout allows. Parse(t.Layout, t.Append(nil)) equals t for a tag whose fields fit, with D
// false outside uec050.
func (t Tag) Append(b []byte) []byte {
	lm := t.LM
	if t.Layout.Profile == UEC050 {
		lm <<= 1
		if t.D {
			lm |= 1
		}
	}
	if t.Layout.Format == Wide {
		b = binary.BigEndian.AppendUint16(b, lm)
		return binary.BigEndian.AppendUint32(b, uint32(t.T&15)<<28|t.S&(1<<20-1)<<8|uint32(t.R))
	}
	return binary.BigEndian.AppendUint16(b,
		uint16(t.T&7)<<13|uint16(t.R&1)<<12|uint16(t.S&31)<<7|lm&0x7f)
}
