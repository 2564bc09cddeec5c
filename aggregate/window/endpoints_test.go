package window

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
)

// leadingGroups is a resolver whose groups are the first 8 bytes of addresses.
type leadingGroups struct{ aggregate.Resolver }

func (leadingGroups) Group(a netip.Addr) aggregate.GroupID {
	b := a.As16()
	return aggregate.GroupID(binary.BigEndian.Uint64(b[:8]))
}

// leadingBits is a resolver for which only so many leading bits of addresses matter.
type leadingBits struct {
	aggregate.Resolver
	v4, v6 int
}

func (leadingBits) Classes(netip.Addr) (src, dst uint64) { return 0, 0 }

func (r leadingBits) AddressBits() (v4, v6 int) { return r.v4, r.v6 }

// TestPrefix checks that addresses keep at least the bits that matter, and that those which begin with
// zeros, IPv4 ones and others, are not confused.
func TestPrefix(t *testing.T) {
	for _, test := range []struct {
		v4, v6 int
		groups [][]string // of addresses with equal prefixes
	}{
		{24, 64, [][]string{{"10.0.1.1", "10.0.1.255"}, {"10.0.2.1"}, {"::", "::1"}, {"2001:db8::1", "2001:db8::2"}, {"2001:db8:0:1::1"}}},
		{24, 128, [][]string{{"10.0.1.1"}, {"10.0.1.255"}, {"::"}, {"::1"}, {"2001:db8::1"}, {"2001:db8::2"}}},
		{32, 32, [][]string{{"10.0.1.1"}, {"10.0.1.2"}, {"::"}, {"::1"}, {"2001:db8::1", "2001:db8:1::1"}, {"2001:db9::1"}}},
	} {
		c := newEndpointCache(leadingBits{v4: test.v4, v6: test.v6}, nil, flow.NewSeeds(), 1<<17)
		known := make(map[[2]uint64]int)
		for n, group := range test.groups {
			for i, text := range group {
				a := netip.MustParseAddr(text).As16()
				hi, lo := c.prefix(&a)
				if at, ok := known[[2]uint64{hi, lo}]; ok != (i > 0) || at != n && ok {
					t.Errorf("/%d and /%d: %s has the prefix of group %d, want that of %d", test.v4, test.v6, text, at, n)
				}
				known[[2]uint64{hi, lo}] = n
			}
		}
	}
}

// TestPairsCollide looks up addresses that differ only in their first half, many of which share a
// slot, in pairs.
func TestPairsCollide(t *testing.T) {
	for _, second := range []uint64{0, 1, 1 << 63, 1<<64 - 1} {
		c := newEndpointCache(leadingGroups{}, nil, flow.NewSeeds(), 1<<17)
		address := func(group uint64) *[16]byte {
			var a [16]byte
			binary.BigEndian.PutUint64(a[:8], group)
			binary.BigEndian.PutUint64(a[8:], second)
			return &a
		}
		for range 2 {
			for i := uint64(1); i <= 1000; i++ {
				src, dst := c.pair(address(i), address(1001-i))
				if c.src[src] != aggregate.GroupID(i) || c.dst[dst] != aggregate.GroupID(1001-i) {
					t.Fatalf("second half %x: %d to %d are groups %d and %d", second, i, 1001-i, c.src[src], c.dst[dst])
				}
			}
		}
	}
}
