package finding

import (
	"strings"
	"testing"

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
