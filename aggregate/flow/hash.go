package flow

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// Seeds make a hash that no traffic can be made up to collide in. Flows are told apart by
// all 64 bits of it: to compare whole addresses as well would take more time than all else
// that is counted of them.
type Seeds [5]uint64

// NewSeeds are random.
func NewSeeds() *Seeds {
	s := new(Seeds)
	for i := range s {
		s[i] = rand.Uint64()
	}
	return s
}

// Hash is that of a part of a flow with the addresses, whose ports and protocol are the
// tail.
func (s *Seeds) Hash(src, dst *[16]byte, tail uint64, part uint32) uint64 {
	from := mix(binary.LittleEndian.Uint64(src[:8])^s[0], binary.LittleEndian.Uint64(src[8:])^s[1])
	to := mix(binary.LittleEndian.Uint64(dst[:8])^s[2], binary.LittleEndian.Uint64(dst[8:])^s[3])
	return mix(from^tail, bits.RotateLeft64(to, 32)^uint64(part)<<24^s[4])
}

// Tail packs ports and protocol for Hash.
func Tail(srcPort, dstPort uint16, proto uint8) uint64 {
	return uint64(srcPort)<<24 | uint64(dstPort)<<8 | uint64(proto)
}

func (f *Flow) tail() uint64 { return Tail(f.SrcPort, f.DstPort, f.Proto) }

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
