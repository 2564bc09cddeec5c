package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Follow opens the capture at path like [Open] and waits at its end for more,
// looking every Options.Poll, until ctx is done or the file has been rotated.
// It also waits for the file header of a file that is still empty. The file has
// to exist. Inputs other than regular files wait by themselves, so they are
// opened as Open does, and only Close ends their waiting.
//
// The reader then ends in one of three ways:
//
//   - ctx is done: io.EOF from ReadBatch, also where a record is still being
//     written, or ctx's error from Follow itself.
//   - Another file has taken the path's place, by rename or after removal, and
//     the followed one has been read to its end: io.EOF while ctx is alive.
//     [Rotation] goes on with the successor.
//   - The file has shrunk or was written anew in place: an error that wraps
//     ErrShrunk.
//
// A compressed file is an error that wraps ErrCompressed. Size is -1 while a
// regular file is followed. Close from another goroutine does not end the waiting
// of a regular file promptly; ctx does.
func Follow(ctx context.Context, path string, opts Options) (*Reader, error) {
	if path == "-" {
		return Open(path, opts)
	}
	f, size, err := openFile(path)
	if err != nil {
		return nil, err
	}
	if size < 0 {
		r, err := NewReader(f, path, opts)
		if err != nil {
			_ = f.Close() // nothing was written: the error to report is the reader's
			return nil, err
		}
		r.closer = f
		return r, nil
	}
	replaced := func(own os.FileInfo) bool {
		there, err := os.Stat(path)
		// A path without a file is a rotation that has not got its new file yet,
		// and until then the writer may go on with the old one.
		return err == nil && !os.SameFile(own, there)
	}
	return follow(ctx, f, path, opts, replaced)
}

// follow follows a regular file, which it closes on error.
func follow(ctx context.Context, f *os.File, path string, opts Options, rotated func(os.FileInfo) bool) (*Reader, error) {
	src := &follower{ctx: ctx, file: f, rotated: rotated, poll: opts.withDefaults().Poll}
	r, err := newReader(src, path, opts, false)
	if err != nil {
		var format *FormatError
		if errors.As(err, &format) && len(format.First) == 4 && compressionOf(format.First) != uncompressed {
			err = fmt.Errorf("follow capture %q: %w", path, ErrCompressed)
		}
		_ = f.Close() // nothing was written: the error to report is the reader's
		if ctx.Err() != nil {
			err = fmt.Errorf("follow capture %q: wait for the file header: %w", path, ctx.Err())
		}
		return nil, err
	}
	r.closer, r.stopped = f, ctx.Err
	return r, nil
}

// ErrShrunk is wrapped by the error for a followed file that has become shorter
// than what was read of it: it was truncated or written anew in place, and where
// its records start is lost.
var ErrShrunk = errors.New("the file has shrunk while it was followed; follow it again to read it from its start")

// followerHead is how much of a followed file's beginning tells it from one that
// was written anew in its place, bytes. It reaches the time of the first packet.
const followerHead = 4 << 10

// follower reads a file that grows.
type follower struct {
	ctx     context.Context // the life of the reader: io.Reader has no other way to be told
	file    *os.File
	rotated func(own os.FileInfo) bool // its end is final
	poll    time.Duration
	read    int64  // bytes so far
	last    bool   // the file has been rotated
	head    []byte // the first of the bytes
}

// Read implements io.Reader: it returns what there is, and waits only where
// there is nothing.
func (f *follower) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	var timer *time.Timer
	for {
		n, err := f.file.Read(p)
		if n > 0 {
			if f.rewritten() {
				return 0, ErrShrunk // what was read is of the new content
			}
			f.take(p[:n])
			return n, nil // an error comes again
		}
		if !errors.Is(err, io.EOF) || f.last || f.ctx.Err() != nil {
			return 0, err
		}
		if err = f.look(); err != nil {
			return 0, err
		}
		if f.last {
			continue // what was written until the rotation
		}
		if timer == nil {
			timer = time.NewTimer(f.poll)
			defer timer.Stop()
		} else {
			timer.Reset(f.poll)
		}
		select {
		case <-f.ctx.Done():
			return 0, io.EOF
		case <-timer.C:
		}
	}
}

// take counts what was read and keeps the first of it.
func (f *follower) take(p []byte) {
	f.read += int64(len(p))
	if room := followerHead - len(f.head); room > 0 {
		f.head = append(f.head, p[:min(room, len(p))]...)
	}
}

// rewritten reports whether the file begins otherwise than it did: it was written
// anew in place and has outgrown what was read of it.
func (f *follower) rewritten() bool {
	now := make([]byte, len(f.head))
	_, err := f.file.ReadAt(now, 0)
	return err != nil || !bytes.Equal(now, f.head)
}

// look finds out whether more is to be expected of the file.
func (f *follower) look() error {
	own, err := f.file.Stat()
	if err != nil {
		return err
	}
	if own.Size() < f.read {
		return ErrShrunk
	}
	f.last = f.rotated(own)
	return nil
}
