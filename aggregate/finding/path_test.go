package finding

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// reflect shows a reflection of what a host sent, by its address.
func (s *shown) reflect(host netip.Addr, tag csig.Tag) {
	s.n++
	o := decode.Observation{TimeNS: int64(s.n) * int64(time.Millisecond), Packet: s.n, Kind: decode.Reflection, Flags: decode.HasAddrs, Tag: tag}
	o.Src, o.Dst = netip.MustParseAddr("10.9.9.9").As16(), host.As16()
	s.Observe(&s.tap, &o)
}

// reflections shows one of each of so many flows, of which nothing else is seen.
func (s *shown) reflections(n int, tag csig.Tag) {
	for i := range n {
		addr := binary.BigEndian.AppendUint32(nil, 0x0b000000+uint32(i))
		s.reflect(netip.AddrFrom4([4]byte(addr)), tag)
	}
}

// TestReflectionsTakeNoFlows: whoever sends reflections leaves room for flows.
func TestReflectionsTakeNoFlows(t *testing.T) {
	t.Parallel()
	for _, place := range []Place{Receiver, Mid, Sender, Outside} {
		s := newShown(t, nil)
		s.tap.Place = place
		s.reflections(20_000, csig.Tag{Layout: wide, T: 2, S: 7, LM: 12})
		if n := len(s.flows.alone.of); n != 1<<14 || s.Pathless() != 20_000-1<<14 {
			t.Errorf("at %d: %d paths, %d reflections beyond", place, n, s.Pathless())
		}
		s.tap.Place = Receiver
		for host := range byte(200) {
			s.see(host, csig.Tag{Layout: wide, T: 2})
		}
		if n := len(s.flows.of); n != 200 || s.Untracked() > 0 {
			t.Errorf("at %d: %d flows of 200, %d packets beyond", place, n, s.Untracked())
		}
	}
}

// TestReflectionsTellPaths: ports that a flow's reflections name are on its path, whether
// these are seen before its tags or after, and its values tell that they are not stuck.
func TestReflectionsTellPaths(t *testing.T) {
	t.Parallel()
	const stuck = "stuck-port leaf1:up12 max_delay"
	delay := func(s uint32, lm uint16) csig.Tag { return csig.Tag{Layout: wide, T: 2, S: s, LM: lm} }
	third := netip.MustParseAddr("10.0.0.3")
	for name, test := range map[string]struct {
		most   int
		before func(*shown)
		slack  func(*shown) // what is seen every 100 ms
		want   string
	}{
		"no reflection":        {0, func(*shown) {}, func(s *shown) { s.see(3, delay(0, 0)) }, stuck},
		"before the first tag": {0, func(s *shown) { s.reflect(third, delay(5000, 12)) }, func(s *shown) { s.see(3, delay(0, 0)) }, ""},
		"after the first tag":  {0, func(s *shown) { s.see(3, delay(0, 0)); s.reflect(third, delay(5000, 12)) }, func(s *shown) { s.see(3, delay(0, 0)) }, ""},
		"reflections alone":    {0, func(s *shown) { s.reflect(third, delay(5000, 12)) }, func(s *shown) { s.reflect(third, delay(0, 0)) }, ""},
		"beyond the bound":     {3, func(s *shown) { s.reflections(3, delay(7, 13)); s.reflect(third, delay(5000, 12)) }, func(s *shown) { s.see(3, delay(0, 0)) }, stuck},
		"beyond it, after a tag": {3, func(s *shown) {
			s.see(3, delay(0, 0))
			s.reflections(4, delay(7, 13))
			s.reflect(third, delay(5000, 12))
		}, func(s *shown) { s.see(3, delay(0, 0)) }, ""},
	} {
		s := newShown(t, func(c *Config) { c.MaxFlows = test.most })
		test.before(s)
		for i := range 1000 {
			s.see(byte(1+i%2), delay(5000, 12))
			if i%100 == 99 {
				test.slack(s)
			}
		}
		if got := s.kinds(); got != test.want {
			t.Errorf("%s: found %q, want %q", name, got, test.want)
		}
	}
}
