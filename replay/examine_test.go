package replay_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// examine emits a scenario and examines its captures.
func examine(t *testing.T, s scenario.Scenario, change func(*replay.ExamineConfig)) *replay.Examined {
	t.Helper()
	report := emittertest.Run(t, s, t.TempDir())
	spec, err := fabric.Load(report.Fabric)
	if err != nil {
		t.Fatal(err)
	}
	f, domain := emittertest.Network(t, report.Fabric)
	cfg := replay.ExamineConfig{
		Files: report.Captures, Decode: decode.Config{Domain: domain}, Finding: finding.Config{Domain: domain, Locator: f},
		Windows: window.Settings{Resolver: f, Flows: window.FlowLimits{Top: 100}, UDPRepeat: window.DefaultUDPRepeat},
		Tap: func(name string) window.Tap {
			spec := tapOf(spec, name)
			tap := window.TapAt(spec.Place, 1)
			tap.Mirrors = spec.Mirrors
			return tap
		},
	}
	if change != nil {
		change(&cfg)
	}
	e, err := replay.Examine(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestFindings checks that each fault visible at a single tap is found by name, and that similar
// legal behavior is not.
func TestFindings(t *testing.T) {
	t.Parallel()
	const none = ""
	tests := []struct {
		name   string
		change func(*scenario.Scenario)
		cfg    func(*replay.ExamineConfig)
		want   string // kind and start of the subject
	}{
		{"nothing", nil, nil, none},
		{"stuck", fault("leaf1:up*", "stuck", func(f *scenario.Behavior) { f.Values = map[string]string{"min_abw": "1Mbps", "min_abw_ratio": "1%"} }), nil, "stuck-port leaf1:up"},
		{"wrong-lm", fault("leaf3:up*", "wrong-lm", nil), nil, "unknown-locator unknown lm"},
		{"lm-only", fault("spine1", "lm-only", nil), nil, "locator-alone spine1:down"},
		{"value-only", fault("spine1", "value-only", nil), nil, "unknown-locator unknown lm 0x00"},
		{"forge", fault("host2-4", "forge", func(f *scenario.Behavior) { f.Values = map[string]string{"max_delay": "100ms", "min_abw": "0Mbps"} }), nil, "forged-value 10.0.2.4"},
		{"no metric", fault("leaf4:*", "missing-metric", nil), nil, none},
		{"stripping", device("leaf2", "strip"), nil, none},
		{"pass-through", device("spine1", "pass-through"), nil, none},
		{"idle", func(s *scenario.Scenario) { s.Workloads = s.Workloads[1:] }, nil, none},
		{"a stranger sends", nil, func(c *replay.ExamineConfig) {
			c.Finding.Senders = []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24"), netip.MustParsePrefix("10.0.2.0/24"), netip.MustParsePrefix("10.0.3.0/24"), netip.MustParsePrefix("10.0.4.0/31")}
		}, "unauthorised-sender 10.0.4."},
		{"outside", nil, func(c *replay.ExamineConfig) {
			c.Tap = func(string) window.Tap { return window.TapAt("outside", 1) }
		}, "leak rack"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := emittertest.Named(t, "rogue")
			s.Duration, s.Faults, s.Devices = 800*time.Millisecond, nil, nil
			if test.name == "stuck" {
				s.Duration = 4 * time.Second // windows are 1 s long
			}
			if test.change != nil {
				test.change(&s)
			}
			e := examine(t, s, test.cfg)
			found := test.want == none && len(e.Findings) == 0
			for _, f := range e.Findings {
				found = found || test.want != none && strings.HasPrefix(f.Kind.String()+" "+f.Subject, test.want) && (len(f.Packets) > 0 || f.Kind == finding.StuckPort) && f.Of >= f.Count
			}
			if !found || e.Observations == 0 {
				t.Errorf("want %q in %+v", test.want, e.Findings)
			}
		})
	}
}

func fault(match, kind string, set func(*scenario.Behavior)) func(*scenario.Scenario) {
	return func(s *scenario.Scenario) {
		f := scenario.Behavior{Match: match, Kind: kind}
		if set != nil {
			set(&f)
		}
		s.Faults = []scenario.Behavior{f}
	}
}

func device(match, kind string) func(*scenario.Scenario) {
	return func(s *scenario.Scenario) { s.Devices = []scenario.Behavior{{Match: match, Kind: kind}} }
}
