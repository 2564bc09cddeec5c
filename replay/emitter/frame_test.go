package emitter

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/gopacket"

	"github.com/csigscope/csigscope/decode/csig"
)

// everyStyle is every encapsulation between hosts and between leaves, with both IP
// versions inside and outside.
func everyStyle() (list []style) {
	for e := range encapsulation(numEncapsulations) {
		for _, leaves := range []bool{false, true} {
			for _, ip := range []uint8{4, 6} {
				for _, underlay := range []uint8{4, 6} {
					list = append(list, style{encap: e, leaves: leaves, ip: ip, underlay: underlay})
				}
			}
		}
	}
	return list
}

// TestFramesAreGopackets holds frames made from templates against the same frames
// written one by one by gopacket, checksums and lengths included.
func TestFramesAreGopackets(t *testing.T) {
	encodings := []csig.Reflection{
		{Kind: 253, ExID: 0xc516, ExIDLen: 2},
		{Kind: 254, ExID: 0xc5160001, ExIDLen: 4},
		{Kind: 200, Payload: true},
	}
	rng := stream(3, 9)
	for i := range csig.NumLayouts {
		for _, r := range encodings {
			l := csig.LayoutAt(i)
			r.Profiles = [2]csig.Profile{l.Profile, l.Profile}
			f, err := newFramer(l, 0x9900, r, everyStyle())
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

func checkFrame(t *testing.T, rng *random, f *framer, style uint8) {
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
	name := fmt.Sprintf("%s %+v", f.layout, f.styles[style].style)
	if !bytes.Equal(got, want) {
		t.Fatalf("%s: %+v:\n%x, gopacket writes\n%x", name, s, got, want)
	}
	if len(got) != s.length {
		t.Fatalf("%s: %d bytes, want %d", name, len(got), s.length)
	}
	cut := int(rng.below(uint64(len(got))))
	if short := f.append(nil, &s, cut); !bytes.Equal(short, got[:cut]) {
		t.Fatalf("%s: cut at %d:\n%x, want\n%x", name, cut, short, got[:cut])
	}
}

func randomSegment(rng *random, f *framer, style uint8) segment {
	b := make([]byte, 20)
	for i := range b {
		b[i] = byte(rng.next())
	}
	s := segment{
		link: link(b[8:]),
		tuple: fiveTuple{
			src: uint32(rng.next()), dst: uint32(rng.next()),
			srcPort: uint16(rng.next()), dstPort: uint16(rng.next()),
		},
		style: style, id: uint32(rng.next()), hops: uint8(rng.below(6)), outerHops: uint8(rng.below(6)),
		sequence: uint32(rng.next()), ack: uint32(rng.next()), stamp: uint32(rng.next()), echo: uint32(rng.next()),
		tagged: rng.below(2) == 0, reflects: rng.below(2) == 0,
		tag: csig.Parse(f.layout, b), reflection: csig.Parse(f.layout, b[1:]),
	}
	s.length = f.ackLen(style, s.reflects) + int(rng.below(3))*int(rng.below(1500))
	if s.tagged {
		s.length += f.tagLen()
	}
	if s.wrapped = f.styles[style].encap != encapNone && rng.below(4) > 0; s.wrapped {
		s.length += f.overhead(style)
	}
	return s
}

// BenchmarkFrame is the cost of one frame's headers, by what it carries.
func BenchmarkFrame(b *testing.B) {
	f, err := newFramer(wideUEC, 0x88b6, uecReflection, []style{
		{ip: 4, underlay: 4}, {encap: encapVXLAN, ip: 4, underlay: 4}, {encap: encapGREFlags, ip: 6, underlay: 6}, {encap: encapESP, ip: 4, underlay: 4},
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name             string
		style            uint8
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
			s := segment{
				tuple: fiveTuple{src: 0x0a000001, dst: 0x0a000102, srcPort: 40000, dstPort: 5001},
				style: c.style, wrapped: c.style > 0,
				hops: 3, sequence: 1 << 20, ack: 1, stamp: 7, echo: 6, tagged: c.tagged, reflects: c.reflects,
			}
			s.tag.Layout, s.reflection.Layout = f.layout, f.layout
			s.length = f.ackLen(c.style, c.reflects)
			if c.tagged {
				s.length += f.tagLen()
			}
			if s.wrapped {
				s.length += f.overhead(c.style)
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
