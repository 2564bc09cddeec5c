package finding

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// stepBytes is the number of bytes of an observation in FuzzDetector.
const stepBytes = 20

// read makes an observation from bytes: of 16 hosts in 4 racks, or of others.
func read(b []byte, n uint64) (tap Tap, o decode.Observation, bare bool) {
	tap = Tap{Name: "tap", File: "f.pcap", Place: Place(b[0] & 3)}
	o = decode.Observation{
		TimeNS: int64(binary.BigEndian.Uint64(b[12:])), Packet: n, Kind: decode.Tag, Flags: decode.Flags(b[1] & 15), Proto: b[2],
		SrcPort: uint16(b[3]), DstPort: uint16(b[4]), Tag: csig.Parse(csig.LayoutAt(int(b[0]>>2)%csig.NumLayouts), b[6:12]),
	}
	if b[1]&16 != 0 {
		o.Kind = decode.Reflection
	}
	host := func(c byte) [16]byte {
		if c&0x80 != 0 {
			return netip.AddrFrom4([4]byte{10, 1, c, b[5]}).As16()
		}
		return netip.AddrFrom4([4]byte{10, 0, 1 + c&3, 1 + c>>2&3}).As16()
	}
	o.Src, o.Dst = host(b[3]), host(b[4])
	return tap, o, b[1]&32 != 0
}

// FuzzDetector checks properties for any observations: findings have a subject and evidence,
// ordered times, at most the maximum number of packets, and counts of at most their totals; and the
// same observations give the same findings.
func FuzzDetector(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := make([]byte, 40*stepBytes)
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	f.Add(random)
	f.Add(slices.Repeat([]byte{12, 3, 6, 1, 2, 0, 0, 0, 0x20, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 30))
	f.Fuzz(func(t *testing.T, b []byte) {
		first, again := newNetwork(t), newNetwork(t)
		for n := uint64(1); len(b) >= stepBytes && n < 2000; n++ {
			for _, d := range []*network{first, again} {
				tap, o, bare := read(b, n)
				d.Frame(&tap, &Frame{
					TimeNS: o.TimeNS, Number: n, Content: uint64(b[2]), Repeated: b[1]&64 != 0, Class: Class{VLAN: uint16(b[5]), DSCP: b[2]},
					Sent: uint64(b[7]), Flow: uint64(b[3]), End: uint32(b[8]), Acked: uint64(b[9]), AckedFlow: uint64(b[4]), Ack: uint32(b[10]),
				})
				o.Bytes = uint32(b[8]) << 3
				if bare {
					d.ObserveUntagged(&tap, &o, o.Tag.D)
				} else {
					d.Observe(&tap, &o)
				}
			}
			b = b[stepBytes:]
		}
		list := first.Findings()
		for i := range list {
			one := &list[i]
			if one.Subject == "" || one.Evidence == "" || one.From > one.To || len(one.Packets) > maxPackets || one.Count > one.Of || one.Count == 0 {
				t.Errorf("%+v", one)
			}
		}
		if x, y := first.found(), again.found(); x != y {
			t.Errorf("once %q, again %q", x, y)
		}
	})
}

// TestNoAllocations: observations of any kind and untagged packets allocate nothing once their
// subjects are known.
func TestNoAllocations(t *testing.T) {
	n := newNetwork(t)
	rng := rand.New(rand.NewPCG(3, 4))
	const many = 4000
	var taps [many]Tap
	var list [many]decode.Observation
	var bare [many]bool
	var b [stepBytes]byte
	for k := range many {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		taps[k], list[k], bare[k] = read(b[:], uint64(k))
	}
	show := func() {
		for k := range many {
			if bare[k] {
				n.ObserveUntagged(&taps[k], &list[k], true)
			} else {
				n.Observe(&taps[k], &list[k])
			}
		}
	}
	for range 100 {
		show() // until all have their named packets
	}
	if got := testing.AllocsPerRun(10, show); got != 0 {
		t.Errorf("%g allocations of %d observations", got, many)
	}
}

// BenchmarkObserve measures the cost of an observation: in a fabric without a fault, and at random.
func BenchmarkObserve(b *testing.B) {
	n := newNetwork(b)
	tap := Tap{Name: "tap", File: "f.pcap"}
	var clean, random []decode.Observation
	n.mark = func(_ closFlow, o *decode.Observation) { clean = append(clean, *o) }
	n.mesh(20)
	rng := rand.New(rand.NewPCG(5, 6))
	var bytes [stepBytes]byte
	for range 4096 {
		for i := range bytes {
			bytes[i] = byte(rng.Uint32())
		}
		_, o, _ := read(bytes[:], 1)
		random = append(random, o)
	}
	for _, run := range []struct {
		name string
		list []decode.Observation
	}{{"clean", clean}, {"random", random}} {
		b.Run(run.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				n.Observe(&tap, &run.list[i%len(run.list)])
			}
		})
	}
}
