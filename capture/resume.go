package capture

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// resumeBytes is the chunk size for finding boundaries after damage: the smallest that requires
// runs of full length in a pcap file.
const resumeBytes = 2 * runBytes

// maxShort is the number of searches by short runs that a reader may do in addition to one per runBytes of
// the file. Each looks at runBytes, even if the next damage follows a few bytes later.
const maxShort = 8192

// DamageError describes the parts of a file that a reader skipped because of Options.Resume.
type DamageError struct {
	File  string
	Gaps  int   // number of gaps
	Bytes int64 // skipped bytes of the file
	First error // error at the first gap: a *CutError or *LimitError
}

// Error implements error.
func (e *DamageError) Error() string {
	gaps := "1 place"
	if e.Gaps != 1 {
		gaps = fmt.Sprintf("%d places", e.Gaps)
	}
	read := fmt.Sprintf("read capture %q: ", e.File)
	return fmt.Sprintf("%sdamaged in %s, %d bytes are left out; the first: %s", read, gaps, e.Bytes, strings.TrimPrefix(e.First.Error(), read))
}

// Unwrap returns the error at the first gap.
func (e *DamageError) Unwrap() error { return e.First }

// resumer lets a reader continue after damage. It needs a file that can be read at any offset.
type resumer struct {
	file   *os.File
	size   int64 // of the file
	bounds []int64
	known  bool // bounds have been computed
	search *splitter
	short  int64 // searches by short runs
	damage *DamageError
}

// Damage returns the gaps so far, or nil. It is complete after ReadBatch has returned an error.
func (r *Reader) Damage() *DamageError { return r.resumer.damage }

// resume skips the unreadable record, and reports whether it did. It continues after a pcapng block
// with a valid length, else where a run of records proves the start of one, else at the next chunk
// boundary or the end of the file. Only a file that ends inside its last record keeps its error.
func (r *Reader) resume() bool {
	if !r.canResume() || !damaged(r.err) {
		return false
	}
	if r.classic == nil {
		if kind, total := r.soundBlock(); total > 0 {
			return r.leaveBlock(kind, total)
		}
	}
	from := r.win.offset() + 1
	limit, err := r.nextBoundary(from)
	if err != nil {
		return false
	}
	at, found, err := r.search(from, limit)
	cut, _ := errors.AsType[*CutError](r.err)
	if err != nil || !found && limit >= r.resumer.size && cut != nil && cut.Want > 0 {
		return false
	}
	if !found {
		at = limit
	}
	if r.classic == nil {
		r.ng.damaged(r.win.unread())
	}
	r.leaveOut(at)
	return true
}

// canResume reports whether the reader is to skip damage, and the input allows it. A file that grows is
// searched up to the size that it had when it was opened.
func (r *Reader) canResume() bool {
	return r.opts.Resume != 0 && r.resumer.file != nil && r.win.offset() < r.resumer.size
}

// soundBlock returns the type and length of the current pcapng block, which need not be in memory
// completely. The length is 0 if it differs from the one at the block's end.
func (r *Reader) soundBlock() (kind uint32, total int64) {
	head, ok := r.peek(0, minBlock)
	if !ok {
		return 0, 0
	}
	s := blocks{swapped: r.ng.swapped}
	kind, total, bad := s.header(head)
	if bad != "" {
		return 0, 0
	}
	end, ok := r.peek(total-blockTrailer, blockTrailer)
	if !ok || int64(s.u32(end)) != total {
		return 0, 0
	}
	return kind, total
}

// peek returns n bytes at a distance after the reader's position, or false beyond the end of the
// file.
func (r *Reader) peek(off int64, n int) ([]byte, bool) {
	if p := r.win.unread(); off+int64(n) <= int64(len(p)) {
		return p[off:][:n], true
	}
	p := make([]byte, n)
	_, err := r.resumer.file.ReadAt(p, r.win.offset()+off)
	return p, err == nil
}

