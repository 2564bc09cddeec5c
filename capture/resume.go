package capture

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// resumeBytes is the chunk size for finding boundaries after damage: the smallest that requires
// runs of full length.
const resumeBytes = 2 * runBytes

// DamageError describes the parts of a file that a reader skipped because of Options.Resume.
type DamageError struct {
	File   string
	Places int   // number of gaps
	Bytes  int64 // skipped bytes of the file
	First  error // error at the first gap: a *CutError or *LimitError
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("read capture %q: damaged in %d places: %d bytes are left out, up to where records follow each other again; the first: %v",
		e.File, e.Places, e.Bytes, e.First)
}

// Unwrap returns the error at the first gap.
func (e *DamageError) Unwrap() error { return e.First }

// resumer lets a reader continue after damage. It needs a file that can be read at any offset.
type resumer struct {
	file   *os.File
	size   int64 // of the file
	bounds []int64
	known  bool // bounds have been computed
	damage *DamageError
}

// Damage returns the gaps so far, or nil. It is complete after ReadBatch has returned an error.
func (r *Reader) Damage() *DamageError { return r.resumer.damage }

// resume goes on behind the record that could not be read, where a run of records
// proves that one starts there, and reports whether it did. Where a chunk has no
// such place, it ends in good order: the next one starts at a proven place.
func (r *Reader) resume() bool {
	if r.opts.Resume == 0 || r.classic == nil || r.resumer.file == nil || !damaged(r.err) {
		return false
	}
	from := r.win.offset() + 1
	limit, err := r.proven(from)
	if err != nil {
		return false
	}
	at, found, err := r.search(from, limit)
	switch {
	case err != nil:
		return false
	case !found && limit < r.resumer.size:
		at = limit
	case !found:
		return false
	}
	r.leaveOut(at)
	end := r.resumer.size
	if r.chunk != nil {
		end = r.chunk.End
	}
	r.win = window{src: io.NewSectionReader(r.resumer.file, at, end-at), buf: r.win.buf, base: at}
	r.err = nil
	return true
}

// damaged distinguishes errors of one record from errors of the whole input.
func damaged(err error) bool {
	var cut *CutError
	var limit *LimitError
	return errors.As(err, &cut) || errors.As(err, &limit)
}

// leaveOut counts what lies between the unreadable record and at.
func (r *Reader) leaveOut(at int64) {
	d := r.resumer.damage
	if d == nil {
		d = &DamageError{File: r.name, First: r.err}
		r.resumer.damage = d
	}
	d.Places++
	d.Bytes += at - r.win.offset()
}

// proven returns the first chunk boundary from an offset on, or the end of the file: the place
// where another reader of the same file starts in any case.
func (r *Reader) proven(from int64) (int64, error) {
	if r.chunk != nil {
		return r.chunk.End, nil
	}
	m := &r.resumer
	if !m.known {
		m.known = true
		if r.opts.Resume > 0 && r.opts.Resume < m.size {
			var err error
			if m.bounds, err = newSplitter(m.file, r.classic, m.size, r.opts.Resume).bounds(); err != nil {
				return 0, err
			}
		}
	}
	for _, b := range m.bounds {
		if b >= from {
			return b, nil
		}
	}
	return m.size, nil
}

// search looks for the end of a run of records between from and limit.
func (r *Reader) search(from, limit int64) (at int64, found bool, err error) {
	s := newSplitter(r.resumer.file, r.classic, r.resumer.size, resumeBytes)
	for from < limit {
		at, found := s.boundary(from)
		switch {
		case s.err != nil:
			return 0, false, s.err
		case found:
			return at, at < limit, nil
		}
		from = max(at, from+s.size)
	}
	return 0, false, nil
}
