package decode_test

import (
	"testing"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// hotFrames are the most common frames at taps.
var hotFrames = []string{
	"compact_ietf01_tcp", "tag_and_reflection", "reflection", "untagged_tcp", "untagged_udp",
	"wide_uec050_udp", "compact_uec050_trimmed_ipv6", "qinq_tcp", "ipv6_extensions", "vxlan", "mpls_stack",
}

func BenchmarkDecode(b *testing.B) {
	dom := domain(b, csig.DefaultSpec())
	for _, name := range hotFrames {
		frame := goldenFrame(b, name)
		b.Run(name, func(b *testing.B) {
			d := decoder(b, dom)
			var r decode.Result
			b.ReportAllocs()
			for b.Loop() {
				d.Decode(frame, &r)
			}
		})
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	dom := domain(b, csig.DefaultSpec())
	d := decoder(b, dom)
	var r decode.Result
	d.Decode(goldenFrame(b, "tag_and_reflection"), &r)
	dst := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		dst = r.Obs[0].AppendJSON(dst[:0], dom, &r.Encap)
	}
}

func TestNoAllocations(t *testing.T) {
	dom := domain(t, csig.DefaultSpec())
	d := decoder(t, dom)
	for _, g := range goldens(t) {
		var r decode.Result
		dst := make([]byte, 0, 512)
		n := testing.AllocsPerRun(20, func() {
			decodeStripped(d, g.Data, 0x8100, 7, &r)
			d.Decode(g.Data, &r)
			for i := range r.Obs[:r.N] {
				dst = r.Obs[i].AppendJSON(dst[:0], dom, &r.Encap)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", g.Name, n)
		}
		if len(dst) > 512 {
			t.Errorf("%s: %d bytes of JSON", g.Name, len(dst))
		}
	}
}

// BenchmarkUnwrap measures the search for a mirror session in a frame that has none, and the
// removal of one.
func BenchmarkUnwrap(b *testing.B) {
	for _, bench := range []struct {
		name  string
		frame []string
		want  decode.Mirror
	}{
		{"none", []string{outerMAC, "0800 4500 0036 0000 4000 4006 0000 c0000201 c0000202", mirrored, mirrored}, decode.MirrorNone},
		{"type III", append(mirrorCases[4].outer, mirrored), decode.MirrorOK},
	} {
		b.Run(bench.name, func(b *testing.B) {
			data := join(b, bench.frame...)
			f := decode.Frame{Data: data, WireLen: uint32(len(data))}
			b.ReportAllocs()
			for b.Loop() {
				if _, _, m := onlyERSPAN.Unwrap(&f); m != bench.want {
					b.Fatal(m)
				}
			}
		})
	}
}
