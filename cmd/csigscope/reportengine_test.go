package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/dashboards/report"
)

// TestReportThroughEngine: a report has the same numbers from memory and from the store, and
// uses the store automatically if memory is too small.
func TestReportThroughEngine(t *testing.T) {
	t.Parallel()
	temporary := t.TempDir()
	env := append(engineEnv(t), "TMPDIR="+temporary)
	e := emit(t, "--scenario", "incast", "--set", "duration=2s", "--set", "start=2026-01-05T00:00:59Z") // in two minutes
	last := emit(t, "--scenario", "incast", "--set", "duration=100ms", "--set", "start=2105-12-31T23:59:59Z")
	const again = "through the embedded engine"
	document := func(args ...string) report.Report {
		t.Helper()
		run := runBinary(t, env, append([]string{"report", "--fabric", e.fabric(), "-o", "json", "--out", "-"}, args...)...)
		if forced := slices.Contains(args, "--spill"); run.code != exitDone || !forced != strings.Contains(run.stderr, again) {
			t.Errorf("%q: exit code %d: %s", args, run.code, run.stderr)
		}
		r := decodeJSON[report.Report](t, run.stdout)
		r.GeneratedAt = r.From
		return r
	}
	text := func(r report.Report) string {
		b, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	memory := document(e.dir, "--spill", "never")
	kept := filepath.Join(t.TempDir(), "kept")
	for name, args := range map[string][]string{
		"asked for":          {e.dir, "--spill", "always", "--spill-dir", kept},
		"for want of memory": {e.dir, "--memory", "1MiB"},
	} {
		if got, want := text(document(args...)), text(memory); got != want {
			at := 0
			for at < min(len(got), len(want)) && got[at] == want[at] {
				at++
			}
			t.Errorf("%s: the documents differ:\n%.300s\nfrom memory\n%.300s", name, got[max(at-100, 0):], want[max(at-100, 0):])
		}
	}
	if text(document(e.dir, last.dir, "--spill", "always")) != text(document(e.dir, last.dir, "--spill", "never")) {
		t.Error("until the end of time: the documents differ")
	}
	if r := runBinary(t, env, "report", e.dir, "--spill", "always", "--spill-dir", kept, "--out", filepath.Join(t.TempDir(), "r.html")); r.code != exitUsage || !strings.Contains(r.stderr, "expected an empty folder") {
		t.Errorf("into a store with rows: exit code %d: %s", r.code, r.stderr)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	small := document(e.dir, "--memory", "1MiB", "--spill", "never")
	limited := func(u string) bool { return strings.Contains(u, "memory") }
	if !slices.ContainsFunc(small.Unknown, limited) || slices.ContainsFunc(memory.Unknown, limited) {
		t.Errorf("with 1 MiB, what could not be known is %q", small.Unknown)
	}
	for i := range memory.Signals {
		a, b := &memory.Signals[i], &small.Signals[i]
		if a.Cells != b.Cells || a.Congested != b.Congested || b.Heat.Step < a.Heat.Step {
			t.Errorf("%s: with 1 MiB %d of %d cells were congested, want %d of %d", a.Name, b.Congested, b.Cells, a.Congested, a.Cells)
		}
	}
}
