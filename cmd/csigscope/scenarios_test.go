package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

var storedObservations = regexp.MustCompile(`(?m)^observations +\d+ += (\d+) stored .*: every one accounted for$`)

// TestEveryScenarioReplays: every built-in scenario passes through the real commands: replay
// reads the output of emit with its fabric file.
func TestEveryScenarioReplays(t *testing.T) {
	t.Parallel()
	for _, name := range scenario.Names() {
		t.Run(name, func(t *testing.T) {
			e := emit(t, "--scenario", name, "--set", "packets=20000")
			args := append([]string{"replay", "--store", "none", "--fabric", e.fabric()}, e.captures(t)...)
			out := mustRun(t, os.Environ(), args...)
			match := storedObservations.FindStringSubmatch(out)
			if match == nil {
				t.Fatalf("replay does not account for everything:\n%s", out)
			}
			if n, err := strconv.Atoi(match[1]); err != nil || n < 1000 {
				t.Errorf("%s observations stored", match[1])
			}
		})
	}
}

// TestFairnessIsDrawn: the fairness scenarios draw their flows, and max(PD) is the fairer
// control.
func TestFairnessIsDrawn(t *testing.T) {
	t.Parallel()
	ratio := regexp.MustCompile(`the fastest flow gets ([0-9.]+) times the rate`)
	read := func(name string) float64 {
		dir := filepath.Join(t.TempDir(), name)
		out := mustRun(t, os.Environ(), "emit", "--scenario", name, "--set", "duration=10ms", "--out", dir)
		match := ratio.FindStringSubmatch(out)
		if match == nil || !strings.Contains(out, "leaf1:up1") {
			t.Fatalf("emit does not tell the ratio or the bottlenecks:\n%s", out)
		}
		if svg, err := os.ReadFile(filepath.Join(dir, "flows.svg")); err != nil || !strings.HasPrefix(string(svg), "<svg ") {
			t.Errorf("no figure: %v", err)
		}
		v, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if worst, sum := read("fairness"), read("fairness-e2e"); worst < 1 || worst > sum/2 {
		t.Errorf("ratio %.2f with max(PD), %.2f with the round trip", worst, sum)
	}
}
