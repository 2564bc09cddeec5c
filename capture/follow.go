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

// Follow opens the capture at path like [Open] and waits for more data at its end, polling every
// Options.Poll, until ctx is done or the file has been rotated. It also waits for the file header
// of an empty file. The file must exist. Inputs other than regular files block by themselves, so
// they are read as with Open, but ctx ends the wait for them.
//
// The reader ends in one of three ways:
//
//   - ctx is done: io.EOF from ReadBatch, even in the middle of a record, or ctx's error from
//     Follow itself.
//   - Another file has taken the path's place, by rename or after removal, and the followed one has
//     been read to its end: io.EOF while ctx is alive. [Rotation] continues with the successor.
//   - The file has shrunk or was rewritten in place: an error that wraps ErrShrunk.
//
// Damage also ends it: Options.Resume has no effect, since the records that prove the next position
// may not be written yet. A compressed file is an error that wraps ErrCompressed. Size is -1 while
// a regular file is followed. Close from another goroutine does not promptly end the wait for a
// regular file; ctx does.
func Follow(ctx context.Context, path string, opts Options) (*Reader, error) {
	info, err := os.Stat(path) // before opening, which waits for the writer of a named pipe
	if path == "-" || err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return followPipe(ctx, path, opts)
	}
	f, _, err := openFile(path)
	if err != nil {
		return nil, err
	}
	replaced := func(own os.FileInfo) bool {
		there, err := os.Stat(path)
		// If the path has no file, a rotation has not created its new file yet, and the writer may
		// still write to the old one.
		return err == nil && !os.SameFile(own, there)
	}
	return follow(ctx, f, path, opts, replaced)
}

// follow follows a regular file. It closes the file on error.
func follow(ctx context.Context, f *os.File, path string, opts Options, rotated func(os.FileInfo) bool) (*Reader, error) {
	src := &follower{ctx: ctx, file: f, rotated: rotated, poll: opts.withDefaults().Poll}
	r, err := newReader(src, path, opts, false)
	if err != nil {
		if format, ok := errors.AsType[*FormatError](err); ok && len(format.First) == 4 && compressionOf(format.First) != uncompressed {
			err = fmt.Errorf("follow capture %q: %w", path, ErrCompressed)
		}
		_ = f.Close() // read-only: the reader's error matters
		if ctx.Err() != nil {
			err = fmt.Errorf("follow capture %q: wait for the file header: %w", path, ctx.Err())
		}
		return nil, err
	}
	r.closer, r.stopped = f, ctx.Err
	return r, nil
}

// followPipe reads standard input or a named pipe until ctx ends. Nothing interrupts the opening of a
// pipe and a read of standard input, so a goroutine does both. If ctx or Close ends the wait, it stays
// until the writer writes or closes.
func followPipe(ctx context.Context, path string, opts Options) (*Reader, error) {
	name := path
	if path == "-" {
		name = "standard input"
	}
	open, end := context.WithCancel(ctx)
	from, to := io.Pipe()
	context.AfterFunc(open, func() { _ = to.Close() })
	go func() { _ = to.CloseWithError(copyPipe(open, path, to)) }()
	r, err := NewReader(from, name, opts)
	if err != nil {
		end()
		if ctx.Err() != nil {
			err = fmt.Errorf("open capture %q: wait for the file header: %w", name, ctx.Err())
		}
		return nil, err
	}
	r.stopped = ctx.Err
	r.closer = closeFunc(func() error {
		_ = from.Close() // before to, whose end would be the end of the capture
		end()
		return nil
	})
	return r, nil
}

type closeFunc func() error

// Close implements io.Closer.
func (f closeFunc) Close() error { return f() }

// copyPipe copies a pipe to its end, or until ctx ends.
func copyPipe(ctx context.Context, path string, to io.Writer) error {
	f := os.Stdin
	if path != "-" {
		var err error
		if f, err = os.Open(path); err != nil {
			return err
		}
		defer f.Close()
		defer context.AfterFunc(ctx, func() { _ = f.Close() })() // ends a read
		if ctx.Err() != nil {
			return nil // read nothing that another reader could read
		}
	}
	_, err := io.Copy(to, f)
	if ctx.Err() != nil {
		return nil // it closed the file
	}
	return err
}

// ErrShrunk is wrapped by the error for a followed file that became shorter than the part already
// read: it was truncated or rewritten in place, and the positions of its records are lost.
var ErrShrunk = errors.New("the file has shrunk while it was followed; follow it again to read it from its start")

// followerHead is the number of bytes at the start of a followed file that are compared to detect
// that it was rewritten in place. They include the time of the first packet.
const followerHead = 4 << 10

// follower reads a growing file.
type follower struct {
	ctx     context.Context // lifetime of the reader, since io.Reader takes no context
	file    *os.File
	rotated func(own os.FileInfo) bool // reports that its end is final
	poll    time.Duration
	read    int64  // bytes so far
	last    bool   // the file has been rotated
	head    []byte // first bytes of the file
}

// Read implements io.Reader: it returns the available bytes and waits only if there are none.
func (f *follower) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	var timer *time.Timer
	for {
		n, err := f.file.Read(p)
		if n > 0 {
			if f.rewritten() {
				return 0, ErrShrunk // these bytes belong to the new content
			}
			f.take(p[:n])
			return n, nil // an error occurs again
		}
		if !errors.Is(err, io.EOF) || f.last || f.ctx.Err() != nil {
			return 0, err
		}
		if err = f.checkGrowth(); err != nil {
			return 0, err
		}
		if f.last {
			continue // read the bytes written before the rotation
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

// take counts the bytes read and keeps the first ones.
func (f *follower) take(p []byte) {
	f.read += int64(len(p))
	if room := followerHead - len(f.head); room > 0 {
		f.head = append(f.head, p[:min(room, len(p))]...)
	}
}

// rewritten reports whether the start of the file has changed: it was rewritten in place and has
// grown beyond the part already read.
func (f *follower) rewritten() bool {
	now := make([]byte, len(f.head))
	_, err := f.file.ReadAt(now, 0)
	return err != nil || !bytes.Equal(now, f.head)
}

// checkGrowth checks whether more data can be expected.
func (f *follower) checkGrowth() error {
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
