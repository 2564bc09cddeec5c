//go:build unix

package replay_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/csigscope/csigscope/replay"
)

func TestSpool(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	file := capturedAt(t, filepath.Join(t.TempDir(), "tap1.pcapng"), 1, 2)
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(t.TempDir(), "tap2.pcapng")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err == nil {
			_, err = w.Write(want)
		}
		if err := errors.Join(err, w.Close()); err != nil {
			t.Error(err)
		}
	}()
	files, remove, err := replay.Spool(t.Context(), []string{file, fifo, "missing"})
	if err != nil || files[0] != file || files[2] != "missing" {
		t.Fatalf("%v, %v", files, err)
	}
	if got, err := os.ReadFile(files[1]); err != nil || !slices.Equal(got, want) || filepath.Base(files[1]) != "tap2.pcapng" {
		t.Errorf("%s: %d bytes, want %d, %v", files[1], len(got), len(want), err)
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(files[1]); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after remove: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, remove, err = replay.Spool(ctx, []string{fifo}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
	// A writer that comes and goes ends the copy that was given up.
	if w, err := os.OpenFile(fifo, os.O_WRONLY, 0); err != nil || w.Close() != nil {
		t.Error(err)
	}
}
