//go:build unix

package capture

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
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

// TestFollowedPipeEnds: the end of ctx ends the wait for the writer of a named pipe, for its header,
// and for more packets; Close ends the last one too.
func TestFollowedPipeEnds(t *testing.T) {
	defer goleak.VerifyNone(t)
	header := newPcap(binary.LittleEndian, magicMicros, 0, 1).buf
	for name, tt := range map[string]struct {
		early   bool // there is a writer before the end
		written []byte
		close   bool
		want    error
	}{
		"no writer": {want: context.Canceled},
		"no header": {early: true, want: context.Canceled},
		"no packet": {early: true, written: header, want: io.EOF},
		"closed":    {early: true, written: header, close: true, want: io.ErrClosedPipe},
	} {
		path := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		write := func() {
			t.Helper()
			w, err := os.OpenFile(path, os.O_RDWR, 0) // both, so that opening does not block
			if err == nil {
				_, err = w.Write(tt.written)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = w.Close() }) // later, since the pipe may still be opened
		}
		if tt.early {
			write()
		}
		ctx, cancel := context.WithCancel(t.Context())
		opened, done := make(chan *Reader, 1), make(chan error, 1)
		go func() {
			r, err := Follow(ctx, path, Options{})
			opened <- r
			if err == nil {
				err = r.ReadBatch(new(Batch))
			}
			done <- err
		}()
		if tt.written != nil {
			if r := <-opened; tt.close && r != nil {
				_ = r.Close()
			}
		}
		if !tt.close {
			cancel()
		}
		if err := <-done; !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", name, err, tt.want)
		}
		cancel()
		if !tt.early {
			write() // ends the abandoned opening
		}
	}
}
