package capture

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Chunk is the byte range [Start, End) of a capture file. It has the records whose header starts in
// the range.
type Chunk struct {
	Index       int
	Start, End  int64  // byte offsets in the file; End is -1 for a pipe
	FirstPacket uint64 // number of the chunk's first packet in the file; 0 when unknown
}

// Chunks splits a classic pcap file into byte ranges of about size bytes, so
// that several cores read one file. The result depends only on the file's bytes
// and on size, never on the number of cores. Everything else gives one chunk:
// pcapng, gzip, pipes, small files, a size below 1, and what is no capture at
// all (which OpenChunk then reports). The ranges cover the file without a gap.
//
// Boundaries are found by runs of plausible record headers and proven while
// reading: chunk 0 starts at a known record, and a chunk whose reader ends with
// io.EOF proves the start of the next one. Behind damage, which Options.Resume
// lets a reader step over, the run alone is the proof: at least 16 records and 64
// KiB that lead from one to the next, with plausible lengths and times. After a
// *BoundaryError the caller drops what the chunk and those behind it yielded, and
// reads the file again with Open; without Options.Resume, after any other error
// than io.EOF, the chunks behind it.
//
// A file has at most 65536 chunks; a smaller size is raised to that.
func Chunks(path string, size int64) ([]Chunk, error) {
	if path == "-" {
		return []Chunk{{End: -1, FirstPacket: 1}}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("split capture %q: %w", path, err)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return []Chunk{{End: -1, FirstPacket: 1}}, nil
	}
	f, fileSize, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read-only
	whole := []Chunk{{End: fileSize, FirstPacket: 1}}
	layout, found, err := classicLayout(f, path, DefaultMaxFrame)
	if err != nil {
		return nil, err
	}
	if !found || size < 1 || fileSize <= size {
		return whole, nil
	}
	bounds, err := newSplitter(f, layout, fileSize, size).bounds()
	if err != nil {
		return nil, fmt.Errorf("split capture %q: %w", path, err)
	}
	return cover(bounds, fileSize), nil
}

// cover converts inner boundaries to the chunks of a file.
func cover(bounds []int64, fileSize int64) []Chunk {
	chunks := make([]Chunk, 0, len(bounds)+1)
	start := int64(0)
	for i := 0; i <= len(bounds); i++ {
		end := fileSize
		if i < len(bounds) {
			end = bounds[i]
		}
		chunks = append(chunks, Chunk{Index: i, Start: start, End: end})
		start = end
	}
	chunks[0].FirstPacket = 1
	return chunks
}

