package emitter

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestDumpIsReadBack: every named scenario is one file, in wide and in compact tags,
// that gives the same scenario again.
func TestDumpIsReadBack(t *testing.T) {
	for _, name := range Names() {
		for _, compact := range []bool{false, true} {
			s, err := Named(name)
			if err != nil {
				t.Fatal(err)
			}
			if compact {
				s = s.WithLayout(compactIETF)
			}
			if s.Summary == "" || strings.Contains(s.Summary, "\n") {
				t.Errorf("%s: summary %q, want one line", name, s.Summary)
			}
			var text bytes.Buffer
			if err := Dump(&text, s); err != nil {
				t.Fatal(err)
			}
			got, err := Parse(bytes.NewReader(text.Bytes()), name)
			if err != nil {
				t.Fatalf("%v\n%s", err, text.String())
			}
			if diff := cmp.Diff(s, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s differs (-dumped +read):\n%s", name, diff)
			}
			one, err := s.ID()
			if err != nil {
				t.Fatal(err)
			}
			if two, err := got.ID(); err != nil || one != two {
				t.Errorf("%s: identities %x and %x, %v", name, one, two, err)
			}
		}
	}
}
