package flow

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// Seeds make a hash that no traffic can be made up to collide in. Flows are told apart by
// all 64 bits of it: to compare whole addresses as well would take more time than all else
// that is counted of them.
type Seeds [3]uint64

// NewSeeds are random.
func NewSeeds() *Seeds {
	s := new(Seeds)
	for i := range s {
		s[i] = rand.Uint64()
	}
	return s
}

// Hash is that of a flow under a key. It takes the two ends of packets and whether they go
// against the flow, and does not branch on that, since it cannot be predicted.
func (s *Seeds) Hash(src, dst *[16]byte, srcPort, dstPort uint16, proto uint8, against bool, key uint32) uint64 {
	from, to := s.end(src, srcPort), s.end(dst, dstPort)
	if against {
		from, to = to, from
	}
	return mix(from^uint64(proto), bits.RotateLeft64(to, 32)^uint64(key)<<24^s[2])
}

func (s *Seeds) end(a *[16]byte, port uint16) uint64 {
	return mix(binary.LittleEndian.Uint64(a[:8])^s[0], binary.LittleEndian.Uint64(a[8:])^s[1]) ^ uint64(port)<<8
}

func (s *Seeds) of(f *Flow, key uint32) uint64 {
	return s.Hash(&f.Src, &f.Dst, f.SrcPort, f.DstPort, f.Proto, false, key)
}

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
