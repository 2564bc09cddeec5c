package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// Reader reads the frames of one capture, batch by batch. It is not safe for concurrent use, except
// for Offset, Size and Close.
type Reader struct {
	name    string
	opts    Options
	win     readBuffer
	classic *classic // nil for pcapng
	ng      blocks   // used if classic is nil
	chunk   *Chunk   // nil if the whole file is read
	size    int64    // of the input or the chunk; -1 if unknown
	tail    bool     // last chunk of the file
	count   Counters
	err     error // sticky

	start    int64        // file offset where reading started
	consumed atomic.Int64 // bytes of the input up to the end of the last batch
	inflated *meter       // counts the compressed bytes of a gzip or zstd input
	closer   io.Closer    // nil if the caller owns the input
	stopped  func() error // for a followed file: returns why its reader was stopped; else nil
	resumer  resumer
}

// progress is the result of parsing the bytes in memory.
type progress struct {
	used int      // bytes of complete records, and of skipped blocks
	need int      // bytes needed to read the next record; 0 if the batch is full
	what string   // the part of the record that need covers
	skip int64    // bytes of the next block, if it must be skipped by reading
	fail *failure // why the next record cannot be read at all
}

// failure is a parser's part of an error; the reader adds file and offset.
type failure struct {
	what   string
	size   int64
	max    int64
	option string // empty if the record is malformed and not just too large
}

const optionMaxFrame = "Options.MaxFrame"

func malformed(what string) *failure { return &failure{what: what} }

func tooLarge(caplen, limit int64) *failure {
	return &failure{what: "captured length", size: caplen, max: limit, option: optionMaxFrame}
}

// NewReader reads a capture from src. It reads the file header at once, which may block. name is
// only used in messages. The caller closes src.
//
// Errors: a *FormatError if src is not a capture, a *CutError if it ends inside the file header, or
// the error of src.
func NewReader(src io.Reader, name string, opts Options) (*Reader, error) {
	return newReader(src, name, opts, true)
}

// newReader implements NewReader. Unless inflate is set, a compressed input is an error.
func newReader(src io.Reader, name string, opts Options, inflate bool) (*Reader, error) {
	r := &Reader{name: name, opts: opts.withDefaults(), size: -1}
	r.win = readBuffer{src: src, buf: make([]byte, r.opts.ReadBuffer)}
	if err := r.detect(inflate); err != nil {
		return nil, err
	}
	return r, nil
}

// ReadBatch fills b with the next frames and blocks until there is at least one. It returns fewer
// than BatchSize frames if the read buffer must be refilled, so that every Data in a batch stays
// valid until the next call.
//
// At the end b.N is 0 and the error is io.EOF. A cut or malformed file gives all intact packets
// first, then a *CutError. A packet beyond the limits gives a *LimitError, and a chunk whose end is
// no record boundary a *BoundaryError. Errors are final: later calls repeat them. With
// Options.Resume, damage inside a file is no error: see Damage.
func (r *Reader) ReadBatch(b *Batch) error {
	b.N = 0
	for b.N == 0 && (r.err == nil || r.resume()) {
		r.err = r.advance(b)
	}
	r.count.Packets += uint64(b.N)
	r.consumed.Store(r.win.offset() - r.start)
	if r.chunk != nil && r.chunk.table != nil && (r.err == nil || errors.Is(r.err, io.EOF)) {
		r.chunk.table.offer(r)
	}
	if b.N > 0 {
		return nil
	}
	return r.err
}

// advance parses the bytes in memory and reads more if they contain no frame.
func (r *Reader) advance(b *Batch) error {
	var p progress
	if r.classic != nil {
		p = r.classic.parse(b, r.win.unread(), r.win.offset(), r.count.Packets)
	} else {
		p = r.ng.parse(b, r.win.unread(), r.win.offset(), r.count.Packets)
	}
	r.win.r += p.used
	switch {
	case p.fail != nil:
		return r.failed(p.fail, r.count.Packets+uint64(b.N))
	case b.N > 0:
		return nil
	case p.skip > 0:
		return r.skipBlock(p.skip)
	case !r.win.fill(p.need):
		return r.ended(r.win.offset(), p.need, p.what)
	}
	return nil
}

// failed adds file and offset to the error of an unreadable record.
func (r *Reader) failed(f *failure, intact uint64) error {
	at := r.win.offset()
	if f.option == "" {
		return &CutError{File: r.name, Offset: at, Packets: intact, Have: len(r.win.unread()), What: f.what}
	}
	return &LimitError{File: r.name, Offset: at, Packet: intact + 1, What: f.what, Size: f.size, Max: f.max, Option: f.option}
}

