package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/simulation"
)

// reportOf emits a scenario and returns the report of its captures.
func reportOf(t *testing.T, s scenario.Scenario, args ...string) report.Report {
	t.Helper()
	return reporterOf(t, s)(args...)
}

// reporterOf emits a scenario; the returned function makes reports of its captures, from memory alone:
// an engine would be a child of the test.
func reporterOf(t *testing.T, s scenario.Scenario) func(args ...string) report.Report {
	t.Helper()
	r, err := simulation.Run(t.Context(), s, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return func(args ...string) report.Report {
		args = append([]string{"report", "-o", "json", "--out", "-", "--spill", "never", "--fabric", r.Fabric}, args...)
		return decodeJSON[report.Report](t, mustRun(t, os.Environ(), append(args, r.Captures...)...))
	}
}

// job is a ring over four racks in steps, which start late by up to a tenth of the period; the
// second rack has slow uplinks.
func job(period time.Duration, seed uint64) scenario.Scenario {
	s, err := scenario.Named("straggler")
	if err != nil {
		panic(err) // a missing scenario of the library is a bug in this file
	}
	s.Seed, s.TagEvery, s.SnapLen = seed, 1, 96
	s.Duration = max(300*time.Millisecond, 16*period)
	s.ABWInterval = min(s.ABWInterval, period/5)
	s.Workloads = s.Workloads[:1]
	w := &s.Workloads[0]
	w.Period, w.Burst, w.Jitter, w.Stragglers, w.Late, w.StraggleEvery, w.Connections = period, period*2/5, period/10, nil, 0, 0, 4
	switch {
	case period <= 20*time.Millisecond:
		s.MTU = 1500
	case period >= 500*time.Millisecond: // as much traffic in a step, in fewer packets
		const slower = 5
		s.HostSpeed, s.UplinkSpeed, s.RackUplinkSpeed = s.HostSpeed/slower, s.UplinkSpeed/slower, map[int]scenario.Rate{2: scenario.Gbps / slower}
		s.HeavyDelay *= slower
		w.Rate /= slower
	}
	return s
}

// TestJobPeriods: report finds the period of emitted jobs within 1 %, from 5 ms to 2 s.
func TestJobPeriods(t *testing.T) {
	for _, period := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second} {
		t.Run(period.String(), func(t *testing.T) {
			t.Parallel()
			worst, n := 0.0, map[string]int{}
			for _, s := range reportOf(t, job(period, 1)).Signals {
				for _, r := range s.Rhythms {
					n[s.Name]++
					worst = max(worst, math.Abs(float64(r.PeriodNS)/float64(period)-1))
				}
			}
			t.Logf("%v, off by %.2f %% at most", n, 100*worst)
			if len(n) == 0 || worst > 0.01 {
				t.Errorf("%v, off by %.2f %% at most", n, 100*worst)
			}
		})
	}
}

// TestDemoPeriods: cells that see the job's congestion through a few packets of other traffic
// show its period or none, but never the period of those packets.
func TestDemoPeriods(t *testing.T) {
	t.Parallel()
	const period = 4 * time.Second
	s, err := scenario.Named("demo")
	if err != nil {
		t.Fatal(err)
	}
	for _, signal := range reportOf(t, s).Signals {
		if len(signal.Rhythms) < 2 {
			t.Errorf("%s: %d cells have a period", signal.Name, len(signal.Rhythms))
		}
		for i, r := range signal.Rhythms {
			off := math.Abs(float64(r.PeriodNS)/float64(period) - 1)
			if off > 0.02 || i == 0 && off > 0.01 {
				t.Errorf("%s: %s to %s repeats every %s", signal.Name, r.Src, r.Dst, time.Duration(r.PeriodNS))
			}
		}
	}
}

