package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// stdinName is the file name of standard input in results.
const stdinName = "stdin"

// Spool calls use with paths in which inputs that can be read only once ("-", which is standard
// input, and named pipes) are replaced by copies in a temporary folder ($TMPDIR). A copy is then
// identified by its contents, like any file. Spool blocks until all inputs or ctx have ended, and
// removes the copies when use returns. The text of its error names the inputs, not the copies.
func Spool(ctx context.Context, paths []string, use func(files []string) error) (err error) {
	dir := ""
	defer func() {
		if dir != "" {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	files := make([]string, len(paths))
	var names []string // pairs of a copy and its input
	for i, path := range paths {
		if files[i] = path; !readOnce(path) {
			continue
		}
		if dir == "" {
			if dir, err = os.MkdirTemp("", "csigscope-"); err != nil {
				return fmt.Errorf("spool capture: %w", err)
			}
		}
		// The base name is kept, since it may be the name of a tap.
		name, input := stdinName, "standard input"
		if path != "-" {
			name, input = filepath.Base(path), path
		}
		files[i] = filepath.Join(dir, strconv.Itoa(i), name)
		names = append(names, files[i], input)
		if err := spool(ctx, path, files[i]); err != nil {
			return fmt.Errorf("spool capture %q: %w", path, err)
		}
	}
	if err = use(files); err == nil || len(names) == 0 {
		return err
	}
	return inputError{err, strings.NewReplacer(names...)}
}

// inputError is an error about copies whose text names their inputs.
type inputError struct {
	error
	names *strings.Replacer
}

func (e inputError) Error() string { return e.names.Replace(e.error.Error()) }

func (e inputError) Unwrap() error { return e.error }

// captureNames returns the names of captures in results, before Spool: those of their files, or
// whole paths where files of several folders have one name.
func captureNames(paths []string) []string {
	names, count := make([]string, len(paths)), make(map[string]int)
	for i, path := range paths {
		if names[i] = filepath.Base(path); path == "-" {
			names[i] = stdinName
		}
		count[names[i]]++
	}
	for i, path := range paths {
		if count[names[i]] > 1 {
			names[i] = path
		}
	}
	return names
}

// readOnce reports whether a path is standard input or not a regular file.
func readOnce(path string) bool {
	info, err := os.Stat(path)
	return path == "-" || err == nil && !info.IsDir() && !info.Mode().IsRegular()
}

// spool copies a stream to a file. A read from a pipe cannot always be interrupted, so ctx only
// ends the wait for it.
func spool(ctx context.Context, from, to string) error {
	if err := os.Mkdir(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- copyStream(from, to) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func copyStream(from, to string) (err error) {
	in := os.Stdin
	if from != "-" {
		if in, err = os.Open(from); err != nil {
			return err
		}
		defer in.Close()
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Capacity of a pipe.
const (
	pipeBuffers     = 4
	pipeBufferBytes = 256 << 10
)

// pipe transfers bytes between two goroutines, a few buffers ahead, so that both can work at the
// same time. io.Pipe has no buffer, so only one of them could.
type pipe struct {
	full, free chan []byte
	writing    []byte // not yet passed on
	reading    []byte // rest of inHand
	inHand     []byte

	ended     chan struct{} // closed by the reader
	whyEnded  error         // set before ended is closed
	whyClosed error         // set before full is closed
}

func newPipe() *pipe {
	p := &pipe{
		full: make(chan []byte, pipeBuffers), free: make(chan []byte, pipeBuffers), ended: make(chan struct{}),
	}
	for range pipeBuffers {
		p.free <- make([]byte, 0, pipeBufferBytes)
	}
	return p
}

// Write implements io.Writer. It blocks while all buffers are full.
func (p *pipe) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		if p.writing == nil {
			select {
			case p.writing = <-p.free:
			case <-p.ended:
				return n, p.whyEnded
			}
		}
		k := min(len(b), cap(p.writing)-len(p.writing))
		p.writing = append(p.writing, b[:k]...)
		b, n = b[k:], n+k
		if len(p.writing) == cap(p.writing) {
			if err := p.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// flush passes on the written bytes. It never blocks: full has room for all buffers.
func (p *pipe) flush() error {
	select {
	case <-p.ended:
		return p.whyEnded
	default:
	}
	if len(p.writing) > 0 {
		p.full <- p.writing
		p.writing = nil
	}
	return nil
}

// closeWrite ends the stream. The reader gets err, or io.EOF if err is nil.
func (p *pipe) closeWrite(err error) {
	if flushed := p.flush(); err == nil {
		err = flushed
	}
	p.whyClosed = err
	close(p.full)
}

// Read implements io.Reader.
func (p *pipe) Read(b []byte) (int, error) {
	if len(p.reading) == 0 {
		if p.inHand != nil {
			p.free <- p.inHand[:0]
			p.inHand = nil
		}
		next, ok := <-p.full
		if !ok {
			if p.whyClosed != nil {
				return 0, p.whyClosed
			}
			return 0, io.EOF
		}
		p.inHand, p.reading = next, next
	}
	n := copy(b, p.reading)
	p.reading = p.reading[n:]
	return n, nil
}

// closeRead makes later writes fail.
func (p *pipe) closeRead(err error) {
	p.whyEnded = err
	close(p.ended)
}
