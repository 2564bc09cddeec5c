package capture

import (
	"errors"
	"fmt"
	"io"
)

// Criteria for a convincing run of headers, and limits on the search for it.
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

// runFormat tells how records of a file format are recognised in a run. It is used by
// one splitter.
type runFormat interface {
	// longest returns how far apart the starts of two records are at most, bytes.
	longest() int64
	// next returns the end of the record at off, false where there is none; first
	// starts a run.
	next(s *splitter, off int64, first bool) (end int64, ok bool)
	// proven returns the boundary that a run from start to end stands for.
	proven(start, end int64) int64
}

// splitter finds record boundaries in the middle of a capture file.
type splitter struct {
	src      io.ReaderAt
	format   runFormat
	fileSize int64
	size     int64 // largest wanted chunk, bytes
	minBytes int64 // of a run
	budget   int64 // headers looked at for one boundary, beyond the first of each candidate

	buf   []byte
	at    int64 // file offset of buf
	n     int
	small [24]byte // what lies beyond buf
	spent int64    // of the budget
	err   error    // of src; sticky
}

func newSplitter(src io.ReaderAt, format runFormat, fileSize, size int64) *splitter {
	size = max(size, fileSize/maxChunks+1)
	return &splitter{
		src: src, format: format, fileSize: fileSize, size: size,
		minBytes: min(runBytes, size/2),
		// Several times what a run takes, and in sum linear in the file: crafted
		// files cost chunks, not time.
		budget: 4*runRecords + size/4,
		buf:    make([]byte, splitBuffer),
	}
}

// bounds returns the inner chunk boundaries in ascending order. The chunks have about the same
// size, at most the wanted one, and their number is even, so that two cores end together.
func (s *splitter) bounds() ([]int64, error) {
	chunks := (s.fileSize + s.size - 1) / s.size
	chunks += chunks & 1
	var found []int64
	tried := int64(0) // every start before it
	for i := int64(1); i < chunks; i++ {
		from := s.fileSize/chunks*i + s.fileSize%chunks*i/chunks
		if from <= tried {
			continue
		}
		// Blocks start at multiples of 4. Big-endian ones look like little-endian ones that start 3
		// bytes later, so the search must not begin in between.
		at, ok := s.boundary(from&^3, s.fileSize)
		if s.err != nil {
			return nil, fmt.Errorf("find a record boundary near byte offset %d: %w", from, s.err)
		}
		if ok {
			found = append(found, at)
			at += 4
		}
		tried = at
	}
	return found, nil
}

// boundary returns the first record boundary that a run of records starting
// near from proves, and before limit. A record starts within the longest record's length
// of from; if no run does, there is no boundary here, and at is where the search ended.
func (s *splitter) boundary(from, limit int64) (at int64, ok bool) {
	c := max(from, classicFileHeader)
	s.spent = 0
	last := min(c+s.format.longest(), limit)
	for ; c < last && s.spent < s.budget && s.err == nil; c++ {
		if c < s.at || c > s.at+int64(s.n)/2 {
			s.load(c)
		}
		if end, ok := s.run(c); ok {
			return s.format.proven(c, end), true
		}
	}
	return c, false
}

// run walks the records from off and returns the end of the run.
func (s *splitter) run(off int64) (int64, bool) {
	start, count := off, 0
	for {
		end, ok := s.format.next(s, off, count == 0)
		if !ok {
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
		count++
		off = end
	}
}

// bytes returns n bytes at off, at most len(s.small), valid until the next call; false
// beyond the end of the file. Candidates lie in the buffer; what a run reaches beyond it
// is read piece by piece.
func (s *splitter) bytes(off int64, n int) ([]byte, bool) {
	if off >= s.at && off+int64(n) <= s.at+int64(s.n) {
		return s.buf[off-s.at:][:n], true
	}
	return s.small[:n], s.readAt(s.small[:n], off)
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

// classicRun recognises records of a classic pcap file by their lengths and times.
type classicRun struct {
	layout  *classic
	maxIncl uint32
	before  uint32 // time of the run's record before, seconds
}

func newClassicRun(layout *classic) *classicRun {
	c := &classicRun{layout: layout, maxIncl: layout.maxFrame}
	if layout.snapLen > 0 {
		c.maxIncl = min(c.maxIncl, layout.snapLen)
	}
	return c
}

func (c *classicRun) longest() int64 { return int64(c.layout.head) + int64(c.maxIncl) }

// proven returns the end: a false start that happens to lead into the true records is
// then harmless.
func (c *classicRun) proven(_, end int64) int64 { return end }

func (c *classicRun) next(s *splitter, off int64, first bool) (int64, bool) {
	p, ok := s.bytes(off, classicRecordHeader)
	if !ok {
		return 0, false
	}
	h := c.layout.recordAt(p)
	if !c.plausible(h) || !first && !near(c.before, h.sec) {
		return 0, false
	}
	c.before = h.sec
	return off + int64(c.layout.head) + int64(h.incl), true
}

// plausible tests a header on its own. Empty records are legal but rare, and
// would make runs of zeros look like records.
func (c *classicRun) plausible(h record) bool {
	return h.incl > 0 && h.incl <= c.maxIncl &&
		h.orig >= h.incl && h.orig <= maxWire &&
		h.frac < c.layout.perSec
}

// near reports whether two times are those of neighbours; files are not always
// in order.
func near(a, b uint32) bool {
	d := int64(a) - int64(b)
	return d >= -maxGap && d <= maxGap
}

// blockRun recognises blocks of a pcapng file by their length, which each repeats at
// its end.
type blockRun struct {
	limit int64 // of a block, bytes
	began bool  // byte order in which the run begins: big endian
	order bool  // and in which it goes on
}

func (b *blockRun) longest() int64 { return b.limit }

// proven returns the start: a false start cannot lead to the start of a true block, since
// the length at the end of the block before that is the true one. So all blocks of a run
// are true ones, or none is.
func (b *blockRun) proven(start, _ int64) int64 { return start }

func (b *blockRun) next(s *splitter, off int64, first bool) (int64, bool) {
	if !first {
		return b.block(s, off)
	}
	for _, b.began = range [...]bool{false, true} {
		b.order = b.began
		if end, ok := b.block(s, off); ok {
			return end, true
		}
	}
	return 0, false
}

// block returns the end of the block at off. A section header decides the byte order
// from there on.
func (b *blockRun) block(s *splitter, off int64) (int64, bool) {
	p, ok := s.bytes(off, packetHeader-4)
	if !ok {
		return 0, false
	}
	read := blocks{swapped: b.order}
	kind := read.u32(p)
	if kind == blockSection {
		if read.swapped, ok = byteOrder(p[8:]); !ok {
			return 0, false
		}
	}
	total := int64(read.u32(p[4:]))
	if least, _ := read.shape(kind); total < int64(least) || total%4 != 0 || total > b.limit {
		return 0, false
	}
	if kind == blockEnhanced || kind == blockOldPacket {
		if room := total - packetHeader - blockTrailer; int64(read.u32(p[20:])) > room {
			return 0, false
		}
	}
	end := off + total
	if end > s.at+int64(s.n) {
		s.spent++ // also in the first block of a candidate: its end has to be read
	}
	if p, ok = s.bytes(end-blockTrailer, blockTrailer); !ok || int64(read.u32(p)) != total {
		return 0, false
	}
	b.order = read.swapped
	return end, true
}
