package replay_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// seedsEnv is the number of seeds per scenario without faults, 1 by default.
const seedsEnv = "CSIGSCOPE_TEST_SEEDS"

// TestFaultFree checks that nothing is found without faults, with wide and compact tags, in
// tunnels, partial deployments and poor captures, except errors of the taps themselves. If the
// table of faults is requested, it covers all scenarios.
func TestFaultFree(t *testing.T) {
	t.Parallel()
	const short = 200 * time.Millisecond
	scenarios := map[string]time.Duration{
		"partial-deployment": short, "noisy-taps": short, "overlay": short, "mirrors": short,
		"probes":      2 * time.Second, // senders tag only some flows
		"permutation": 4 * time.Second, // flows of constant rate: ports report the same value for some time
	}
	if os.Getenv(faultsEnv) != "" {
		for _, name := range scenario.Names() {
			scenarios[name] = 4 * time.Second // minimum time to detect a stuck port
		}
		// figure5 has constant metrics by configuration, like stuck ports; worst-case has random
		// flows; fabric-like is a long alltoall.
		for _, name := range []string{"figure5", "worst-case", "fabric-like"} {
			delete(scenarios, name)
		}
		for name := range scenarios {
			if strings.HasPrefix(name, "fairness") { // seconds of its fast flows take minutes
				scenarios[name] = time.Second
			}
		}
	}
	seeds, _ := strconv.ParseUint(os.Getenv(seedsEnv), 10, 16)
	for i, name := range slices.Sorted(maps.Keys(scenarios)) {
		formats, duration := []csig.Format{csig.Wide, csig.Compact}, scenarios[name]
		if testing.Short() { // in turn
			formats = formats[i%2:][:1]
		}
		for _, format := range formats {
			for seed := range max(seeds, 1) {
				t.Run(fmt.Sprint(name, " ", format, " ", seed), func(t *testing.T) {
					t.Parallel()
					s := emittertest.Named(t, name)
					s = s.WithLayout(csig.Layout{Format: format, Profile: s.Layout.Profile})
					if _, err := scenario.Fabric(s); err != nil && format == csig.Compact {
						t.Skipf("SKIPPED: the fabric does not fit compact tags: %v", err)
					}
					s.Seed += seed
					faultless(t, s, duration)
				})
			}
		}
	}
}

// TestSteadyLoad shows that a port under steady load reports one of 32 codes for as long as a stuck
// port: with flows of a constant 950 Mbit/s, correct ports of 1 Gbit/s report 46.9 Mbit/s available
// in up to 8,100 of 8,100 observations of 3 s. So bandwidth alone must not reveal either.
func TestSteadyLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: seconds of full links take long")
	}
	t.Parallel()
	left := scenario.Behavior{Match: "spine1:down*", Kind: scenario.Stuck, Values: map[string]string{"min_abw": "30Mbps", "min_abw_ratio": "3%"}}
	for _, format := range []csig.Format{csig.Wide, csig.Compact} {
		for name, faults := range map[string][]scenario.Behavior{"steady": nil, "stuck": {left}} {
			t.Run(fmt.Sprint(name, " ", format), func(t *testing.T) {
				t.Parallel()
				s := emittertest.Named(t, "permutation")
				s = s.WithLayout(csig.Layout{Format: format, Profile: s.Layout.Profile})
				s.Locator, s.Duration, s.Faults = "port", 4*time.Second, faults
				s.Workloads[0].Rate = 950 * scenario.Mbps
				stuck := slices.ContainsFunc(examine(t, s, nil).Findings, func(f finding.Finding) bool { return f.Kind == finding.StuckPort })
				if want := faults != nil && format == csig.Wide; stuck != want {
					t.Errorf("a stuck port is found: %v, want %v", stuck, want)
				}
			})
		}
	}
}

// faultless examines a scenario without its faults.
func faultless(t *testing.T, s scenario.Scenario, duration time.Duration) {
	t.Helper()
	s.Duration, s.Faults, s.CaptureUntagged = duration, nil, true
	e := examine(t, s, nil)
	for _, f := range e.Findings {
		if !slices.ContainsFunc(s.Taps, func(tap scenario.Tap) bool {
			return f.Subject == tap.Name && (f.Kind == finding.DuplicateFrames && tap.Duplicate > 0 || f.Kind == finding.TapLoss && tap.Loss > 0)
		}) {
			t.Errorf("%s %s: %s", f.Kind, f.Subject, f.Evidence)
		}
	}
	for _, tap := range s.Taps {
		if found := slices.ContainsFunc(e.Findings, func(f finding.Finding) bool { return f.Kind == finding.DuplicateFrames && f.Subject == tap.Name }); tap.Duplicate >= scenario.WholeShare/100 && !found {
			t.Errorf("the duplicates of %s are not found", tap.Name)
		}
	}
	if e.Observations == 0 {
		t.Error("nothing was observed")
	}
}

// TestThreeTierFaults checks that in three stages, findings name the port that writes wrong values,
// and the switch that strips or doubles tags.
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
			s := emittertest.Named(t, "three-tier")
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

// TestTapInFront checks that a host is not accused of values that a port writes behind a tap, and
// is accused of its own.
func TestTapInFront(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		fault scenario.Behavior
		want  bool
	}{
		{scenario.Behavior{Match: "leaf3:up1", Kind: scenario.WrongLM}, false},
		{scenario.Behavior{Match: "leaf3:up1", Kind: scenario.ValueOnly}, false},
		{scenario.Behavior{Match: "leaf3:up1", Kind: scenario.Retype}, false},
		{scenario.Behavior{Match: "host3-2", Kind: scenario.Forge, Values: map[string]string{"max_delay": "100ms", "min_abw": "0Mbps"}}, true},
	} {
		t.Run(test.fault.Kind, func(t *testing.T) {
			t.Parallel()
			s := emittertest.Named(t, "quickstart")
			s.Duration, s.Faults = time.Second, []scenario.Behavior{test.fault}
			s.Taps = []scenario.Tap{{Name: "in", Before: []string{"leaf3"}}, {Name: "out", Ports: []string{"leaf3:*"}, Offset: time.Millisecond}}
			list := examine(t, s, nil).Findings
			for _, kind := range []finding.Kind{finding.ForgedValue, finding.ScrubFailure} {
				if got := slices.ContainsFunc(list, func(f finding.Finding) bool { return f.Kind == kind }); got != test.want {
					t.Errorf("%s is found: %v, want %v", kind, got, test.want)
				}
			}
			if len(list) == 0 {
				t.Error("nothing is found")
			}
		})
	}
}
