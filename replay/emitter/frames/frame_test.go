package frames

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/gopacket"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

var (
	wideUEC     = csig.Layout{Format: csig.Wide, Profile: csig.UEC050}
	compactIETF = csig.Layout{Format: csig.Compact, Profile: csig.IETF01}
)

// everyStyle returns every encapsulation between hosts and between leaves, with both IP versions
// inside and outside.
func everyStyle() (list []scenario.Style) {
	for e := range scenario.Encapsulation(len(scenario.Encapsulations())) {
		for _, leaves := range []bool{false, true} {
			for _, ip := range []uint8{4, 6} {
				for _, underlay := range []uint8{4, 6} {
					list = append(list, scenario.Style{Encap: e, Leaves: leaves, IP: ip, Underlay: underlay})
				}
			}
		}
	}
	return list
}

// TestFramesAreGopackets compares frames made from templates with the same frames serialized one by
// one by gopacket, including checksums and lengths.
func TestFramesAreGopackets(t *testing.T) {
	encodings := []csig.Reflection{
		{Kind: 253, ExID: 0xc516, ExIDLen: 2},
		{Kind: 254, ExID: 0xc5160001, ExIDLen: 4},
		{Kind: 200, Payload: true},
	}
	rng := exact.Derive(3, 9)
	for i := range csig.NumLayouts {
		for _, r := range encodings {
			l := csig.LayoutAt(i)
			r.Profiles = [2]csig.Profile{l.Profile, l.Profile}
			f, err := NewFramer(l, 0x9900, r, everyStyle())
			if err != nil {
				t.Fatalf("%s: %v", l, err)
			}
			for n := range f.styles {
				for range 10 {
					checkFrame(t, &rng, &f, uint8(n))
				}
			}
		}
	}
}

func checkFrame(t *testing.T, rng *exact.Random, f *Framer, style uint8) {
	t.Helper()
	s := randomSegment(rng, f, style)
	got := f.append(nil, &s, 1<<14)
	k, err := f.stack(&s)
	if err != nil {
		t.Fatal(err)
	}
	want, err := k.serialize(gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true})
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%s %+v", f.layout, f.styles[style].Style)
	if !bytes.Equal(got, want) {
		t.Fatalf("%s: %+v:\n%x, gopacket writes\n%x", name, s, got, want)
	}
	if len(got) != s.Length {
		t.Fatalf("%s: %d bytes, want %d", name, len(got), s.Length)
	}
	cut := int(rng.Below(uint64(len(got))))
	if short := f.append(nil, &s, cut); !bytes.Equal(short, got[:cut]) {
		t.Fatalf("%s: cut at %d:\n%x, want\n%x", name, cut, short, got[:cut])
	}
}

func randomSegment(rng *exact.Random, f *Framer, style uint8) Segment {
	b := make([]byte, 20)
	for i := range b {
		b[i] = byte(rng.Next())
	}
	s := Segment{
		MACs: scenario.MACs(b[8:]),
		Tuple: scenario.FiveTuple{
			Src: uint32(rng.Next()), Dst: uint32(rng.Next()),
			SrcPort: uint16(rng.Next()), DstPort: uint16(rng.Next()),
		},
		Style: style, ID: uint32(rng.Next()), Hops: uint8(rng.Below(6)), OuterHops: uint8(rng.Below(6)),
		Sequence: uint32(rng.Next()), Ack: uint32(rng.Next()), Stamp: uint32(rng.Next()), Echo: uint32(rng.Next()),
		Tagged: rng.Below(2) == 0, Reflects: rng.Below(2) == 0,
		Tag: csig.Parse(f.layout, b), Reflection: csig.Parse(f.layout, b[1:]),
	}
	s.Length = f.AckLen(style, s.Reflects) + int(rng.Below(3))*int(rng.Below(1500))
	if s.Tagged {
		s.Length += f.TagLen()
	}
	if s.Wrapped = f.styles[style].Encap != scenario.EncapNone && rng.Below(4) > 0; s.Wrapped {
		s.Length += f.Overhead(style)
	}
	return s
}

// BenchmarkFrame measures the cost of one frame's headers by style and shape.
func BenchmarkFrame(b *testing.B) {
	f, err := NewFramer(wideUEC, 0x88b6, uecReflection, []scenario.Style{
		{IP: 4, Underlay: 4}, {Encap: scenario.EncapVXLAN, IP: 4, Underlay: 4}, {Encap: scenario.EncapGREFlags, IP: 6, Underlay: 6}, {Encap: scenario.EncapESP, IP: 4, Underlay: 4},
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name             string
		Style            uint8
		tagged, reflects bool
	}{
		{"plain", 0, false, false},
		{"tag", 0, true, false},
		{"reflection", 0, false, true},
		{"both", 0, true, true},
		{"vxlan", 1, true, false},
		{"gre-flags", 2, true, false},
		{"esp", 3, true, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := Segment{
				Tuple: scenario.FiveTuple{Src: 0x0a000001, Dst: 0x0a000102, SrcPort: 40000, DstPort: 5001},
				Style: c.Style, Wrapped: c.Style > 0,
				Hops: 3, Sequence: 1 << 20, Ack: 1, Stamp: 7, Echo: 6, Tagged: c.tagged, Reflects: c.reflects,
			}
			s.Tag.Layout, s.Reflection.Layout = f.layout, f.layout
			s.Length = f.AckLen(c.Style, c.reflects)
			if c.tagged {
				s.Length += f.TagLen()
			}
			if s.Wrapped {
				s.Length += f.Overhead(c.Style)
			}
			frame := make([]byte, 0, 256)
			b.ReportAllocs()
			for b.Loop() {
				frame = f.append(frame[:0], &s, 256)
			}
		})
	}
}

