package layers

import (
	"encoding/binary"
	"fmt"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode/csig"
)

// minEtherType is the lowest EtherType: smaller numbers are the length of an IEEE 802.3 frame, and
// LLC follows.
const minEtherType = 0x0600

// etherTypeLen is the length of the EtherType at the end of a tag.
const etherTypeLen = 2

// Tag is a CSIG tag (section 4.1), compact or wide, without its TPID, which is the
// EtherType of the layer before it. It implements gopacket.Layer, DecodingLayer and
// SerializableLayer. Contents and Payload are parts of the decoded packet.
//
// DecodeFromBytes reads, SerializeTo writes, and LayerType names the layout Tag.Layout. The zero
// Tag has none: use NewTag, or set it.
type Tag struct {
	layers.BaseLayer
	csig.Tag
	Next layers.EthernetType // of the next protocol; below 0x0600 a length, with LLC
}

// NewTag returns a Tag to decode into.
func NewTag(l csig.Layout) *Tag { return &Tag{Tag: csig.Tag{Layout: l}} }

// LayerType returns the layer type of the tag's layout.
func (t *Tag) LayerType() gopacket.LayerType { return TagType(t.Layout) }

// CanDecode returns the layer type of the tag's layout: a parser that may meet several layouts
// needs a Tag for each.
func (t *Tag) CanDecode() gopacket.LayerClass { return t.LayerType() }

// NextLayerType returns gopacket's layer type for the next EtherType: LLC if it is a length,
// gopacket.LayerTypeZero if it is unknown or missing.
func (t *Tag) NextLayerType() gopacket.LayerType {
	switch {
	case len(t.Payload) == 0:
		return gopacket.LayerTypeZero
	case t.Next < minEtherType:
		return layers.LayerTypeLLC
	}
	return t.Next.LayerType()
}

// DecodeFromBytes reads a tag of the layout t.Layout from the bytes behind its TPID; every bit
// pattern is a tag. If the packet ends inside the tag, it calls SetTruncated and returns an error.
// If only the EtherType after the data fields is missing, t still has the data fields and Contents
// holds them; otherwise Contents is empty.
func (t *Tag) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	n := t.Layout.Format.DataLen()
	t.BaseLayer, t.Next = layers.BaseLayer{}, 0
	switch {
	case n == 0:
		return fmt.Errorf("decode CSIG tag: %s is no format of a tag: set Layout", t.Layout.Format)
	case len(data) < n:
		df.SetTruncated()
		return fmt.Errorf("decode CSIG tag: %d bytes of data fields, expected %d", len(data), n)
	}
	t.Parse(t.Layout, data)
	if len(data) < n+etherTypeLen {
		df.SetTruncated()
		t.Contents = data[:n]
		return fmt.Errorf("decode CSIG tag: %d bytes with its EtherType, expected %d", len(data), n+etherTypeLen)
	}
	t.Next = layers.EthernetType(binary.BigEndian.Uint16(data[n:]))
	n += etherTypeLen
	t.Contents, t.Payload = data[:n], data[n:]
	if t.Next < minEtherType {
		t.limitPayload(int(t.Next), df)
	}
	return nil
}

// limitPayload removes the padding behind an IEEE 802.3 frame.
func (t *Tag) limitPayload(length int, df gopacket.DecodeFeedback) {
	if len(t.Payload) < length {
		df.SetTruncated()
		return
	}
	t.Payload = t.Payload[:length]
}

// SerializeTo prepends the tag and its EtherType. The caller must set the EtherType of the layer
// before it to a TPID of the tag's layout: SerializeTo does not, even with FixLengths. A field that
// does not fit its layout is an error.
func (t *Tag) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	if err := checkFields(t.Tag); err != nil {
		return fmt.Errorf("serialize CSIG tag: %w", err)
	}
	n := t.Layout.Format.DataLen()
	to, err := b.PrependBytes(n + etherTypeLen)
	if err != nil {
		return fmt.Errorf("serialize CSIG tag: %w", err)
	}
	t.Append(to[:0])
	binary.BigEndian.PutUint16(to[n:], uint16(t.Next))
	return nil
}

// String returns text for people, such as "CSIG compact/ietf01 min_abw_ratio S=23 LM=5 Next=IPv4".
func (t *Tag) String() string {
	return fmt.Sprintf("CSIG %s Next=%s", fields(t.Tag), nextName(t.Next))
}

func nextName(e layers.EthernetType) string {
	if e >= minEtherType && e.LayerType() == gopacket.LayerTypeZero {
		return fmt.Sprintf("0x%04x", uint16(e))
	}
	return e.String()
}

func decodeTag(l csig.Layout, data []byte, p gopacket.PacketBuilder) error {
	t := NewTag(l)
	err := t.DecodeFromBytes(data, p)
	if len(t.Contents) > 0 {
		p.AddLayer(t)
	}
	if err != nil {
		return err
	}
	if t.Next < minEtherType {
		return p.NextDecoder(layers.LayerTypeLLC)
	}
	return p.NextDecoder(t.Next)
}

// checkFields returns an error that names the first field of a tag that does not fit its layout.
// Truncated, the tag would be another measurement.
func checkFields(t csig.Tag) error {
	l := t.Layout
	if l.Format.DataLen() == 0 || (l.Profile != csig.IETF01 && l.Profile != csig.UEC050) {
		return fmt.Errorf("%s is no layout of a tag: set Layout", l)
	}
	maxR := 1
	if l.Format == csig.Wide {
		maxR = 255
	}
	for _, f := range [...]struct {
		name       string
		value, max int
	}{
		{"signal type", int(t.T), l.Types() - 1},
		{"signal", int(t.S), int(l.MaxS())},
		{"locator metadata", int(t.LM), 1<<l.LMBits() - 1},
		{"reserved field", int(t.R), maxR},
	} {
		if f.value > f.max {
			return fmt.Errorf("%s %d does not fit %s: expected at most %d", f.name, f.value, l, f.max)
		}
	}
	if t.D && l.Profile != csig.UEC050 {
		return fmt.Errorf("%s has no bit for a trimmed tag", l)
	}
	return nil
}

// fields returns a tag's fields as text. It shows the reserved field and the trimmed bit only if
// they are set.
func fields(t csig.Tag) string {
	s := fmt.Sprintf("%s %s S=%d LM=%d", t.Layout, t.Signal(), t.S, t.LM)
	if t.D {
		s += " D"
	}
	if t.R != 0 {
		s += fmt.Sprintf(" R=%d", t.R)
	}
	return s
}
