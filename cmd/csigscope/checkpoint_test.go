package main

import (
	"bytes"
	enc "encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pacedReplay is a replay that is killed and gone on with.
type pacedReplay struct {
	env  []string
	args []string
	dir  string // of the outbox

	meanwhile func() // called before the kill; nil for nothing
}

// checkpointNumber is that of the checkpoint on disk, 0 for none.
func (p *pacedReplay) checkpointNumber() uint64 { return checkpointNumber(p.dir) }

func (p *pacedReplay) checkpointFile() string { return checkpointFile(p.dir) }

// checkpointFile is the checkpoint of the one command whose outbox is in the folder.
func checkpointFile(dir string) string {
	found, _ := filepath.Glob(filepath.Join(dir, "*", "checkpoints", "1", "checkpoint"))
	return strings.Join(found, "")
}

// checkpointNumber is that of the file, 0 for none.
func checkpointNumber(dir string) uint64 {
	b, err := os.ReadFile(checkpointFile(dir))
	if err != nil || len(b) < 16 {
		return 0
	}
	return enc.LittleEndian.Uint64(b[8:])
}

// reachCheckpoint waits until there is the checkpoint of the number, or a later one.
func reachCheckpoint(dir string, number uint64) bool {
	return comes(func() bool { return checkpointNumber(dir) >= number })
}

// kill kills the replay some time after it has taken as many checkpoints, and gives the
// packet that it went on at, 0 when it began anew.
func (p *pacedReplay) kill(t *testing.T, checkpoints uint64, after time.Duration) (resumed int) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	before := p.checkpointNumber()
	cmd := exec.CommandContext(t.Context(), path, p.args...)
	cmd.Env = p.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !reachCheckpoint(p.dir, before+checkpoints) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("no checkpoint: %s", &stderr)
	}
	if p.meanwhile != nil {
		p.meanwhile()
	}
	time.Sleep(after)
	_ = cmd.Process.Kill()
	if err := cmd.Wait(); err == nil {
		t.Fatal("the replay ended by itself")
	}
	return resumedAt(stderr.String())
}

func resumedAt(stderr string) (packet int) {
	for line := range strings.Lines(stderr) {
		_, _ = fmt.Sscanf(line, "resuming at packet %d,", &packet)
	}
	return packet
}

// countedBy is a summary without what every run has of its own.
func countedBy(t *testing.T, text string) string {
	t.Helper()
	s := decodeJSON[map[string]any](t, text)
	delete(s, "elapsed_seconds")
	return fmt.Sprint(s)
}

// TestPacedReplayKilled kills a paced replay right after a checkpoint, some time after
// one, and between two. Each time the same command goes on where it was, and the last one
// comes to the numbers of an undisturbed replay.
func TestPacedReplayKilled(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	e := emit(t, "--scenario", "quickstart", "--duration", "3s")
	dir := t.TempDir()
	replay := func(name string, more ...string) []string {
		return append(append([]string{
			"replay", "--fabric", e.fabric(), "--fine", "10ms", "--fine-all", "-o", "json",
			"--store", "embedded:" + filepath.Join(dir, name), "--outbox", filepath.Join(dir, name+"-outbox"),
		}, more...), e.captures(t)...)
	}
	cells := func(name string) string {
		return mustRun(t, env, "query", "cells", "-o", "csv", "--store", "embedded:"+filepath.Join(dir, name)) +
			mustRun(t, env, "query", "windows", "--resolution", "10ms", "--step", "10ms", "-o", "csv", "--store", "embedded:"+filepath.Join(dir, name))
	}
	calm := mustRun(t, env, replay("calm")...)

	slow := pacedReplay{env: env, args: replay("killed", "--pace", "0.05", "--checkpoint", "200ms"), dir: filepath.Join(dir, "killed-outbox")}
	last := 0
	for i, after := range []time.Duration{0, 150 * time.Millisecond, 330 * time.Millisecond} {
		at := slow.kill(t, 2, after)
		if i > 0 && at <= last || i == 0 && at != 0 {
			t.Errorf("start %d: went on at packet %d, before at %d", i, at, last)
		}
		last = at
	}
	if checkpoint := slow.checkpointNumber(); checkpoint < 6 {
		t.Errorf("checkpoint %d", checkpoint)
	}
	begun := time.Now()
	r := runBinary(t, env, replay("killed", "--pace", "1", "--checkpoint", "200ms")...)
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	t.Logf("the last replay went on at packet %d and took %s", resumedAt(r.stderr), time.Since(begun))
	if at := resumedAt(r.stderr); at <= last {
		t.Errorf("the last replay went on at packet %d, before at %d: %s", at, last, r.stderr)
	}
	if got, want := countedBy(t, r.stdout), countedBy(t, calm); got != want {
		t.Errorf("summary after kills:\n%.2000s\nwant:\n%.2000s", got, want)
	}
	if got, want := cells("killed"), cells("calm"); got != want || len(strings.Split(want, "\n")) < 10 {
		t.Errorf("after kills:\n%.500s\nwant:\n%.500s", got, want)
	}
	if n := slow.checkpointNumber(); n != 0 {
		t.Errorf("checkpoint %d is left of a replay that is done", n)
	}

	again := func(what, says string, more ...string) {
		t.Helper()
		r := runBinary(t, env, replay("killed", append(more, "--pace", "1000")...)...)
		if r.code != 0 || resumedAt(r.stderr) != 0 || !strings.Contains(r.stderr, says) || countedBy(t, r.stdout) != countedBy(t, calm) {
			t.Errorf("%s: exit code %d: %s", what, r.code, r.stderr)
		}
	}
	slow.meanwhile = func() { again("beside another one", "another process replays the same captures") }
	slow.kill(t, 1, 0)
	slow.meanwhile = nil
	again("from the start", "", "--from-start")
	slow.kill(t, 1, 0)
	b, err := os.ReadFile(slow.checkpointFile())
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	if err := os.WriteFile(slow.checkpointFile(), b, 0o600); err != nil {
		t.Fatal(err)
	}
	again("from a damaged checkpoint", "checkpoint is damaged")
}

func TestCheckpointFlags(t *testing.T) {
	t.Parallel()
	e := emit(t, "--scenario", "quickstart")
	for _, every := range []string{"-1s", "1ms"} {
		r := runBinary(t, os.Environ(), append([]string{"replay", "--store", "none", "--pace", "1", "--checkpoint", every}, e.captures(t)...)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, "--checkpoint") {
			t.Errorf("%s: exit code %d: %s", every, r.code, r.stderr)
		}
	}
}
