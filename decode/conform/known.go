package conform

import (
	"hash/maphash"

	"github.com/csigscope/csigscope/decode"
)

// Known knows packets again by what no device on the way may change, as a Judge does. It
// is not safe for concurrent use.
type Known struct {
	decoder *decode.Decoder
	id      identifier
}

// NewKnown makes a Known. What counts of packets that captures cut is prefix bytes behind
// the IP header, 0 for all (Scan.Cut).
func NewKnown(d *decode.Decoder, prefix int) *Known {
	return &Known{decoder: d, id: identifier{seed: maphash.MakeSeed(), prefix: prefix}}
}

// Of is a number that no other packet is likely to have, the same wherever the packet is
// captured, and how many hops it may still go. ok is false for packets that are not IP.
// Numbers of different Knowns do not compare.
func (k *Known) Of(frame []byte) (id uint64, hops uint8, ok bool) {
	etherType, packet, ok := k.decoder.Network(frame)
	if !ok || etherType != etherIPv4 && etherType != etherIPv6 {
		return 0, 0, false
	}
	one, ok := k.id.of(etherType, packet)
	if !ok {
		return 0, 0, false
	}
	if etherType == etherIPv4 {
		return one.whole, packet[8], true
	}
	return one.whole, packet[7], true
}
