package layers

import (
	"errors"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode/csig"
)

// Reflections are the tags that a decoded segment reflects, in the order of its
// options. Each is read by the first encoding of the domain that it fits, and it
// measured the path that the segment's own packet did not take: from its
// destination to its source.
//
// It reads the bytes of the header instead of tcp.Options, in which gopacket has
// lost the data of options whose length octet counts the data fields alone. An
// option of impossible length ends the list.
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

// next reads the option at the start of b. n is its length, 0 when it runs past
// the end of b.
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