// ended returns the error for a record at offset at: the input ended before all of its want bytes.
func (r *Reader) ended(at int64, want int, what string) error {
	end := r.win.offset() + int64(len(r.win.unread()))
	clean, cut := errors.Is(r.win.err, io.EOF), errors.Is(r.win.err, io.ErrUnexpectedEOF)
	var inflation *inflationError
	switch {
	case errors.As(r.win.err, &inflation):
		return r.failed(&inflation.failure, r.count.Packets)
	case (clean || cut) && r.stopped != nil && r.stopped() != nil:
		return io.EOF // the rest of a record is still being written
	case !clean && !cut:
		return fmt.Errorf("read capture %q at byte offset %d: %w", r.name, end, r.win.err)
	case clean && end == at && (r.chunk == nil || at == r.chunk.End):
		return io.EOF
	case r.chunk != nil && (end == at || !r.tail) && (at != r.win.offset() || !r.isDamage()):
		return &BoundaryError{File: r.name, Chunk: *r.chunk, Offset: at}
	case cut:
		what += " (the compressed stream is cut)"
	}
	return &CutError{File: r.name, Offset: at, Packets: r.count.Packets, Want: want, Have: int(end - at), What: what}
}

// skipBlock reads and drops a block of total bytes, of any size, and checks that its trailer repeats
// the length. A reader that can resume checks that first, since a damaged length would make it skip
// intact records.
func (r *Reader) skipBlock(total int64) error {
	start, body := r.win.offset(), total-blockTrailer
	if r.isDamage() {
		return r.failed(malformed(fmt.Sprintf("block of %d bytes does not end with its length", total)), r.count.Packets)
	}
	if bad := r.ng.skip(r.win.unread()); bad != "" {
		return r.failed(malformed(bad), r.count.Packets)
	}
	if r.win.discard(body) < body || !r.win.fill(blockTrailer) {
		return r.ended(start, int(total), "block")
	}
	if bad := r.ng.checkTrailer(r.win.unread(), total); bad != "" {
		return &CutError{File: r.name, Offset: start, Packets: r.count.Packets, Have: int(total), What: bad}
	}
	r.win.r += blockTrailer
	return nil
}

// Interfaces returns the interfaces known so far, indexed by Frame.Interface. The list grows while
// a pcapng file is read: numbers continue across sections, so that an index identifies one
// interface of the file. Entries never change. The reader owns the slice; callers must not write to
// it.
func (r *Reader) Interfaces() []Interface {
	n := len(r.ng.interfaces)
	return r.ng.interfaces[:n:n]
}

// Name returns the name of the input in messages.
func (r *Reader) Name() string { return r.name }

// Counters returns the totals up to the last batch.
func (r *Reader) Counters() Counters {
	c := r.count
	c.SkippedBlocks, c.SaturatedTimes = r.ng.skipped, r.ng.saturated
	return c
}

// Offset returns the number of input bytes consumed so far, for progress relative to Size:
// compressed bytes for a compressed file, bytes since its start for a chunk. It is safe for
// concurrent use.
func (r *Reader) Offset() int64 {
	if r.inflated != nil {
		return r.inflated.n.Load()
	}
	return r.consumed.Load()
}

// Size returns the stored size of the file or of the chunk in bytes; -1 for a pipe.
func (r *Reader) Size() int64 { return r.size }

// Close closes the file that Open or OpenChunk opened. It does not close standard input or the
// source of NewReader. A second Close is an error. If ReadBatch waits on a named pipe, Close makes
// it return.
func (r *Reader) Close() error {
	if r.closer == nil {
		return nil
	}
	if err := r.closer.Close(); err != nil {
		return fmt.Errorf("close capture %q: %w", r.name, err)
	}
	return nil
}

// release frees the buffers of a reader that has ended. Its Interfaces and Counters remain
// available.
func (r *Reader) release() {
	r.consumed.Store(r.Offset())
	r.win, r.inflated, r.resumer.search = readBuffer{}, nil, nil
}

