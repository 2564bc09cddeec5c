package finding

import (
	"net/netip"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestTestable: explanations that the same flows pass count once, and those that too few pass do
// not count, whichever flows are affected.
func TestTestable(t *testing.T) {
	t.Parallel()
	for _, affected := range []int{0, 3, 12} {
		c := newLocalizer(&newNetwork(t).cfg)
		var flows []*flow
		for i := range 12 {
			o := decode.Observation{SrcPort: uint16(i), Flags: decode.HasAddrs}
			o.Src, o.Dst = netip.AddrFrom4([4]byte{10, 0, 1, 1}).As16(), netip.AddrFrom4([4]byte{10, 0, byte(2 + i/10), 1}).As16()
			flows = append(flows, &flow{key: flowOf(&o), path: path{[maxNamed]aggregate.LocationID{aggregate.LocationID(upID(1, 1+i%2))}}})
		}
		of, _, _ := c.suspects(flows[:affected], flows[affected:])
		// The host and its leaf, which all flows pass; each of two spines with the port to it; the
		// leaf of ten destinations with its port to the host, in a way by each spine. Too few flows
		// pass the leaf of the other two.
		if got := testable(of); got >= len(of) || got < 3 || got > 6 {
			t.Errorf("%d affected: %d of %d explanations can be told apart", affected, got, len(of))
		}
	}
}

// TestPassedTogether: values of a forger count together, except those that are too rare or that
// others have as well.
func TestPassedTogether(t *testing.T) {
	t.Parallel()
	forger, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	tag := func(i uint32) csig.Tag { return csig.Tag{Layout: wide, T: uint8(i % 4), S: 1000 + i, LM: 7} }
	for name, test := range map[string]struct {
		counts []int // of each value behind the edge
		shared bool
		want   int
	}{
		"one": {[]int{20}, false, 1}, "two": {[]int{11, 9}, false, 2}, "too few": {[]int{10, 9}, false, 0},
		"too seldom": {[]int{4, 4, 4, 4, 4}, false, 0}, "as others have": {[]int{15, 15}, true, 0},
	} {
		s := &unknownLMs{layout: wide, sources: map[netip.Addr]*sourceState{forger: {}, other: {}}}
		for i, n := range test.counts {
			o := &decode.Observation{Tag: tag(uint32(i))}
			at := &seen{tap: &Tap{}, o: o}
			s.sources[forger].wrote.add(at)
			for range n {
				s.sources[forger].arrived.add(at)
				s.sources[forger].touched++
				s.all.touched++
				s.all.touched += 2 // from others
				if test.shared {
					s.sources[other].arrived.add(at)
				}
			}
		}
		if got := s.passed(forger); len(got) != test.want {
			t.Errorf("%s: %d values, want %d", name, len(got), test.want)
		}
	}
}
