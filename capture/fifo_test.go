//go:build unix

package capture

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// TestCloseWakesNamedPipe closes a reader that waits for a silent writer, as when a command that
// reads a pipe is stopped.
func TestCloseWakesNamedPipe(t *testing.T) {
	defer goleak.VerifyNone(t)
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(path, os.O_RDWR, 0) // read and write, so that opening does not block
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	if _, err = w.Write(newPcap(binary.LittleEndian, magicMicros, 0, 1).buf); err != nil {
		t.Fatal(err)
	}
	if chunks, err := Chunks(path, 1); err != nil || len(chunks) != 1 || chunks[0].End != -1 {
		t.Fatalf("Chunks: %v, %v", chunks, err)
	}
	r, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		var b Batch
		done <- r.ReadBatch(&b)
	}()
	if err = r.Close(); err != nil {
		t.Fatal(err)
	}
	if err = <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v, want os.ErrClosed", err)
	}
}