var uecReflection = csig.Reflection{
	Kind: 253, ExID: 0xc516, ExIDLen: 2, Profiles: [2]csig.Profile{csig.UEC050, csig.UEC050},
}

// frameRow describes how the decoder sees an encapsulation.
type frameRow struct {
	encap string
	stack string // encap of the decoder's output
	// Limits on frames with a tag and a reflection.
	hidden  bool          // the decoder sees nothing and counts the frame as hidden
	outer   bool          // the reflection is encrypted
	udp     layer4        // of the header that names the endpoints unless the inner one does
	counted decode.Reason // reason counted for frames that carry both
}

// layer4 is the protocol and destination port of the outer header.
type layer4 struct {
	proto uint8
	port  uint16
}

var frameRows = []frameRow{
	{encap: "none"},
	{encap: "vlan", stack: "vlan:100"},
	{encap: "qinq", stack: "vlan:200 vlan:100"},
	{encap: "vlan-tunnel", stack: "vlan:400 vlan:300 vlan:200 vlan:100"},
	{encap: "macsec", stack: "macsec"},
	{encap: "macsec-no-sci", stack: "macsec"},
	{encap: "macsec-no-icv", stack: "macsec"},
	{encap: "macsec-vlan", stack: "macsec vlan:100"},
	{encap: "macsec-encrypted", stack: "macsec", hidden: true, counted: decode.Hidden},
	{encap: "mpls", stack: "mpls mpls mpls"},
	{encap: "pw", stack: "mpls mpls pw"},
	{encap: "ipip", stack: "ipip", udp: layer4{proto: 4}},
	{encap: "gre", stack: "gre", udp: layer4{proto: 47}},
	{encap: "gre-flags", stack: "gre", udp: layer4{proto: 47}},
	{encap: "nvgre", stack: "nvgre", udp: layer4{proto: 47}},
	{encap: "vxlan", stack: "vxlan", udp: layer4{17, 4789}},
	{encap: "vxlan-gpe", stack: "vxlan-gpe", udp: layer4{17, 4790}},
	{encap: "geneve", stack: "geneve", udp: layer4{17, 6081}},
	{encap: "gtpu", stack: "gtpu", udp: layer4{17, 2152}},
	{encap: "srv6", stack: "srv6", udp: layer4{proto: 4}},
	{encap: "esp", stack: "esp", outer: true, udp: layer4{proto: 50}},
	{encap: "psp", stack: "psp", outer: true, udp: layer4{17, 1000}},
}

// TestEveryEncapsulationIsDecoded emits frames of every encapsulation, between hosts and between
// leaves, with both IP versions inside and outside. The decoder must return exactly the tag, the
// reflection and the configured endpoints of each.
func TestEveryEncapsulationIsDecoded(t *testing.T) {
	if len(frameRows) != len(scenario.Encapsulations()) {
		t.Fatalf("%d rows for %d encapsulations", len(frameRows), len(scenario.Encapsulations()))
	}
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	r := domain.Reflections()[0]
	for _, l := range []csig.Layout{compactIETF, wideUEC} {
		r.Profiles = [2]csig.Profile{csig.IETF01, csig.UEC050}
		f, err := NewFramer(l, scenario.TPIDOf(l), r, everyStyle())
		if err != nil {
			t.Fatal(err)
		}
		rng := exact.Derive(7, uint64(l.Format))
		for n := range f.styles {
			row := frameRows[f.styles[n].Encap]
			for _, ends := range []decode.Endpoints{decode.Outer, decode.Inner} {
				d, err := decode.New(decode.Config{Domain: domain, Endpoints: ends})
				if err != nil {
					t.Fatal(err)
				}
				for range 8 {
					row.check(t, d, ends, &rng, &f, uint8(n))
				}
				if c := d.Counters(); (c.Encrypted == c.Frames) != row.outer || (c.Reasons[decode.Hidden] == c.Frames) != row.hidden {
					t.Fatalf("%s: %d of %d frames are encrypted, %d hidden", row.encap, c.Encrypted, c.Frames, c.Reasons[decode.Hidden])
				}
			}
		}
	}
}

