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

// Address is the hash of an address, given as its two halves in little endian.
func (s *Seeds) Address(hi, lo uint64) uint64 {
	return mix(hi^s[0], lo^s[1]) * 0x9e3779b97f4a7c15
}

// Addresses puts the hashes of a flow's two addresses together.
func Addresses(src, dst uint64) uint64 { return src ^ bits.RotateLeft64(dst, 32) }

// Hash is that of a flow under a key: of its addresses, and its two ports, those of the
// source in the upper half.
func (s *Seeds) Hash(addresses uint64, ports uint32, proto uint8, key uint32) uint64 {
	return mix(addresses^uint64(key)^s[2], (uint64(ports)<<8|uint64(proto))^s[1])
}

func (s *Seeds) of(f *Flow, key uint32) uint64 {
	src, dst := s.address(&f.Src), s.address(&f.Dst)
	return s.Hash(Addresses(src, dst), uint32(f.SrcPort)<<16|uint32(f.DstPort), f.Proto, key)
}

func (s *Seeds) address(a *[16]byte) uint64 {
	return s.Address(binary.LittleEndian.Uint64(a[:8]), binary.LittleEndian.Uint64(a[8:]))
}

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
