package bpf

import (
	"encoding/binary"
	"net/netip"

	"github.com/csigscope/csigscope/aggregate"
)

// ends translates between addresses and the endpoints in keys. A class is a set of addresses that the resolver treats
// alike, and the program finds it by longest prefix. An address has one class as a source and one as a destination. If
// the resolver makes groups as it meets addresses, there are no classes, and keys have leading bits of addresses.
type ends struct {
	prefixes []netip.Prefix
	classes  []uint64     // by prefix: source << 32 | destination
	src, dst []netip.Addr // one address of each class; addresses without a prefix have class 0

	bits4, bits6 int
	mask4, mask6 uint64 // of the first 4 or 8 bytes of an address in memory, as a little-endian number
}

// newEnds returns the endpoints that a resolver distinguishes.
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
		group aggregate.GroupID
		class uint64
	}
	srcs, dsts := map[class]int{}, map[class]int{}
	number := func(known map[class]int, list *[]netip.Addr, c class, a netip.Addr) uint64 {
		n, ok := known[c]
		if !ok {
			n = len(*list)
			known[c] = n
			*list = append(*list, a)
		}
		return uint64(n)
	}
	classesOf := func(a netip.Addr) uint64 {
		group := r.Group(a)
		src, dst := classes.Classes(a)
		return number(srcs, &e.src, class{group, src}, a)<<32 | number(dsts, &e.dst, class{group, dst}, a)
	}
	classesOf(unknownAddress(r, classes))
	for _, region := range regions {
		e.prefixes = append(e.prefixes, region.Prefix)
		e.classes = append(e.classes, classesOf(region.Address))
	}
	return e
}

// unknownAddress returns an address in no group of the resolver, or the invalid address if none of a few candidates is.
func unknownAddress(r aggregate.Resolver, classes aggregate.Classifier) netip.Addr {
	src, dst := classes.Classes(netip.Addr{})
	for _, text := range [...]string{"::", "0.0.0.0", "255.255.255.255", "2001:db8::1", "192.0.2.1", "ffff::1"} {
		a := netip.MustParseAddr(text)
		if s, d := classes.Classes(a); s == src && d == dst && r.Group(a) == aggregate.UnknownGroup {
			return a
		}
	}
	return netip.Addr{}
}

// classed reports whether keys have classes, and not bits of addresses.
func (e *ends) classed() bool { return e.src != nil }

// of returns an address that stands for each endpoint of a key. Both are invalid if the key has no endpoints.
func (e *ends) of(k *mapKey) (src, dst netip.Addr) {
	switch {
	case k.Flags&hasAddrs == 0:
	case !e.classed():
		src, dst = address(k.Src, k.Flags&isV6 != 0), address(k.Dst, k.Flags&isV6 != 0)
	case k.Src < uint64(len(e.src)) && k.Dst < uint64(len(e.dst)):
		src, dst = e.src[k.Src], e.dst[k.Dst]
	}
	return src, dst
}

// address returns the lowest address with the leading bits in a key.
func address(prefix uint64, v6 bool) netip.Addr {
	if v6 {
		var a [16]byte
		binary.LittleEndian.PutUint64(a[:], prefix)
		return netip.AddrFrom16(a)
	}
	var a [4]byte
	binary.LittleEndian.PutUint32(a[:], uint32(prefix))
	return netip.AddrFrom4(a)
}

// leading returns a mask of the first bits of 8 bytes in memory, as a little-endian number.
func leading(bits int) uint64 {
	var b [8]byte
	for i := range bits {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return binary.LittleEndian.Uint64(b[:])
}