// classicLayout reads the header of a classic pcap file. If found is false, the file is not one or
// is damaged: reading it from the start returns the reason.
func classicLayout(f io.ReaderAt, name string, maxFrame int) (layout *classic, found bool, err error) {
	var head [classicFileHeader]byte
	if n, err := f.ReadAt(head[:], 0); n < len(head) {
		if errors.Is(err, io.EOF) {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("read capture %q: read the file header: %w", name, err)
	}
	if _, ok := classicMagic(head[:]); !ok {
		return nil, false, nil
	}
	layout, err = parseClassicHeader(head[:], name, maxFrame)
	var format *FormatError
	if errors.As(err, &format) {
		return nil, false, nil
	}
	return layout, err == nil, err
}

// OpenChunk opens one chunk of Chunks. Its reader counts packets from 1 in the
// chunk; frame offsets are those of the file, Offset and Size those of the
// chunk. See Chunks for what a *BoundaryError at its end means.
func OpenChunk(path string, c Chunk, opts Options) (*Reader, error) {
	if path == "-" || c.End < 0 {
		return Open(path, opts)
	}
	f, fileSize, err := openFile(path)
	if err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	layout, found, err := classicLayout(f, path, opts.MaxFrame)
	if err != nil || !found {
		_ = f.Close() // read-only
		if err != nil {
			return nil, err
		}
		return openOnly(path, c, opts)
	}
	r := readChunk(f, path, c, fileSize, layout, opts)
	r.closer = f
	r.resumer.file, r.resumer.size = f, fileSize
	return r, nil
}

// openOnly opens the only chunk of a file that cannot be split.
func openOnly(path string, c Chunk, opts Options) (*Reader, error) {
	r, err := Open(path, opts)
	if err == nil && c.Start != 0 {
		_ = r.Close() // only read from
		return nil, fmt.Errorf("open capture %q: chunk %d starts at byte offset %d, but only classic pcap files are split; use the chunks of this file",
			path, c.Index, c.Start)
	}
	return r, err
}

// readChunk returns a reader of the records in [c.Start, c.End).
func readChunk(f io.ReaderAt, name string, c Chunk, fileSize int64, layout *classic, opts Options) *Reader {
	from := max(c.Start, classicFileHeader)
	src := io.NewSectionReader(f, from, max(0, c.End-from))
	r := &Reader{
		name: name, opts: opts, classic: layout,
		chunk: &c, tail: c.End >= fileSize,
		size: c.End - c.Start, start: c.Start,
		win: window{src: src, buf: make([]byte, opts.ReadBuffer), base: from},
	}
	r.ng.interfaces = []Interface{layout.describe()}
	return r
}

// What makes a run of headers convincing, and what finding it may cost.
const (
	maxChunks = 65536
	// Every record of a run of at least runRecords and runBytes has to be
	// plausible. Headers inside a payload, say of a capture that is itself
	// being transferred, do not get past the end of their packet.
	runRecords = 16
	runBytes   = 64 << 10
	// maxGap is the largest distance in time between neighbours, seconds.
	maxGap = 3600
	// maxWire is the largest plausible length on the wire, bytes: far beyond
	// any offloaded super-frame.
	maxWire     = 16 << 20
	splitBuffer = 128 << 10
)

// splitter finds record boundaries in the middle of a classic pcap file.
type splitter struct {
	src      io.ReaderAt
	layout   *classic
	fileSize int64
	size     int64 // wanted chunk size
	minBytes int64 // of a run
	budget   int64 // headers looked at for one boundary, beyond the first of each candidate
	maxIncl  uint32

	buf   []byte
	at    int64 // file offset of buf
	n     int
	spent int64 // of the budget
	err   error // of src; sticky
}

func newSplitter(src io.ReaderAt, layout *classic, fileSize, size int64) *splitter {
	size = max(size, fileSize/maxChunks+1)
	s := &splitter{
		src: src, layout: layout, fileSize: fileSize, size: size,
		minBytes: min(runBytes, size/2),
		// Several times what a run takes, and in sum linear in the file: crafted
		// files cost chunks, not time.
		budget:  4*runRecords + size/4,
		maxIncl: layout.maxFrame,
		buf:     make([]byte, splitBuffer),
	}
	if layout.snapLen > 0 {
		s.maxIncl = min(s.maxIncl, layout.snapLen)
	}
	return s
}

// bounds returns the inner chunk boundaries in ascending order.
func (s *splitter) bounds() ([]int64, error) {
	var found []int64
	// A remainder below half a chunk is not worth a chunk of its own.
	for from := s.size; from < s.fileSize-s.size/2; {
		at, ok := s.boundary(from)
		if s.err != nil {
			return nil, fmt.Errorf("find a record boundary near byte offset %d: %w", from, s.err)
		}
		if ok {
			found = append(found, at)
			from = at + s.size
		} else { // every start below at has been tried
			from = max(at, from+s.size)
		}
	}
	return found, nil
}

// boundary returns the first record boundary that a run of records starting
// near from proves. A record starts within the longest record's length of from;
// if no run does, there is no boundary here, and at is where the search ended.
func (s *splitter) boundary(from int64) (at int64, ok bool) {
	c := max(from, classicFileHeader)
	s.spent = 0
	last := min(c+int64(s.layout.head)+int64(s.maxIncl), s.fileSize)
	for ; c < last && s.spent < s.budget && s.err == nil; c++ {
		if c < s.at || c > s.at+int64(s.n)/2 {
			s.load(c)
		}
		if end, ok := s.run(c); ok {
			return end, true
		}
	}
	return c, false
}

// run walks the records from off and returns the end of the run, not its start:
// a false start that happens to lead into the true records is then harmless.
func (s *splitter) run(off int64) (int64, bool) {
	start, count := off, 0
	var before record
	for {
		h, ok := s.headerAt(off)
		if !ok || !s.plausible(h) || count > 0 && !near(before.sec, h.sec) {
			return 0, false
		}
		if count >= runRecords && off-start >= s.minBytes {
			return off, true
		}
		if count > 0 {
			if s.spent++; s.spent >= s.budget {
				return 0, false
			}
		}
		before = h
		count++
		off += int64(s.layout.head) + int64(h.incl)
	}
}

// plausible tests a header on its own. Empty records are legal but rare, and
// would make runs of zeros look like records.
func (s *splitter) plausible(h record) bool {
	return h.incl > 0 && h.incl <= s.maxIncl &&
		h.orig >= h.incl && h.orig <= maxWire &&
		h.frac < s.layout.perSec
}

// near reports whether two times are those of neighbours; files are not always
// in order.
func near(a, b uint32) bool {
	d := int64(a) - int64(b)
	return d >= -maxGap && d <= maxGap
}

// headerAt returns the record header at off. Candidates lie in the buffer; what
// a run reaches beyond it is read header by header.
func (s *splitter) headerAt(off int64) (record, bool) {
	if off >= s.at && off+classicRecordHeader <= s.at+int64(s.n) {
		return s.layout.recordAt(s.buf[off-s.at:]), true
	}
	var p [classicRecordHeader]byte
	if !s.readAt(p[:], off) {
		return record{}, false
	}
	return s.layout.recordAt(p[:]), true
}

func (s *splitter) load(off int64) {
	s.at = off
	s.n = int(min(int64(len(s.buf)), s.fileSize-off))
	if !s.readAt(s.buf[:s.n], off) {
		s.n = 0
	}
}

// readAt fills p or reports false; a file that shrank meanwhile is no error.
func (s *splitter) readAt(p []byte, off int64) bool {
	n, err := s.src.ReadAt(p, off)
	if n == len(p) {
		return true
	}
	if !errors.Is(err, io.EOF) {
		s.err = err
	}
	return false
}
