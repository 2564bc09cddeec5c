package layers

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode/csig"
)

// Errors of a TCP option that is no reflection with a tag, or not in the requested encoding.
var (
	// ErrOtherOption means another kind or another experiment identifier.
	ErrOtherOption = errors.New("another TCP option")
	// ErrEmptyReflection means a reflection without data fields: the path is not
	// CSIG-capable (section 6.3.3).
	ErrEmptyReflection = errors.New("a reflection without data fields")
	// ErrInvalidReflection means a number of bytes that no tag has.
	ErrInvalidReflection = errors.New("a reflection of impossible length")
)

// errPastEnd is the error of an option with a possible length and too few bytes.
var errPastEnd = errors.New("an option that runs past the end")

// optionHead is the length of an option's kind and length octets.
const optionHead = 2

// ReflectionOption is the TCP option that carries the tag of the reverse path
// (section 4.2.1), as a gopacket.Layer, DecodingLayer and SerializableLayer over
// the option's own bytes:
//
//	| Kind | Length | experiment identifier 0, 2 or 4 | data 2 or 6 |
//
// gopacket has no layers inside TCP, so it never decodes this one by itself. Reflections finds the
// options in a decoded segment; NewReflectionOption makes one for a segment to be written.
type ReflectionOption struct {
	layers.BaseLayer
	csig.Tag
	Encoding csig.Reflection // the option's kind, and how its length counts
}

// LayerType is LayerTypeReflection.
func (o *ReflectionOption) LayerType() gopacket.LayerType { return LayerTypeReflection }

// CanDecode is LayerTypeReflection.
func (o *ReflectionOption) CanDecode() gopacket.LayerClass { return LayerTypeReflection }

// NextLayerType is gopacket.LayerTypeZero: Payload holds the options behind it.
func (o *ReflectionOption) NextLayerType() gopacket.LayerType { return gopacket.LayerTypeZero }

// DecodeFromBytes reads an option in o.Encoding from the start of data; further options may follow.
// Its errors wrap ErrOtherOption, ErrEmptyReflection or ErrInvalidReflection. If data ends too early,
// it calls SetTruncated and returns another error.
func (o *ReflectionOption) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	o.BaseLayer = layers.BaseLayer{}
	head, n, err := o.measure(data, df)
	if err != nil {
		return fmt.Errorf("decode CSIG reflection: %w", err)
	}
	l, ok := o.Encoding.Layout(n)
	switch {
	case n == 0:
		return fmt.Errorf("decode CSIG reflection: %w", ErrEmptyReflection)
	case !ok:
		return fmt.Errorf("decode CSIG reflection: %w: %d bytes of data fields, expected 2 or 6", ErrInvalidReflection, n)
	case len(data) < head+n:
		df.SetTruncated()
		return fmt.Errorf("decode CSIG reflection: %w: %d bytes, expected %d", errPastEnd, len(data), head+n)
	}
	o.Parse(l, data[head:])
	o.Contents, o.Payload = data[:head+n], data[head+n:]
	return nil
}

// measure returns the length before the data fields, and that of the data fields according to the
// length octet, which may be negative.
func (o *ReflectionOption) measure(data []byte, df gopacket.DecodeFeedback) (head, n int, err error) {
	if len(data) > 0 && data[0] != o.Encoding.Kind {
		return 0, 0, ErrOtherOption
	}
	head = optionHead + int(o.Encoding.ExIDLen)
	if len(data) < head {
		df.SetTruncated()
		return 0, 0, fmt.Errorf("%d bytes, expected at least %d", len(data), head)
	}
	if string(data[optionHead:head]) != string(appendExID(nil, o.Encoding)) {
		return 0, 0, ErrOtherOption
	}
	if o.Encoding.Payload {
		return head, int(data[1]), nil
	}
	return head, int(data[1]) - head, nil
}

// SerializeTo prepends the option, without padding. A tag whose layout is not the
// encoding's, or with a field that does not fit, is an error.
func (o *ReflectionOption) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	option, err := NewReflectionOption(o.Encoding, o.Tag)
	if err != nil {
		return err
	}
	to, err := b.PrependBytes(optionHead + len(option.OptionData))
	if err != nil {
		return fmt.Errorf("serialize CSIG reflection: %w", err)
	}
	to[0], to[1] = byte(option.OptionType), option.OptionLength
	copy(to[optionHead:], option.OptionData)
	return nil
}

