package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// signaled starts a replay and sends it a signal once some of it is stored. It returns the exit
// code and the output of the command.
func signaled(t *testing.T, env []string, signal syscall.Signal, ready func() bool, args ...string) (code int, said string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !comes(ready) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("nothing was stored: %s", out.String())
	}
	_ = cmd.Process.Signal(signal)
	kill := time.AfterFunc(awaited, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), out.String()
}

// interrupted is signaled with an interrupt.
func interrupted(t *testing.T, env []string, ready func() bool, args ...string) string {
	t.Helper()
	code, said := signaled(t, env, syscall.SIGINT, ready, args...)
	if code != exitFailed || !strings.Contains(said, "interrupted") {
		t.Fatalf("interrupted: exit code %d: %s", code, said)
	}
	return said
}

// extentRow is the part of query extent that tests use.
type extentRow struct {
	Observations uint64  `json:"observations"`
	Incomplete   *string `json:"incomplete"`
}

// TestInterruptedReplay: an interrupted first pass is shown and marked as incomplete
// everywhere; after a complete pass, that one is shown instead.
func TestInterruptedReplay(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	e := emit(t, "--scenario", "quickstart", "--set", "duration=1s")
	file := e.captures(t)[0]
	store := newStore(t, env, filepath.Join(t.TempDir(), "store"))
	keepEngine(t, env, store)
	dsn := "--store=" + store
	replay := func(more ...string) []string {
		return append([]string{"replay", "--fabric", e.fabric(), dsn, "--fine", "10ms", "--fine-all", file}, more...)
	}
	extent := func() (extentRow, string) {
		r := runBinary(t, env, "query", "extent", "-o", "json", dsn)
		if r.code != 0 {
			return extentRow{}, r.stderr
		}
		return decodeJSON[[]extentRow](t, r.stdout)[0], r.stderr
	}
	verify := func() string { return mustRun(t, env, "schema", "verify", dsn, "-o", "csv") }

	said := interrupted(t, env, func() bool { x, _ := extent(); return x.Observations > 0 }, replay("--pace", "0.02")...)
	name := filepath.Base(file)
	if !strings.Contains(said, "stored in part") || !strings.Contains(said, name) {
		t.Errorf("the interrupted command said %q", said)
	}
	part, note := extent()
	if part.Observations == 0 || part.Incomplete == nil || *part.Incomplete != name || !strings.Contains(note, "stored in part") {
		t.Errorf("extent %+v, %q", part, note)
	}
	if r := runBinary(t, env, "query", "cells", "-o", "csv", dsn); r.code != 0 || !strings.Contains(r.stderr, name) {
		t.Errorf("cells: exit code %d, %q does not name the capture", r.code, r.stderr)
	} else if !strings.Contains(r.stdout, "rack1") || regexp.MustCompile("(group|location) [0-9a-f]{16}").MatchString(r.stdout) {
		t.Errorf("a replay under way answers without names: %s", r.stdout)
	}
	if got := verify(); !strings.Contains(got, "info,run under way or interrupted") || !strings.Contains(got, name) {
		t.Errorf("verified %q", got)
	}

	mustRun(t, env, replay()...)
	whole, note := extent()
	if whole.Observations <= part.Observations || whole.Incomplete != nil || note != "" || strings.Contains(verify(), "under way") {
		t.Errorf("whole: %+v, %q, in part %+v", whole, note, part)
	}

	// Under another configuration its rows differ, and none of them may show.
	config := writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), "decode: {inner_tags: true}\n")
	shown := []string{"query", "windows", "--step", "10ms", "-o", "csv", dsn}
	want := mustRun(t, env, shown...)
	said = interrupted(t, env, func() bool { return strings.Contains(verify(), "info,run superseded") }, replay("--pace", "0.02", "--config", config)...)
	if !strings.Contains(said, "the result of an earlier replay stays visible: "+name) {
		t.Errorf("the interrupted repetition said %q", said)
	}
	if got := mustRun(t, env, shown...); got != want {
		t.Errorf("after an interrupted repetition: %d lines, want %d", strings.Count(got, "\n"), strings.Count(want, "\n"))
	}
	if x, note := extent(); x.Incomplete != nil || note != "" {
		t.Errorf("extent after an interrupted repetition: %+v, %q", x, note)
	}
	if got := verify(); !slices.ContainsFunc(strings.Split(got, "\n"), func(l string) bool { return strings.HasPrefix(l, "info,run superseded") }) {
		t.Errorf("verified %q, want the repetition as superseded", got)
	}
}

// TestKilledReplay: a paced replay that is killed halfway and repeated at another pace stores
// the rows and totals of an undisturbed one.
func TestKilledReplay(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	e := emit(t, "--scenario", "quickstart", "--set", "duration=1s")
	dir := t.TempDir()
	in := func(name string) string { return "--store=embedded:" + filepath.Join(dir, name) }
	replay := func(name, pace string) []string {
		return append([]string{"replay", "--fabric", e.fabric(), in(name), "--fine", "10ms", "--fine-all", "--pace", pace}, e.captures(t)...)
	}
	stored := func(name string) string {
		return mustRun(t, env, "query", "cells", "-o", "csv", in(name)) +
			mustRun(t, env, "query", "windows", "--step", "10ms", "-o", "csv", in(name)) +
			mustRun(t, env, "query", "taps", "-o", "csv", in(name))
	}
	for _, name := range []string{"calm", "killed"} {
		keepEngine(t, env, newStore(t, env, filepath.Join(dir, name)))
	}
	mustRun(t, env, replay("calm", "0")...)
	begun := func() bool {
		r := runBinary(t, env, "query", "extent", "-o", "json", in("killed"))
		return r.code == 0 && decodeJSON[[]extentRow](t, r.stdout)[0].Observations > 0
	}
	if code, said := signaled(t, env, syscall.SIGKILL, begun, replay("killed", "0.02")...); code != -1 {
		t.Fatalf("exit code %d: %s", code, said)
	}
	mustRun(t, env, replay("killed", "1")...)
	if got, want := stored("killed"), stored("calm"); got != want || strings.Count(want, "\n") < 50 {
		t.Errorf("killed and run again:\n%.500s\nwant:\n%.500s", got, want)
	}
	mustRun(t, env, "schema", "verify", in("killed"))
}
