package replay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// TestWrongLayouts reads tags of each layout as every other layout. The only finding must be the
// suggestion of the correct layout, without consequential findings.
func TestWrongLayouts(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for i := range csig.NumLayouts {
		is := csig.LayoutAt(i)
		s := layoutScenario(t, is)
		report := emittertest.Run(t, s, t.TempDir())
		for k := range csig.NumLayouts {
			as := csig.LayoutAt(k)
			for _, both := range []bool{false, true} {
				if both && (is == as || is.Format != as.Format) {
					continue
				}
				t.Run(fmt.Sprintf("%s as %s, %t", is, as, both), func(t *testing.T) {
					var want string
					switch {
					case is == as:
					case is.Format != as.Format:
						want = "wrong-format " + as.String()
					case is.Format == csig.Wide || both:
						want = "wrong-profile " + as.String()
					default:
						// Port classes have different field widths in the two profiles, so the
						// meaning in the other profile is unknown.
						want = "unknown-locator"
					}
					for _, f := range examineAs(t, is, as, report.Captures, both).Findings {
						if got := f.Kind.String() + " " + f.Subject; want == "" || !strings.HasPrefix(got, want) {
							t.Errorf("want %q, found %s: %s", want, got, f.Evidence)
						}
						found[want] = true
					}
				})
			}
		}
	}
	if len(found) != 2*csig.NumLayouts+1 { // one for the profile and one for the format of each, and compact locators
		t.Errorf("found %v", found)
	}
}

func layoutScenario(t *testing.T, l csig.Layout) scenario.Scenario {
	t.Helper()
	s := emittertest.Named(t, "alltoall")
	s.Duration = 100 * time.Millisecond
	return s.WithLayout(l)
}

// examineAs examines captures of one layout with a fabric file that assigns the TPID to another
// layout and describes the locators of that layout, or of both.
func examineAs(t *testing.T, is, as csig.Layout, captures []string, both bool) *replay.Examined {
	t.Helper()
	spec, err := scenario.Fabric(layoutScenario(t, as))
	if err != nil {
		t.Fatal(err)
	}
	meant, err := scenario.Fabric(layoutScenario(t, is))
	if err != nil {
		t.Fatal(err)
	}
	spec.CSIG.TPIDs[0].TPID = meant.CSIG.TPIDs[0].TPID
	if both {
		spec.CSIG.Locators = append(spec.CSIG.Locators, meant.CSIG.Locators...)
	}
	domain, err := csig.DefaultSpec().Overlay(spec.CSIG).Compile()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fabric.New(spec, domain)
	if err != nil {
		t.Fatal(err)
	}
	e, err := replay.Examine(t.Context(), replay.ExamineConfig{
		Files: captures, Decode: decode.Config{Domain: domain}, Finding: finding.Config{Domain: domain, Locator: f},
		Tap: func(string) window.Tap { return window.TapAt("", 1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}