// String returns text for people, such as "CSIG reflection compact/ietf01 min_abw_ratio S=23 LM=5".
func (o *ReflectionOption) String() string { return "CSIG reflection " + fields(o.Tag) }

// NewReflectionOption makes the option of a segment that reflects t. The length octet counts as r
// says: all of the option (RFC 9293), or the data fields alone. gopacket writes the latter only
// without SerializeOptions.FixLengths, and never reads it. A tag whose layout is not the
// encoding's, or with a field that does not fit, is an error.
func NewReflectionOption(r csig.Reflection, t csig.Tag) (layers.TCPOption, error) {
	if err := checkFields(t); err != nil {
		return layers.TCPOption{}, fmt.Errorf("make CSIG reflection: %w", err)
	}
	n := t.Layout.Format.DataLen()
	if l, _ := r.Layout(n); l != t.Layout {
		return layers.TCPOption{}, fmt.Errorf("make CSIG reflection: tag is %s, expected %s as kind %d is configured", t.Layout, l, r.Kind)
	}
	data := t.Append(appendExID(nil, r))
	length := optionHead + len(data)
	if r.Payload {
		length = n
	}
	return layers.TCPOption{OptionType: layers.TCPOptionKind(r.Kind), OptionLength: uint8(length), OptionData: data}, nil
}

// ReadReflection reads the tag of an option in the encoding r; ok is false when it has none. If the
// encoding's length octet counts the data fields alone, it reads options of NewReflectionOption but
// not those of gopacket, which has truncated them: use Reflections for them.
func ReadReflection(option layers.TCPOption, r csig.Reflection) (t csig.Tag, ok bool) {
	b := append([]byte{byte(option.OptionType), option.OptionLength}, option.OptionData...)
	o := ReflectionOption{Encoding: r}
	if err := o.DecodeFromBytes(b, gopacket.NilDecodeFeedback); err != nil || len(o.Payload) > 0 {
		return csig.Tag{}, false
	}
	return o.Tag, true
}

func appendExID(b []byte, r csig.Reflection) []byte {
	switch r.ExIDLen {
	case 2:
		b = binary.BigEndian.AppendUint16(b, uint16(r.ExID))
	case 4:
		b = binary.BigEndian.AppendUint32(b, r.ExID)
	}
	return b
}

// Reflections returns the tags that a decoded segment reflects, in the order of its options. The
// first matching encoding of the domain reads each. The measured path is the reverse of the
// segment's own: from its destination to its source.
//
// It reads the bytes of the header instead of tcp.Options, because gopacket loses the data of
// options whose length octet counts the data fields alone. An option of impossible length ends the
// list.
func Reflections(tcp *layers.TCP, domain *csig.Domain) []csig.Tag {
	const header = 20
	if len(tcp.Contents) < header {
		return nil
	}
	var tags []csig.Tag
	o := ReflectionOption{}
	for b := tcp.Contents[header:]; len(b) > 0; {
		var n int
		switch b[0] {
		case layers.TCPOptionKindEndList:
			return tags
		case layers.TCPOptionKindNop:
			n = 1
		default:
			var found bool
			if n, found = o.next(b, domain.Reflections()); found {
				tags = append(tags, o.Tag)
			}
			if n < optionHead || n > len(b) {
				return tags
			}
		}
		b = b[n:]
	}
	return tags
}

// next reads the option at the start of b. n is its length, 0 if it runs past the end of b.
func (o *ReflectionOption) next(b []byte, encodings []csig.Reflection) (n int, found bool) {
	if len(b) < optionHead {
		return 0, false
	}
	n = int(b[1])
	empty := false
	for i := range encodings {
		o.Encoding = encodings[i]
		err := o.DecodeFromBytes(b, gopacket.NilDecodeFeedback)
		switch {
		case err == nil:
			return len(o.Contents), true
		case errors.Is(err, ErrEmptyReflection) && !empty:
			n, empty = optionHead+int(o.Encoding.ExIDLen), true
		case errors.Is(err, errPastEnd):
			return 0, false
		}
	}
	return n, false
}
