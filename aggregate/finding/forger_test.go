package finding

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestFeigned: a sender is found that writes values with the locator of a port which writes
// different ones for others, together with the edge that lets it; but not a port that writes the
// same for all, nor a flow that has the port for itself.
func TestFeigned(t *testing.T) {
	t.Parallel()
	feigns := func(f closFlow, tag *csig.Tag, s uint32) {
		if f.src == [2]int{1, 1} {
			tag.S, tag.LM = s, upID(1, 1)
		}
	}
	for name, test := range map[string]struct {
		tag  func(i int, f closFlow, tag *csig.Tag)
		want string
	}{
		"feigned":       {func(_ int, f closFlow, tag *csig.Tag) { feigns(f, tag, 5000) }, "forged-value 10.0.1.1, scrub-failure leaf1"},
		"of no load":    {func(_ int, f closFlow, tag *csig.Tag) { feigns(f, tag, 60) }, ""},
		"not one value": {func(i int, f closFlow, tag *csig.Tag) { feigns(f, tag, uint32(5000+i%3)) }, ""},
		"to others as well": {func(i int, f closFlow, tag *csig.Tag) {
			if feigns(f, tag, 5000); f.src == [2]int{1, 2} && i%3 == 0 {
				tag.S, tag.LM = 5000, upID(1, 1)
			}
		}, ""},
		"few": {func(i int, f closFlow, tag *csig.Tag) {
			if i < 2 {
				feigns(f, tag, 5000)
			}
		}, ""},
	} {
		n := newNetwork(t)
		n.tag = func(i int, f closFlow, tag *csig.Tag) bool {
			test.tag(i, f, tag)
			return true
		}
		n.mark = func(f closFlow, o *decode.Observation) {
			if f.src[0] == f.dst[0] {
				o.Tag = csig.Tag{Layout: wide, T: 2} // its packets pass no such port
			}
		}
		n.mesh(300)
		var got []string
		for _, f := range n.Findings() {
			got = append(got, f.Kind.String()+" "+f.Subject)
		}
		if text := strings.Join(got, ", "); text != test.want {
			t.Errorf("%s: found %q, want %q", name, text, test.want)
		}
	}
}

// TestTapInFront: a source is cleared of values that a tap in front of them shows without them, in
// the same flows and at the same time; not by a tap that misses the forged packets, or that is behind
// an edge that resets them.
func TestTapInFront(t *testing.T) {
	t.Parallel()
	const forged, cleared = "forged-value 10.0.1.1, scrub-failure leaf1", "unknown-locator unknown lm 7"
	wrong := csig.Tag{Layout: wide, T: 2, S: forgedDelay, LM: 7}
	every := func(int, closFlow) bool { return true }
	never := func(int, closFlow) bool { return false }
	fourth := func(i int, _ closFlow) bool { return i%4 == 0 }
	toOne := func(i int, f closFlow) bool { return f.dst[1] == 1 && i%2 == 0 }
	for name, test := range map[string]struct {
		// sees are the packets that the tap in front captures. Wrong values of 10.0.1.1 are there in
		// packets of front, and behind the first device in those of behind.
		sees, front, behind func(int, closFlow) bool
		from                int   // the first packet that the tap behind captures
		ttl                 uint8 // at the tap behind, 0 if unknown
		place               Place
		want                string
	}{
		"a port writes":           {every, never, fourth, 0, 63, Mid, cleared},
		"receivers":               {every, never, fourth, 0, 63, Receiver, cleared},
		"a sender's tap":          {every, never, fourth, 0, 63, Sender, cleared},
		"forges":                  {every, fourth, fourth, 0, 63, Mid, forged},
		"forges to one":           {every, toOne, toOne, 0, 63, Mid, forged},
		"forges, no tap in front": {never, never, fourth, 0, 63, Mid, forged},
		"forges, and is scrubbed": {every, fourth, never, 0, 63, Mid, forged},
		"an unknown place":        {every, never, fourth, 0, 0, Mid, forged},
		"other flows":             {func(_ int, f closFlow) bool { return f.dst[1] == 2 }, never, toOne, 0, 63, Mid, forged},
		"a handful":               {func(i int, _ closFlow) bool { return i%4 == 1 }, never, fourth, 0, 63, Mid, forged},
		"before it forges":        {func(i int, _ closFlow) bool { return i < 100 }, never, fourth, 100, 63, Mid, forged},
	} {
		n := newNetwork(t)
		front, behind := &Tap{Name: "front", File: "f.pcap", Place: test.place}, &Tap{Name: "behind", File: "b.pcap", Place: min(test.place, Mid)}
		show := func(tap *Tap, ttl uint8, f closFlow, bad bool, tag csig.Tag) {
			if bad && f.src == [2]int{1, 1} {
				tag = wrong
			}
			n.packets++
			o := decode.Observation{
				TimeNS: int64(n.packets) * int64(50*time.Microsecond), Packet: n.packets, Kind: decode.Tag, Flags: decode.HasAddrs,
				Src: netip.AddrFrom4([4]byte{10, 0, byte(f.src[0]), byte(f.src[1])}).As16(), Dst: netip.AddrFrom4([4]byte{10, 0, byte(f.dst[0]), byte(f.dst[1])}).As16(), Tag: tag,
			}
			n.Frame(tap, &Frame{TTL: ttl})
			n.Observe(tap, &o)
		}
		for i := range 200 {
			for k := range 8 {
				f := closFlow{src: [2]int{1 + k/4, 1 + k/2%2}, dst: [2]int{3, 1 + k%2}}
				if test.sees(i, f) {
					show(front, 64, f, test.front(i, f), csig.Tag{Layout: wide, T: 2})
				}
				if i >= test.from {
					show(behind, test.ttl, f, test.behind(i, f), csig.Tag{Layout: wide, T: 2, S: uint32(100 + i%50), LM: upID(f.src[0], 1+i%2)})
				}
			}
		}
		var got []string
		for _, f := range n.Findings() {
			got = append(got, f.Kind.String()+" "+f.Subject)
		}
		if text := strings.Join(got, ", "); text != test.want {
			t.Errorf("%s: found %q, want %q", name, text, test.want)
		}
	}
}