// Open opens the capture at path and reads its file header. The path "-" is standard input.
// Compression and format are recognized by content, not by name.
//
// Errors: a *FormatError, a *CutError for a file that ends inside its header, one that wraps
// ErrDirectory, or the operating system's (fs.ErrNotExist).
func Open(path string, opts Options) (*Reader, error) {
	if path == "-" {
		return NewReader(os.Stdin, "standard input", opts)
	}
	f, size, err := openFile(path)
	if err != nil {
		return nil, err
	}
	r, err := NewReader(f, path, opts)
	if err != nil {
		_ = f.Close() // read-only: the reader's error matters
		return nil, err
	}
	r.size, r.closer = size, f
	if size >= 0 && r.inflated == nil {
		r.resumer.file, r.resumer.size = f, size
	}
	return r, nil
}

// openFile returns the file and its size, or -1 if it is not a regular file.
func openFile(path string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("open capture %q: %w", path, err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = ErrDirectory
	}
	if err != nil {
		_ = f.Close() // read-only
		return nil, 0, fmt.Errorf("open capture %q: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return f, -1, nil
	}
	return f, info.Size(), nil
}

// detect recognizes the format and consumes the header of a classic file. It inflates a compressed
// stream once, if inflate allows it.
func (r *Reader) detect(inflate bool) error {
	if !r.win.fill(4) {
		if len(r.win.unread()) == 0 && errors.Is(r.win.err, io.EOF) {
			return &FormatError{File: r.name, What: "the file is empty"}
		}
		if !errors.Is(r.win.err, io.EOF) {
			return fmt.Errorf("open capture %q: read the file header: %w", r.name, r.win.err)
		}
		return r.notCapture("not a pcap or pcapng file, too short")
	}
	p := r.win.unread()
	if _, ok := classicMagic(p); ok {
		return r.openClassic()
	}
	switch {
	case binary.BigEndian.Uint32(p) == blockSection:
		return r.openBlocks()
	case inflate && compressionOf(p) != uncompressed:
		return r.openCompressed(compressionOf(p))
	}
	return r.notCapture("not a pcap or pcapng file")
}

func (r *Reader) notCapture(what string) error {
	first := r.win.unread()
	return &FormatError{File: r.name, First: bytes.Clone(first[:min(4, len(first))]), What: what}
}

func (r *Reader) openClassic() error {
	if !r.win.fill(classicFileHeader) {
		return r.ended(0, classicFileHeader, "pcap file header")
	}
	c, err := parseClassicHeader(r.win.unread(), r.name, r.opts.MaxFrame)
	if err != nil {
		return err
	}
	r.win.r += classicFileHeader
	r.classic = c
	r.ng.interfaces = []Interface{c.describe()}
	return nil
}

// openBlocks checks that the input is a pcapng file. The section header itself is read with the
// blocks after it.
func (r *Reader) openBlocks() error {
	if !r.win.fill(12) {
		return r.ended(0, minSection, "section header block")
	}
	if _, ok := byteOrder(r.win.unread()[8:]); !ok {
		return r.notCapture("not a pcapng file, its section has no byte-order magic")
	}
	r.ng = newBlocks(r.opts)
	return nil
}

// readBuffer is the part of a byte stream in memory: buf[r:w] is unread. Slices of it are valid until
// the next fill or discard.
type readBuffer struct {
	src  io.Reader
	buf  []byte
	r, w int
	base int64 // stream offset of buf[0]
	err  error // reason for the end of the stream; sticky
}

func (v *readBuffer) unread() []byte { return v.buf[v.r:v.w] }

func (v *readBuffer) offset() int64 { return v.base + int64(v.r) }

// fill makes at least n bytes available and reads as many more as fit into the buffer at once. It
// returns false if the stream ends first; v.err is then set. fill grows the buffer to n if
// necessary, so the caller must check n against its limits.
func (v *readBuffer) fill(n int) bool {
	v.compact(n)
	for idle := 0; v.w-v.r < n && v.err == nil; {
		m, err := v.src.Read(v.buf[v.w:])
		v.w += m
		v.err = err
		if m > 0 {
			idle = 0
		} else if idle++; idle >= 100 && err == nil {
			v.err = io.ErrNoProgress
		}
	}
	return v.w-v.r >= n
}

// compact moves the unread bytes to the front, so that n bytes fit.
func (v *readBuffer) compact(n int) {
	dst := v.buf
	if n > len(dst) {
		dst = make([]byte, n)
	}
	left := copy(dst, v.unread())
	v.base += int64(v.r)
	v.buf, v.r, v.w = dst, 0, left
}

// discard skips n bytes in constant memory and returns how many existed.
func (v *readBuffer) discard(n int64) int64 {
	done := int64(0)
	for {
		step := min(n-done, int64(v.w-v.r))
		v.r += int(step)
		done += step
		if done == n || !v.fill(1) {
			return done
		}
	}
}