// TestFastPeriod: a period of 5 ms is also found in a long capture with few packets, whose
// windows must be longer to hold enough of them, and in stretches of a capture that has longer
// steps otherwise. If steps are too long for it, no period is invented, and the report says so.
// make accuracy tests a capture longer than all default steps.
func TestFastPeriod(t *testing.T) {
	t.Parallel()
	const period = 5 * time.Millisecond
	s := job(period, 3)
	s = s.WithSize(2, 2, 2)
	s.Duration, s.AckEvery, s.HeavyDelay = 12*time.Second, -1, 300*time.Microsecond
	s.HostSpeed, s.UplinkSpeed, s.RackUplinkSpeed = 300*scenario.Mbps, 600*scenario.Mbps, map[int]scenario.Rate{1: 200 * scenario.Mbps}
	s.Workloads[0].Rate = 180 * scenario.Mbps
	byDefault := ""
	if os.Getenv(rhythmsEnv) != "" {
		s.Duration, byDefault = time.Minute, "patterns that repeat faster than every 25ms are looked for only in "
	}
	reported := reporterOf(t, s)
	for _, test := range []struct {
		steps string
		finds bool
		says  string
	}{
		{"16384", true, byDefault},
		{"3000", true, "are looked for only in "},
		{"100", false, "are not found"},
	} {
		doc, found := reported("--max-steps", test.steps), 0
		for _, signal := range doc.Signals {
			for _, r := range signal.Rhythms {
				if found++; math.Abs(float64(r.PeriodNS)/float64(period)-1) > 0.01 {
					t.Errorf("--max-steps %s: %s: %s", test.steps, signal.Name, time.Duration(r.PeriodNS))
				}
			}
		}
		if test.finds != (found > 0) {
			t.Errorf("--max-steps %s: %d periods are found", test.steps, found)
		}
		if unknown := strings.Join(doc.Unknown, "\n"); !strings.Contains(unknown, test.says) {
			t.Errorf("--max-steps %s: %s", test.steps, unknown)
		}
	}
}

// rhythmsEnv selects 100 seeds of aperiodic scenarios, and names a file for the results; make
// accuracy sets it.
const rhythmsEnv = "CSIGSCOPE_TEST_RHYTHMS"

// aperiodicJobs are scenarios without steps. Probes are periodic, but are not load.
var aperiodicJobs = []string{"storage", "permutation", "incast", "background", "probes"}

// aperiodicJob is a short run of one of them in a small fabric.
func aperiodicJob(name string, seed uint64) scenario.Scenario {
	base := name
	if name == "background" {
		base = "storage"
	}
	s, err := scenario.Named(base)
	if err != nil {
		panic(err) // as in job
	}
	if name == "probes" {
		s.Seed = seed
		return s
	}
	s = s.WithSize(4, 2, 2)
	s.Seed, s.Duration, s.TagEvery, s.SnapLen = seed, 400*time.Millisecond, 1, 96
	s.ABWInterval = 2 * time.Millisecond
	switch name {
	case "background":
		s.Workloads = []scenario.Workload{{Kind: scenario.Background, Pairs: 24, Rate: 150 * scenario.Mbps}}
	case "incast":
		for i := range s.Workloads {
			s.Workloads[i].Start, s.Workloads[i].End = 0, 0
		}
	}
	return s
}

// TestNoJobPeriods: aperiodic load has no period.
func TestNoJobPeriods(t *testing.T) {
	t.Parallel()
	seeds := uint64(2)
	if os.Getenv(rhythmsEnv) != "" {
		seeds = 100
	}
	var text strings.Builder
	for _, name := range aperiodicJobs {
		cells, found, wrong := 0, 0, 0
		for seed := range seeds {
			before := found
			for _, s := range reportOf(t, aperiodicJob(name, seed+1)).Signals {
				for _, c := range s.Worst {
					if c.Heavy > 0 {
						cells++
					}
				}
				for _, r := range s.Rhythms {
					found++
					t.Logf("%s, seed %d: %s: %+v", name, seed+1, s.Name, r)
				}
			}
			if found > before {
				wrong++
			}
		}
		fmt.Fprintf(&text, "periods of %s: %d in %d cells, in %d of %d seeds\n", name, found, cells, wrong, seeds)
		if 100*found > cells {
			t.Errorf("%s: %d of %d cells have a period", name, found, cells)
		}
		if cells == 0 {
			t.Errorf("%s: nothing is heavy", name)
		}
	}
	noteRhythms(t, text.String())
}

// noteRhythms logs lines, and adds them to the file that make accuracy names, if any.
func noteRhythms(t *testing.T, lines string) {
	t.Helper()
	t.Log("\n" + lines)
	name := os.Getenv(rhythmsEnv)
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(lines)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
