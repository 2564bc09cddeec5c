package replay_test

import (
	"os"
	"testing"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// TestFaultFree: without faults nothing is found, in tunnels, brownfields and captures of
// poor quality either; of all scenarios where the table of faults is asked for.
func TestFaultFree(t *testing.T) {
	t.Parallel()
	const short = 200 * time.Millisecond
	scenarios := map[string]time.Duration{
		"partial-deployment": short, "noisy-taps": short, "overlay": short, "mirrors": short,
		"permutation": 2 * time.Second, // flows of constant rate: ports say one value for a time
	}
	if os.Getenv(faultsEnv) != "" {
		for _, name := range scenario.Names() {
			scenarios[name] = max(scenarios[name], time.Second)
		}
		// The metrics of figure5 are constants by configuration, as those of stuck ports are;
		// flows of worst-case are random; fabric-like is a long alltoall.
		for _, name := range []string{"figure5", "worst-case", "fabric-like"} {
			delete(scenarios, name)
		}
	}
	for name, duration := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := scenario.Named(name)
			if err != nil {
				t.Fatal(err)
			}
			s.Duration, s.Faults, s.CaptureUntagged = duration, nil, true
			e := examine(t, s, nil)
			for _, f := range e.Findings {
				t.Errorf("%s %s: %s", f.Kind, f.Subject, f.Evidence)
			}
			if e.Observations == 0 {
				t.Error("nothing was observed")
			}
		})
	}
}

// TestThreeTierFaults: of three stages, findings name the port that writes wrongly, and the
// switch that strips or tags twice.
func TestThreeTierFaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		change func(*scenario.Scenario)
		kind   string
		device string
		port   bool
	}{
		{faults(scenario.Behavior{Match: "core1", Kind: scenario.WrongLM}), "unknown-locator", "core1", true},
		{faults(scenario.Behavior{Match: "agg1-1:down*", Kind: scenario.WrongLM}), "unknown-locator", "agg1-1", true},
		{faults(scenario.Behavior{Match: "core2", Kind: scenario.DoubleTag}), "orphan-tag", "core2", false},
		{devices(scenario.Behavior{Match: "agg2-1", Kind: scenario.Strip}), "stripped-flows", "agg2-1", false},
	} {
		t.Run(test.kind+" "+test.device, func(t *testing.T) {
			t.Parallel()
			s, err := scenario.Named("three-tier")
			if err != nil {
				t.Fatal(err)
			}
			s.Duration, s.CaptureUntagged = 500*time.Millisecond, true
			test.change(&s)
			e := examine(t, s, nil)
			if len(e.Findings) == 0 {
				t.Error("nothing is found")
			}
			for _, f := range e.Findings {
				if f.Kind.String() != test.kind || f.Device != test.device || (f.Port != "") != test.port {
					t.Errorf("%s %s at %q, port %q: %s", f.Kind, f.Subject, f.Device, f.Port, f.Evidence)
				}
			}
		})
	}
}
