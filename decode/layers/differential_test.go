package layers_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// tally counts the compared frames, and the others by reason.
type tally struct {
	frames, tags, transports int
	orphans, inside          int
	reflections, withTags    int
	not                      map[string]int
}

// TestDifferential compares the fast decoder with gopacket: over every golden frame and fuzz
// corpus, over segments written by gopacket, and over mutations of them all.
func TestDifferential(t *testing.T) {
	t.Parallel()
	domain := compile(t, testSpec())
	d := newDecoder(t, domain)
	rng := rand.New(rand.NewPCG(14, 30))
	base := frames(t)
	for range 2 * len(base) {
		base = append(base, segment(t, rng, domain))
	}
	n := tally{not: map[string]int{}}
	for _, frame := range base {
		n.compare(t, domain, d, frame)
	}
	mutations := 150_000
	if testing.Short() {
		mutations = 10_000
	}
	for range mutations {
		n.compare(t, domain, d, mutate(rng, base[rng.IntN(len(base))]))
	}
	t.Log(&n)
	for _, c := range []struct {
		what    string
		got     int
		atLeast float64 // of the frames
	}{
		{"frames with all of L2 compared", n.tags, 0.9},
		{"frames with a tag", n.withTags, 0.5},
		{"frames with TCP compared", n.transports, 0.2},
		{"frames with a reflection", n.reflections, 0.1},
		{"orphan tags", n.orphans, 0.1},
	} {
		if share := float64(c.got) / float64(n.frames); share < c.atLeast {
			t.Errorf("%s: %d, a share of %.3f, want at least %g", c.what, c.got, share, c.atLeast)
		}
	}
}

// FuzzDifferential checks for any bytes that both decoders agree.
func FuzzDifferential(f *testing.F) {
	for _, frame := range frames(f) {
		f.Add(frame)
	}
	domain := compile(f, testSpec())
	f.Fuzz(func(t *testing.T, frame []byte) {
		n := tally{not: map[string]int{}}
		n.compare(t, domain, newDecoder(t, domain), frame)
	})
}

func newDecoder(t testing.TB, domain *csig.Domain) *decode.Decoder {
	t.Helper()
	d, err := decode.New(decode.Config{Domain: domain})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// compare decodes the frame with both and counts; it fails if they disagree.
func (n *tally) compare(t testing.TB, domain *csig.Domain, d *decode.Decoder, frame []byte) {
	t.Helper()
	var r decode.Result
	d.Decode(frame, &r)
	h := listen(t, domain, frame)
	n.frames++
	why := n.compareTags(&r, &h)
	if why == "" {
		why = n.compareTCP(&r, &h)
	}
	if why != "" {
		t.Fatalf("%s\ngopacket %+v\ndecoder %s, %v, %+v\n%x", why, h, r.Reason, r.Encap.Layers(), r.Obs[:r.N], frame)
	}
}

func (n *tally) compareTags(r *decode.Result, h *heard) (disagreement string) {
	tags := observed(r, decode.Tag)
	both := min(len(tags), len(h.l2))
	for i, o := range tags[:both] {
		if got, want := (foundTag{o.Tag, o.Flags&decode.Orphan != 0}), h.l2[i]; got != want {
			return fmt.Sprintf("tag %d is %+v, gopacket says %+v", i, got, want)
		}
		if h.l2[i].orphan {
			n.orphans++
		}
	}
	if both > 0 {
		n.withTags++
	}
	if both < len(h.l2) && r.Reason != decode.TooDeep {
		return fmt.Sprintf("%d tags of %d", both, len(h.l2))
	}
	if h.noL2 != "" {
		n.not["L2: "+h.noL2]++
		return ""
	}
	n.tags++
	inside := tags[both:]
	for i, o := range inside {
		switch {
		case o.Flags&decode.Orphan == 0:
			return fmt.Sprintf("tag %d is no orphan, gopacket finds none there", both+i)
		case !tunnelled(r):
			return fmt.Sprintf("tag %d is in no tunnel and in no L2", both+i)
		case i >= len(h.inside):
			n.not["tunnel: gopacket finds no tag in it"]++
		case o.Tag != h.inside[i]:
			return fmt.Sprintf("tag %d is %+v, gopacket says %+v", both+i, o.Tag, h.inside[i])
		default:
			n.inside++
		}
	}
	return ""
}

func (n *tally) compareTCP(r *decode.Result, h *heard) (disagreement string) {
	switch {
	case h.noL2 != "":
		return ""
	case r.Reason == decode.TooDeep:
		n.not["TCP: deeper than the decoder follows"]++
		return ""
	case h.noTCP != "":
		n.not["TCP: "+h.noTCP]++
		return ""
	}
	n.transports++
	got := observed(r, decode.Reflection)
	want := h.reflected[:min(len(h.reflected), decode.MaxObservations-(r.N-len(got)))]
	if len(want) > 0 {
		n.reflections++
	}
	if !slices.EqualFunc(got, want, func(o decode.Observation, t csig.Tag) bool { return o.Tag == t }) {
		return fmt.Sprintf("%d reflections, gopacket says %+v", len(got), want)
	}
	for _, o := range r.Obs[:r.N] {
		src, dst := o.Addrs()
		if src != h.src || dst != h.dst || o.SrcPort != h.srcPort || o.DstPort != h.dstPort {
			return fmt.Sprintf("from %s:%d to %s:%d, gopacket says %s:%d to %s:%d",
				src, o.SrcPort, dst, o.DstPort, h.src, h.srcPort, h.dst, h.dstPort)
		}
	}
	return ""
}

func observed(r *decode.Result, kind decode.Kind) []decode.Observation {
	var found []decode.Observation
	for _, o := range r.Obs[:r.N] {
		if o.Kind == kind {
			found = append(found, o)
		}
	}
	return found
}

// tunnelled reports whether the decoder has parsed more than the tags of one L2.
func tunnelled(r *decode.Result) bool {
	return slices.ContainsFunc(r.Encap.Layers(), func(l decode.Layer) bool {
		return l.Encap != decode.VLAN && l.Encap != decode.MACsec
	})
}

// String lists the counts, and the reasons for frames that were not compared.
func (n *tally) String() string {
	var b strings.Builder
	share := func(what string, count int) {
		fmt.Fprintf(&b, "%8d %5.1f %%  %s\n", count, 100*float64(count)/float64(n.frames), what)
	}
	share("frames", n.frames)
	share("L2 compared", n.tags)
	share("with tags", n.withTags)
	share("orphan tags", n.orphans)
	share("tags in tunnels compared", n.inside)
	share("TCP compared", n.transports)
	share("with reflections", n.reflections)
	for _, why := range slices.Sorted(maps.Keys(n.not)) {
		share("not compared: "+why, n.not[why])
	}
	return "\n" + b.String()
}
