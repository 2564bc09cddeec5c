package emitter

import (
	"encoding/binary"
	"net/netip"
)

// An address is a host's number in the network, which is its IPv4 address in 10/8;
// racks are /24 prefixes. The IPv6 address is made of the same bits: racks are /64
// prefixes of fd00:c516::/32: 10.0.1.2 is fd00:c516:a:1::2.

const (
	// tenantBit tells the address of a packet inside of a tunnel between hosts from
	// that of the host.
	tenantBit = 1 << 23
	// vtepHost is the host number of a leaf's own address, by which tunnels between
	// leaves know it. Hosts have smaller ones.
	vtepHost = 254
)

// vtep is the address of the leaf of an address.
func vtep(a uint32) uint32 { return a&^0xff | vtepHost }

// putIPv6 writes the IPv6 form of an address, 16 bytes.
func putIPv6(b []byte, a uint32) {
	binary.BigEndian.PutUint64(b, 0xfd00c516<<32|uint64(a>>8))
	binary.BigEndian.PutUint64(b[8:], uint64(a&0xff))
}

// addressOf is the address in an IP version.
func addressOf(version uint8, a uint32) netip.Addr {
	if version == 6 {
		var b [16]byte
		putIPv6(b[:], a)
		return netip.AddrFrom16(b)
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], a)
	return netip.AddrFrom4(b)
}

// prefixOf is the prefix of an address's rack.
func prefixOf(version uint8, a uint32) string {
	p := netip.PrefixFrom(addressOf(version, a), 24)
	if version == 6 {
		p = netip.PrefixFrom(p.Addr(), 64)
	}
	return p.Masked().String()
}
