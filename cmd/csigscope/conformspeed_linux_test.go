package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/replay"
)

// pairsEnv enables TestConformSpeed and sets the approximate number of packet pairs; make
// bench-conform sets it.
const pairsEnv = "CSIGSCOPE_TEST_CONFORM_PAIRS"

// Requirements for conform: packet pairs per second of one core's time, and memory that
// --memory-packets bounds (120 bytes each, plus the program's own).
const (
	leastPairs   = 500_000
	mostPairs    = 300_000 // in memory, in the bounded run
	mostMemoryKB = 200 << 10
)

// TestConformSpeed judges a leaf by captures of many packets, with one core, three times, and
// once more in parts that fit into bounded memory.
func TestConformSpeed(t *testing.T) {
	pairs, err := strconv.Atoi(os.Getenv(pairsEnv))
	if err != nil {
		t.Skip("SKIPPED: make bench-conform runs it (" + pairsEnv + ")")
	}
	file := writeFile(t, filepath.Join(t.TempDir(), "s.yaml"), "base: ring\n"+leaf3Taps)
	e := emit(t, "--scenario-file", file, "--set", "capture_untagged=true", "--set", "duration=1h", "--set", "packets="+strconv.Itoa(2*pairs))
	args := append([]string{"conform", "-o", "json", "--fabric", e.fabric()}, e.leaf3()...)
	var times []time.Duration
	var matched uint64
	for range 3 {
		cpu, memory, c := measured(t, args)
		matched = c.Counts.Matched
		t.Logf("%d pairs in %s of CPU time, %.0f a second; %d MB", matched, cpu, float64(matched)/cpu.Seconds(), memory>>10)
		times = append(times, cpu)
	}
	slices.Sort(times)
	if rate := float64(matched) / times[1].Seconds(); rate < leastPairs {
		t.Errorf("%.0f pairs a second, want %d", rate, leastPairs)
	}
	cpu, memory, c := measured(t, append(args, "--memory-packets", strconv.Itoa(mostPairs)))
	t.Logf("at most %d in memory: %.0f pairs a second; %d MB", mostPairs, float64(matched)/cpu.Seconds(), memory>>10)
	if memory > mostMemoryKB || c.Counts.Matched != matched {
		t.Errorf("%d MB for %d of %d pairs", memory>>10, c.Counts.Matched, matched)
	}
}

// measured runs the binary on one core, and returns its CPU time and its memory in KiB.
func measured(t *testing.T, args []string) (time.Duration, int64, replay.Conformance) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		t.Fatalf("usage %T", cmd.ProcessState.SysUsage())
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), usage.Maxrss, decodeJSON[replay.Conformance](t, out.String())
}
