package bpf

import (
	"encoding/binary"
	"net/netip"

	"github.com/csigscope/csigscope/aggregate"
)

// ends are the ends of measured paths that keys name: classes of addresses that a resolver does not tell apart,
// by prefix, or, where groups are made as addresses are met, the leading bits of addresses.
type ends struct {
	prefixes []netip.Prefix
	classOf  []uint64     // by prefix
	address  []netip.Addr // by class, one of its addresses; class 0 is that of addresses without a prefix

	bits4, bits6 int
	mask4, mask6 uint64 // of the first bytes of an address in memory, little-endian
}

// newEnds returns the ends that matter to a resolver.
func newEnds(r aggregate.Resolver) ends {
	e := ends{bits4: 32, bits6: 128}
	classes, _ := r.(aggregate.Classifier)
	if classes != nil {
		e.bits4, e.bits6 = classes.AddressBits()
	}
	e.mask4, e.mask6 = leading(min(e.bits4, 32)), leading(min(e.bits6, 64))
	p, ok := r.(aggregate.Partitioner)
	if !ok || classes == nil {
		return e
	}
	regions, fixed := p.Regions()
	if !fixed {
		return e
	}
	type class struct {
		group    aggregate.GroupID
		src, dst uint64
	}
	numbers := map[class]uint64{}
	classAt := func(a netip.Addr) uint64 {
		c := class{group: r.Group(a)}
		c.src, c.dst = classes.Classes(a)
		n, known := numbers[c]
		if !known {
			n = uint64(len(e.address))
			numbers[c] = n
			e.address = append(e.address, a)
		}
		return n
	}
	classAt(stranger(r, classes))
	for _, region := range regions {
		e.prefixes = append(e.prefixes, region.Prefix)
		e.classOf = append(e.classOf, classAt(region.Address))
	}
	return e
}

// stranger returns an address that a resolver knows nothing of; it is invalid where there is none.
func stranger(r aggregate.Resolver, classes aggregate.Classifier) netip.Addr {
	src, dst := classes.Classes(netip.Addr{})
	for _, text := range [...]string{"::", "0.0.0.0", "255.255.255.255", "2001:db8::1", "192.0.2.1", "ffff::1"} {
		a := netip.MustParseAddr(text)
		if s, d := classes.Classes(a); s == src && d == dst && r.Group(a) == aggregate.UnknownGroup {
			return a
		}
	}
	return netip.Addr{}
}

// classed tells whether keys name classes.
func (e *ends) classed() bool { return e.address != nil }

// of returns an address that stands for an end of a key; it is invalid for one without a group.
func (e *ends) of(end uint64, v6 bool) netip.Addr {
	switch {
	case e.classed():
		if end >= uint64(len(e.address)) {
			return netip.Addr{}
		}
		return e.address[end]
	case v6:
		var a [16]byte
		binary.LittleEndian.PutUint64(a[:], end)
		return netip.AddrFrom16(a)
	}
	var a [4]byte
	binary.LittleEndian.PutUint32(a[:], uint32(end))
	return netip.AddrFrom4(a)
}

// leading returns the mask of the first bits of 64, as they are in memory.
func leading(bits int) uint64 {
	var b [8]byte
	for i := range bits {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return binary.LittleEndian.Uint64(b[:])
}
