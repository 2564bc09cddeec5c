package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReplayKilled kills replays at random moments; a replay that then completes gives the
// results of an undisturbed one.
func TestReplayKilled(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	e := emit(t, "--scenario", "quickstart")
	dir := t.TempDir()
	replay := func(name string) []string {
		return append([]string{
			"replay", "--fabric", e.fabric(), "--fine", "10ms", "--fine-all",
			"--store", "embedded:" + filepath.Join(dir, name), "--outbox", filepath.Join(dir, name+"-outbox"),
		}, e.captures(t)...)
	}
	cells := func(name string) string {
		return mustRun(t, env, "query", "cells", "-o", "csv", "--store", "embedded:"+filepath.Join(dir, name)) +
			mustRun(t, env, "query", "windows", "--step", "10ms", "-o", "csv", "--store", "embedded:"+filepath.Join(dir, name))
	}
	mustRun(t, env, replay("calm")...)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for after := 600 * time.Millisecond; after <= 1500*time.Millisecond; after += 300 * time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		cmd := exec.CommandContext(ctx, path, replay("killed")...)
		cmd.Env = env
		_ = cmd.Run()
		cancel()
	}
	mustRun(t, env, replay("killed")...)
	want := cells("calm")
	if got := cells("killed"); got != want || len(strings.Split(want, "\n")) < 10 {
		t.Errorf("after kills:\n%.500s\nwant:\n%.500s", got, want)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "killed-outbox", "*", "*", "*.seg"))
	if err != nil || len(segments) == 0 {
		t.Errorf("no segments in the outbox: %v", err)
	}
}

func TestOutboxFlags(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	e := emit(t, "--scenario", "quickstart")
	store := filepath.Join(t.TempDir(), "store")
	run := func(args ...string) result {
		return runBinary(t, env, append(append([]string{"replay", "--fabric", e.fabric(), "--store", "embedded:" + store}, args...), e.captures(t)...)...)
	}
	for _, args := range [][]string{{"--outbox-size", "1000"}, {"--outbox-retention", "-1s"}, {"--outbox-retention", "2h"}} {
		if r := run(args...); r.code != exitUsage || !strings.Contains(r.stderr, args[0]) {
			t.Errorf("%s: exit code %d: %s", args, r.code, r.stderr)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run("--outbox", file); r.code != exitFailed || !strings.Contains(r.stderr, "--outbox none") {
		t.Errorf("an outbox in a file: exit code %d: %s", r.code, r.stderr)
	}
	for _, run := range []struct {
		args []string
		want int
	}{{[]string{"--outbox", "none"}, 0}, {nil, 1}} {
		mustRun(t, env, append(append([]string{"replay", "--fabric", e.fabric(), "--store", "embedded:" + store}, run.args...), e.captures(t)...)...)
		if found, _ := filepath.Glob(filepath.Join(store, "outbox", "1", "position")); len(found) != run.want {
			t.Errorf("%s: outboxes %s, want %d", run.args, found, run.want)
		}
	}
	mustRun(t, env, "schema", "migrate", "--store", "embedded:"+store)
}
