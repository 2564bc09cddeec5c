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
