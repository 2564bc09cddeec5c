package capture

import (
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
// to exist. Compressed files are followed as well, as far as their writer
// flushes them; inputs other than regular files wait by themselves, so they are
// opened as Open does, and only Close ends their waiting.
//
// The reader then ends in one of three ways:
//
//   - ctx is done: io.EOF from ReadBatch, also where a record is still being
//     written, or ctx's error from Follow itself.
//   - Another file has taken the path's place, by rename or after removal, and
//     the followed one has been read to its end: io.EOF while ctx is alive.
//     Following the path again reads the successor from its start.
//   - The file has shrunk: an error that wraps ErrShrunk.
//
// Size is -1 while a regular file is followed. Close from another goroutine
// does not end the waiting of a regular file promptly; ctx does.
func Follow(ctx context.Context, path string, opts Options) (*Reader, error) {
	if path == "-" {
		return Open(path, opts)
	}
	f, size, err := openFile(path)
	if err != nil {
		return nil, err
	}
	var src io.Reader = f
	if size >= 0 {
		src = &follower{ctx: ctx, file: f, path: path, poll: opts.withDefaults().Poll}
	}
	r, err := NewReader(src, path, opts)
	if err != nil {
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

// follower reads a file that grows.
type follower struct {
	ctx  context.Context // the life of the reader: io.Reader has no other way to be told
	file *os.File
	path string
	poll time.Duration
	read int64 // bytes so far
	last bool  // the file has been rotated: its end is now final
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
		f.read += int64(n)
		if n > 0 {
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

// look finds out whether the file at the path is still this one. A path without
// a file is a rotation that has not got its new file yet, and until then the
// writer may go on with the old one.
func (f *follower) look() error {
	own, err := f.file.Stat()
	if err != nil {
		return err
	}
	if own.Size() < f.read {
		return ErrShrunk
	}
	if there, err := os.Stat(f.path); err == nil {
		f.last = !os.SameFile(own, there)
	}
	return nil
}
