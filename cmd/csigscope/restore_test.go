package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRestoreBesideOutbox loses a store after its backup, but not its outbox.
func TestRestoreBesideOutbox(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	dir := t.TempDir()
	folder, box := filepath.Join(dir, "store"), filepath.Join(dir, "outbox")
	flags := []string{"--store=embedded:" + folder, "--outbox", box}
	replay := func(seed string) {
		t.Helper()
		mustRun(t, env, append([]string{"replay", "--scenario", "demo", "--set", "duration=1s", "--set", "seed=" + seed}, flags...)...)
	}
	cells := func() string {
		return mustRun(t, env, "query", "cells", "--signal", "max_delay", "-o", "csv", flags[0])
	}
	lose := func() {
		t.Helper()
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
	}
	restore := func(more ...string) string {
		t.Helper()
		return mustRun(t, env, append(append([]string{"schema", "restore", filepath.Join(dir, "backup")}, flags...), more...)...)
	}

	replay("1")
	before := cells()
	mustRun(t, env, "schema", "backup", filepath.Join(dir, "backup"), flags[0])
	replay("2")
	after := cells()
	if before == after {
		t.Fatal("the second replay changed nothing")
	}

	// Rows stored after the backup come back, without the names of their run.
	lose()
	said := restore()
	if !strings.Contains(said, "batches that the backup lacks") || !strings.Contains(said, "1 runs came back without their names") {
		t.Errorf("restore said %q", said)
	}
	if got := cells(); strings.Count(got, "\n") < strings.Count(after, "\n") {
		t.Errorf("%d cells came back, want %d", strings.Count(got, "\n"), strings.Count(after, "\n"))
	}
	if r := runBinary(t, env, "schema", "verify", flags[0]); r.code != exitFound || !strings.Contains(r.stdout, "rows outside of a run") {
		t.Errorf("verify: exit code %d: %s", r.code, r.stdout)
	}
	replay("2")
	if got := cells(); got != after {
		t.Errorf("replayed again: %d lines, want %d", strings.Count(got, "\n"), strings.Count(after, "\n"))
	}
	mustRun(t, env, "schema", "verify", flags[0])

	// Only the backup remains, also for later commands.
	lose()
	if said := restore("--discard-outbox"); !strings.Contains(said, "discarded, with 0 rows") {
		t.Errorf("restore said %q", said)
	}
	mustRun(t, env, append([]string{"schema", "migrate"}, flags...)...)
	if got := cells(); got != before {
		t.Errorf("%d lines, want the backup's %d", strings.Count(got, "\n"), strings.Count(before, "\n"))
	}
}
