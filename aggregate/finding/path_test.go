package finding

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// reflect passes a reflection of a host's tag, by its address.
func (s *shown) reflect(host netip.Addr, tag csig.Tag) {
	s.n++
	o := decode.Observation{TimeNS: int64(s.n) * int64(time.Millisecond), Packet: s.n, Kind: decode.Reflection, Flags: decode.HasAddrs, Tag: tag}
	o.Src, o.Dst = netip.MustParseAddr("10.9.9.9").As16(), host.As16()
	s.Observe(&s.tap, &o)
}

// reflections passes one for each of n flows without other packets.
func (s *shown) reflections(n int, tag csig.Tag) {
	for i := range n {
		addr := binary.BigEndian.AppendUint32(nil, 0x0b000000+uint32(i))
		s.reflect(netip.AddrFrom4([4]byte(addr)), tag)
	}
}

// TestReflectionsTakeNoFlows: reflections leave room for flows.
func TestReflectionsTakeNoFlows(t *testing.T) {
	t.Parallel()
	for _, place := range []Place{Receiver, Mid, Sender, Outside} {
		s := newShown(t, nil)
		s.tap.Place = place
		s.reflections(20_000, csig.Tag{Layout: wide, T: 2, S: 7, LM: 12})
		s.tap.Place = Receiver
		for host := range byte(200) {
			s.see(host, csig.Tag{Layout: wide, T: 2})
		}
		if n := len(s.flows.of); n != 200 || s.Untracked() > 0 {
			t.Errorf("at %d: %d flows of 200, %d packets beyond", place, n, s.Untracked())
		}
	}
}
