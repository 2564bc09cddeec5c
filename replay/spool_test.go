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
	var copied string
	err = replay.Spool(t.Context(), []string{file, fifo, "missing"}, func(files []string) error {
		if files[0] != file || files[2] != "missing" {
			t.Errorf("%v", files)
		}
		copied = files[1]
		if got, err := os.ReadFile(copied); err != nil || !slices.Equal(got, want) || filepath.Base(copied) != "tap2.pcapng" {
			t.Errorf("%s: %d bytes, want %d, %v", copied, len(got), len(want), err)
		}
		return &fs.PathError{Op: "read", Path: copied, Err: fs.ErrInvalid}
	})
	if !errors.Is(err, fs.ErrInvalid) || err.Error() != "read "+fifo+": invalid argument" {
		t.Errorf("%v, want the error of the use, about %s", err, fifo)
	}
	if _, err := os.Stat(copied); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its use: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = replay.Spool(ctx, []string{fifo}, func([]string) error { t.Error("used"); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	// A writer that opens and closes the pipe ends the abandoned copy.
	if w, err := os.OpenFile(fifo, os.O_WRONLY, 0); err != nil || w.Close() != nil {
		t.Error(err)
	}
}