// TestEncryptedFramesDiffer: the frames of flows between two hosts differ behind their addresses, even if
// everything that shows a flow is encrypted. Acknowledgements differ only in the destination port.
func TestEncryptedFramesDiffer(t *testing.T) {
	f, err := NewFramer(wideUEC, 0x88b6, uecReflection, everyStyle())
	if err != nil {
		t.Fatal(err)
	}
	for n := range f.styles {
		st := &f.styles[n]
		if !st.wrapped[0].noise {
			continue
		}
		const headers = EthernetLen + ipv6Len
		seen := map[string]scenario.FiveTuple{}
		for _, port := range []uint16{1024, 1025, 5001} {
			for _, ports := range [][2]uint16{{port, 5002}, {5002, port}} {
				for id := range uint32(3) {
					s := Segment{Tuple: scenario.FiveTuple{Src: 10<<24 | 1, Dst: 10<<24 | 2, SrcPort: ports[0], DstPort: ports[1]}, Style: uint8(n), Wrapped: true, ID: id}
					s.Length = f.AckLen(s.Style, false) + f.Overhead(s.Style)
					frame := string(f.append(nil, &s, 1<<14)[headers:])
					if other, twice := seen[frame]; twice {
						t.Errorf("%+v: packet %d of %v is one of %v", st.Style, id, s.Tuple, other)
					}
					seen[frame] = s.Tuple
				}
			}
		}
	}
}

func (row *frameRow) check(t *testing.T, d *decode.Decoder, ends decode.Endpoints, rng *exact.Random, f *Framer, n uint8) {
	t.Helper()
	st := f.styles[n].Style
	s := randomSegment(rng, f, n)
	if s.Wrapped != (st.Encap != scenario.EncapNone) { // the first row covers frames that are not wrapped
		s.Wrapped = true
		s.Length += f.Overhead(n)
	}
	var got decode.Result
	d.Decode(f.append(nil, &s, 1<<14), &got)
	want := row.observations(&s, st, ends)
	reason := decode.NoCSIG
	switch {
	case row.hidden:
		reason = row.counted
	case len(want) > 0:
		reason = decode.OK
	}
	if got.Reason != reason || got.N != len(want) || names(&got.Encap) != row.stack {
		t.Fatalf("%+v: %d observations, %s, %q; want %d, %s, %q", st, got.N, got.Reason, names(&got.Encap), len(want), reason, row.stack)
	}
	tunnel := st.Encap.OuterIP() && ends == decode.Outer
	for i, w := range want {
		g := got.Obs[i]
		if inside := tunnel && g.Kind == decode.Reflection; (g.Flow != 0) != inside {
			t.Fatalf("%+v: flow %d in\n%+v, a reflection in a tunnel: %t", st, g.Flow, g, inside)
		}
		if g.Flow = 0; g != w {
			t.Fatalf("%+v: decoded\n%+v, sent\n%+v", st, g, w)
		}
	}
}

// observations returns the observations that the decoder must find in a segment's frame.
func (row *frameRow) observations(s *Segment, st scenario.Style, ends decode.Endpoints) (list []decode.Observation) {
	if row.hidden {
		return nil
	}
	o := decode.Observation{Flags: decode.HasAddrs | decode.HasPorts | decode.HasProto, Proto: 6, SrcPort: s.Tuple.SrcPort, DstPort: s.Tuple.DstPort}
	header, version := 0, st.IP
	plain := st.Encap.OuterIP() && ends == decode.Inner || !st.Encap.OuterIP() && !row.outer
	if !plain {
		o.Proto, o.SrcPort, o.DstPort = row.udp.proto, 0, 0
		o.Flags &^= decode.HasPorts
		if row.udp.port != 0 {
			o.SrcPort, o.DstPort = s.entropy(), row.udp.port
			o.Flags |= decode.HasPorts
		}
		if st.Encap.OuterIP() {
			header, version = outerHeader, st.Underlay
		}
		if (st.Encap == scenario.EncapIPIP || st.Encap == scenario.EncapSRv6) && st.IP == 6 {
			o.Proto = 41
		}
		if st.Encap == scenario.EncapSRv6 {
			version = 6
		}
	}
	src, dst := s.ends(st, header)
	o.Src, o.Dst = as16(version, src), as16(version, dst)
	if version == 6 {
		o.Flags |= decode.IPv6
	}
	if !row.outer {
		tag := o
		tag.Kind, tag.Tag = decode.Tag, s.Tag
		if plain {
			tag.Flags |= decode.HasAck
			tag.Ack = s.Ack
		}
		reflection := o
		reflection.Kind, reflection.Tag, reflection.Ack = decode.Reflection, s.Reflection, s.Ack
		reflection.Flags |= decode.HasAck
		if s.Tagged {
			list = append(list, tag)
		}
		if s.Reflects {
			list = append(list, reflection)
		}
		return list
	}
	if s.Tagged {
		o.Kind, o.Tag = decode.Tag, s.Tag
		list = append(list, o)
	}
	return list
}

func as16(version uint8, a uint32) [16]byte {
	return netip.AddrFrom16(scenario.AddressOf(version, a).As16()).As16()
}

func names(s *decode.Stack) string {
	var list []string
	for _, l := range s.Layers() {
		list = append(list, string(l.Append(nil)))
	}
	return strings.Join(list, " ")
}
