package finding

import (
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
)

// TestLostValue: a device is found that overwrites the values of the first ports of paths; but not
// one that adds more delay itself, nor first devices that leave the value to others.
func TestLostValue(t *testing.T) {
	t.Parallel()
	const least, more = 100, 130
	// sound is the tag of a quiet fabric, where another port sometimes has a queue.
	sound := func(i int, f closFlow, tag *csig.Tag) {
		tag.S, tag.LM = least, upID(f.src[0], f.spine)
		if i%7 == 0 {
			tag.S, tag.LM = more, downID(f.spine, f.dst[0])
		}
	}
	for name, test := range map[string]struct {
		tag  func(i int, f closFlow, tag *csig.Tag)
		want string
	}{
		"sound": {func(int, closFlow, *csig.Tag) {}, ""},
		"set back": {func(_ int, f closFlow, tag *csig.Tag) {
			if f.spine == 1 {
				tag.S, tag.LM = least, hostID(f.dst[0], f.dst[1])
			}
		}, "lost-value spine1"},
		"written over": {func(_ int, f closFlow, tag *csig.Tag) {
			if f.spine == 2 {
				tag.S, tag.LM = least, downID(2, f.dst[0])
			}
		}, "lost-value spine2"},
		"from some time on": {func(i int, f closFlow, tag *csig.Tag) {
			if f.spine == 2 && i > 50 {
				tag.S, tag.LM = least, downID(2, f.dst[0])
			}
		}, "lost-value spine2"},
		"written over at receivers": {func(_ int, f closFlow, tag *csig.Tag) {
			if f.dst[0] == 2 {
				tag.S, tag.LM = least, hostID(2, f.dst[1])
			}
		}, "lost-value leaf2"},
		"a slow device": {func(_ int, f closFlow, tag *csig.Tag) {
			if f.spine == 1 {
				tag.S, tag.LM = least+1, downID(1, f.dst[0])
			}
		}, ""},
		"a first device that does not write": {func(_ int, f closFlow, tag *csig.Tag) {
			if f.src[0] == 1 {
				tag.S, tag.LM = least, downID(f.spine, f.dst[0])
			}
		}, ""},
		"first devices that do not write in one direction": {func(_ int, f closFlow, tag *csig.Tag) {
			if f.src[0] != 3 {
				tag.S, tag.LM = least, downID(f.spine, f.dst[0])
			}
		}, ""},
		"first devices that write at times": {func(i int, f closFlow, tag *csig.Tag) {
			if f.spine == 1 && i%2 == 0 {
				tag.S, tag.LM = least, downID(1, f.dst[0])
			}
		}, ""},
		"first devices that write from some time on": {func(i int, f closFlow, tag *csig.Tag) {
			if i < 50 {
				tag.S, tag.LM = least, downID(f.spine, f.dst[0])
			}
		}, ""},
		"all from some time on": {func(i int, f closFlow, tag *csig.Tag) {
			if i > 50 {
				tag.S, tag.LM = least, downID(f.spine, f.dst[0])
			}
		}, ""},
	} {
		n := newNetwork(t)
		n.tag = func(i int, f closFlow, tag *csig.Tag) bool {
			sound(i, f, tag)
			test.tag(i, f, tag)
			return true
		}
		n.mesh(100)
		if got := n.found(); got != test.want {
			t.Errorf("%s: found %q, want %q", name, got, test.want)
		}
	}
}
