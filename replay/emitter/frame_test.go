package emitter

import (
	"bytes"
	"testing"

	"github.com/google/gopacket"

	"github.com/csigscope/csigscope/decode/csig"
)

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
			f, err := newFramer(l, 0x9900, r, 4)
			if err != nil {
				t.Fatalf("%s: %v", l, err)
			}
			for range 400 {
				s := randomSegment(&rng, &f)
				got := f.append(nil, &s, 1<<14)
				want, err := f.serialize(&s, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true})
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					t.Fatalf("%s, kind %d: %+v:\n%x, gopacket writes\n%x", l, r.Kind, s, got, want)
				}
				cut := int(rng.below(uint64(len(got))))
				f.identifier[s.from]--
				if short := f.append(nil, &s, cut); !bytes.Equal(short, got[:cut]) {
					t.Fatalf("%s: cut at %d:\n%x, want\n%x", l, cut, short, got[:cut])
				}
			}
		}
	}
}

func randomSegment(rng *random, f *framer) segment {
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(rng.next())
	}
	s := segment{
		tuple: fiveTuple{
			src: uint32(rng.next()), dst: uint32(rng.next()),
			srcPort: uint16(rng.next()), dstPort: uint16(rng.next()),
		},
		from: int32(rng.below(4)), rack: int(rng.below(100)), hops: int(rng.below(6)),
		sequence: uint32(rng.next()), ack: uint32(rng.next()), stamp: uint32(rng.next()), echo: uint32(rng.next()),
		tagged: rng.below(2) == 0, reflects: rng.below(2) == 0,
		tag: csig.Parse(f.layout, b), reflection: csig.Parse(f.layout, b[1:]),
	}
	s.length = f.ackLen(s.reflects) + int(rng.below(3))*int(rng.below(1500))
	if s.tagged {
		s.length += f.tagLen()
	}
	return s
}

// BenchmarkFrame is the cost of one frame's headers, by what it carries.
func BenchmarkFrame(b *testing.B) {
	m := prepare(b, tiny())
	for _, c := range []struct {
		name             string
		tagged, reflects bool
	}{{"plain", false, false}, {"tag", true, false}, {"reflection", false, true}, {"both", true, true}} {
		b.Run(c.name, func(b *testing.B) {
			f := &m.framer
			s := segment{
				tuple: fiveTuple{src: 0x0a000001, dst: 0x0a000102, srcPort: 40000, dstPort: 5001},
				hops:  3, sequence: 1 << 20, ack: 1, stamp: 7, echo: 6, tagged: c.tagged, reflects: c.reflects,
			}
			s.tag.Layout, s.reflection.Layout = f.layout, f.layout
			s.length = f.ackLen(c.reflects)
			if c.tagged {
				s.length += f.tagLen()
			}
			frame := make([]byte, 0, 256)
			b.ReportAllocs()
			for b.Loop() {
				frame = f.append(frame[:0], &s, 256)
			}
		})
	}
}
