package layers

import (
	"fmt"

	"github.com/csigscope/csigscope/decode/csig"
)

// checkFields says which field of a tag does not fit its layout: cut to it, it
// would be another measurement.
func checkFields(t csig.Tag) error {
	l := t.Layout
	if l.Format.DataLen() == 0 || (l.Profile != csig.IETF01 && l.Profile != csig.UEC050) {
		return fmt.Errorf("%s is no layout of a tag: set Layout", l)
	}
	maxR := 1
	if l.Format == csig.Wide {
		maxR = 255
	}
	for _, f := range [...]struct {
		name       string
		value, max int
	}{
		{"signal type", int(t.T), l.Types() - 1},
		{"signal", int(t.S), int(l.MaxS())},
		{"locator metadata", int(t.LM), 1<<l.LMBits() - 1},
		{"reserved field", int(t.R), maxR},
	} {
		if f.value > f.max {
			return fmt.Errorf("%s %d does not fit %s: expected at most %d", f.name, f.value, l, f.max)
		}
	}
	if t.D && l.Profile != csig.UEC050 {
		return fmt.Errorf("%s has no bit for a trimmed tag", l)
	}
	return nil
}

// fields is the text of a tag's fields. The reserved field and the bit for trimmed
// tags are shown when they are set.
func fields(t csig.Tag) string {
	s := fmt.Sprintf("%s %s S=%d LM=%d", t.Layout, t.Signal(), t.S, t.LM)
	if t.D {
		s += " D"
	}
	if t.R != 0 {
		s += fmt.Sprintf(" R=%d", t.R)
	}
	return s
}