// isDamage reports whether the current pcapng block has no valid length, and reading may resume
// after the damage.
func (r *Reader) isDamage() bool {
	if r.classic != nil || !r.canResume() {
		return false
	}
	_, total := r.soundBlock()
	return total == 0
}

// leaveBlock skips the current block, whose length is valid and whose content is not.
func (r *Reader) leaveBlock(kind uint32, total int64) bool {
	at := r.win.offset() + total
	if r.chunk != nil && at > r.chunk.End {
		r.err = &BoundaryError{File: r.name, Chunk: *r.chunk, Offset: r.win.offset()}
		return false
	}
	if !isPacket(kind) {
		r.ng.damaged(r.win.unread())
	}
	r.leaveOut(at)
	return true
}

// damaged distinguishes errors of one record from errors of the whole input.
func damaged(err error) bool {
	var cut *CutError
	var limit *LimitError
	return errors.As(err, &cut) || errors.As(err, &limit)
}

// leaveOut counts the bytes between the unreadable record and at, and continues at at.
func (r *Reader) leaveOut(at int64) {
	d := r.resumer.damage
	if d == nil {
		d = &DamageError{File: r.name, First: r.err}
		r.resumer.damage = d
	}
	d.Gaps++
	d.Bytes += at - r.win.offset()
	r.err = nil
	end := r.resumer.size
	if r.chunk != nil {
		end = r.chunk.End
	}
	if n := at - r.win.offset(); n <= int64(len(r.win.unread())) && at < end {
		r.win.r += int(n)
		return
	}
	r.win = readBuffer{src: io.NewSectionReader(r.resumer.file, at, end-at), buf: r.win.buf, base: at}
}

// nextBoundary returns the first chunk boundary at or after an offset, else the end of the file. The
// reader of the next chunk starts there in any case.
func (r *Reader) nextBoundary(from int64) (int64, error) {
	if r.chunk != nil {
		return min(r.chunk.End, r.resumer.size), nil // the file may have become shorter
	}
	m := &r.resumer
	if !m.known {
		m.known = true
		if r.opts.Resume > 0 && r.opts.Resume < m.size {
			format, err := formatOf(m.file, r.name, r.opts.MaxFrame)
			if err != nil || format == nil {
				return m.size, err
			}
			if m.bounds, err = newSplitter(m.file, format, m.size, r.opts.Resume).bounds(); err != nil {
				return 0, err
			}
		}
	}
	if i, _ := slices.BinarySearch(m.bounds, from); i < len(m.bounds) {
		return m.bounds[i], nil
	}
	return m.size, nil
}

// search looks for a run of records between from and limit. A run in another byte order than the
// blocks before it belongs to a section that begins in the damage. A file that is made to look like
// records everywhere is searched only in part, and one with very many damages by long runs, so that
// the time is bounded.
func (r *Reader) search(from, limit int64) (at int64, found bool, err error) {
	s := r.resumer.search
	if s == nil {
		s = newSplitter(r.resumer.file, nil, r.resumer.size, resumeBytes)
		r.resumer.search = s
	}
	run := &blockRun{limit: int64(r.opts.maxRecord()), swapped: r.ng.swapped}
	s.format, s.short, s.end = run, r.resumer.short < maxShort+(from-r.start)/runBytes, limit
	if s.short {
		r.resumer.short++
	}
	if r.classic != nil {
		s.format, s.short = newClassicRun(r.classic), false
	}
	for from < limit {
		at, found := s.boundary(from, limit)
		switch {
		case s.err != nil:
			return 0, false, s.err
		case found:
			if r.classic == nil && run.firstBigEndian != r.ng.swapped {
				r.ng.swapped, r.ng.first = run.firstBigEndian, len(r.ng.interfaces)
			}
			return at, at < limit, nil
		case s.spent >= s.budget:
			at = max(at, from+s.size)
		}
		from = at
	}
	return 0, false, nil
}
