//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// runWithInput runs the binary with a file as its standard input, through a pipe.
func runWithInput(t *testing.T, input string, args ...string) result {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(input)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = struct{ io.Reader }{f}, &stdout, &stderr
	err = cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatalf("csigscope %s: %v", strings.Join(args, " "), err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// TestPipes: standard input and named pipes give the same results as the file.
func TestPipes(t *testing.T) {
	e := emit(t, "--scenario", "quickstart", "--set", "duration=300ms")
	file := e.captures(t)[0]
	if _, err := binary(); err != nil { // built here, not in the folder below
		t.Fatal(err)
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	decodeArgs := []string{"decode"}
	replayArgs := []string{"replay", "--store", "none", "-o", "json", "--fabric", e.fabric()}
	listed := mustRun(t, os.Environ(), append(decodeArgs, file)...)
	want := decodeJSON[summaryOutput](t, mustRun(t, os.Environ(), append(replayArgs, file)...))
	if listed == "" || want.Observations.In == 0 {
		t.Fatal("the capture holds nothing")
	}
	fifo := filepath.Join(t.TempDir(), filepath.Base(file))
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	piped := func(args []string) string {
		fed := make(chan error, 1)
		go func() { fed <- feedFile(fifo, file) }()
		out := mustRun(t, os.Environ(), append(args, fifo)...)
		if err := <-fed; err != nil {
			t.Error(err)
		}
		return out
	}
	input := func(args []string) string {
		r := runWithInput(t, file, append(args, "-")...)
		if r.code != exitDone {
			t.Errorf("exit code %d: %s", r.code, r.stderr)
		}
		return r.stdout
	}
	for name, run := range map[string]func([]string) string{"named pipe": piped, "standard input": input} {
		if got := run(decodeArgs); got != listed {
			t.Errorf("%s: decode prints %d bytes, of the file %d", name, len(got), len(listed))
		}
		got := decodeJSON[summaryOutput](t, run(replayArgs))
		if got.Packets != want.Packets || got.Observations.Stored != want.Observations.Stored || !got.Conserved {
			t.Errorf("%s: replay gives %+v, of the file %+v", name, got, want)
		}
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary folder: %v, %v", left, err)
	}
}

// TestInterruptedWait: an interrupt ends the wait for the writer of a pipe.
func TestInterruptedWait(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	for _, tt := range []struct {
		args []string
		code int
	}{
		{[]string{"decode"}, exitFailed},
		{[]string{"decode", "--follow"}, exitDone},
		{[]string{"replay", "--store", "none"}, exitFailed},
		{[]string{"fabric", "import"}, exitFailed},
		{[]string{"fabric", "check"}, exitFailed},
		{[]string{"fabric", "show"}, exitFailed},
	} {
		fifo := filepath.Join(t.TempDir(), "fifo")
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		code := run(ctx, append(tt.args, fifo), &stdout, &stderr)
		if code != tt.code || strings.Contains(stderr.String(), "interrupted") != (code == exitFailed) {
			t.Errorf("%s: exit code %d, want %d: %s", tt.args, code, tt.code, &stderr)
		}
		w, err := os.OpenFile(fifo, os.O_RDWR, 0) // ends the abandoned opening
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.Close() })
	}
}

// TestSecondSignal: a second signal ends a command that does not end at the first one.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "decode", fifo, fifo) // a merge needs the first packet of each
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // when the command has opened it
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if !comes(func() bool {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return len(ended) > 0
	}) {
		_ = cmd.Process.Kill()
	}
	<-ended
	if code := cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(stderr.String(), "ended at once") {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
}

// feedFile writes a file into a named pipe.
func feedFile(fifo, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return errors.Join(err, w.Close())
}

// TestNoCSIG: a capture without CSIG is not an error.
func TestNoCSIG(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"classic=true", "classic=false"} {
		e := emit(t, "--scenario", "quickstart", "--set", "duration=300ms", "--set", "tag_every=-1", "--set", "ack_every=-1", "--set", "capture_untagged=true", "--set", format)
		r := runBinary(t, os.Environ(), append([]string{"decode"}, e.captures(t)...)...)
		if r.code != exitDone || r.stdout != "" || !strings.Contains(r.stderr, " packets, 0 observations") {
			t.Errorf("decode: exit code %d, prints %d bytes, says %q", r.code, len(r.stdout), r.stderr)
		}
		s := decodeJSON[summaryOutput](t, mustRun(t, os.Environ(), append([]string{"replay", "--store", "none", "-o", "json", "--fabric", e.fabric()}, e.captures(t)...)...))
		if s.Packets == 0 || s.Observations.In != 0 || !s.Conserved {
			t.Errorf("replay: %+v", s)
		}
		empty := runBinary(t, os.Environ(), append([]string{"decode", "-o", "json"}, e.captures(t)...)...)
		if list := decodeJSON[[]any](t, empty.stdout); empty.code != exitDone || len(list) != 0 {
			t.Errorf("decode -o json: exit code %d, %q", empty.code, empty.stdout)
		}
	}
}

// TestRefusedLinkType: the error names the capture's link type.
func TestRefusedLinkType(t *testing.T) {
	t.Parallel()
	file := writeLinkFrames(t, 105, []byte("no Ethernet"), []byte("neither"))
	for _, args := range [][]string{{"decode"}, {"replay", "--store", "none"}} {
		r := runBinary(t, os.Environ(), append(args, file)...)
		if r.code != exitFailed || !strings.Contains(r.stderr, "2 of IEEE 802.11") || !strings.Contains(r.stderr, "expected Ethernet") {
			t.Errorf("%s: exit code %d, %q", args[0], r.code, r.stderr)
		}
	}
}

// TestPacketsOfPipe: the packets of a finding are those of the pipe, not of its copy.
func TestPacketsOfPipe(t *testing.T) {
	t.Parallel()
	e := emit(t, "--scenario", "mirrors", "--set", "duration=100ms")
	r := runWithInput(t, e.captures(t)[0], "report", "-", "-o", "markdown", "--out", "-")
	if r.code != exitDone || !strings.Contains(r.stdout, "  Packets of -: 1, ") {
		t.Errorf("exit code %d, %s\n%s", r.code, r.stderr, r.stdout)
	}
}
