package capture

import (
	"errors"
	"fmt"
	"io"
)

const (
	maxChunks = 65536
	// A run is a sequence of at least runRecords plausible records that spans at least
	// splitter.minBytes: runBytes, or half a chunk if that is less. Payloads can hold records too, such
	// as those of a capture that is being transferred, but they end with their packet.
	runRecords = 16
	runBytes   = 64 << 10
	// maxGap is the maximum time between neighbouring records, seconds.
	maxGap = 3600
	// maxWire is the maximum plausible length on the wire in bytes, far above that of merged frames.
	maxWire     = 16 << 20
	splitBuffer = 128 << 10
)

// runFormat recognizes the records of a file format in a run. Each splitter has its own.
type runFormat interface {
	// longest returns the maximum distance between the starts of two records in bytes.
	longest() int64
	// next returns the end of the record at off, or false if there is none; first starts a run.
	next(s *splitter, off int64, first bool) (end int64, ok bool)
	// boundaryOf returns the end of the run, or its start, whichever is certain to be a boundary.
	boundaryOf(start, end int64) int64
}

// splitter finds record boundaries in the middle of a capture file.
type splitter struct {
	src      io.ReaderAt
	format   runFormat
	fileSize int64
	size     int64 // largest wanted chunk, bytes
	minBytes int64 // of a run: 64 KiB, or size/2 if that is less
	budget   int64 // maximum number of headers examined for one boundary, beyond the first of each candidate

	buf   []byte
	at    int64 // file offset of buf
	n     int
	small [24]byte // bytes beyond buf
	spent int64    // of the budget
	err   error    // of src; sticky
}

func newSplitter(src io.ReaderAt, format runFormat, fileSize, size int64) *splitter {
	size = max(size, fileSize/maxChunks+1)
	return &splitter{
		src: src, format: format, fileSize: fileSize, size: size,
		minBytes: min(runBytes, size/2),
		// Several times the headers of a run, and in sum linear in the file: a crafted file
		// gets fewer chunks, but takes no more time.
		budget: 4*runRecords + size/4,
		buf:    make([]byte, splitBuffer),
	}
}

// bounds returns the inner chunk boundaries in ascending order. It aims at an even number of equal
// chunks of at most the wanted size, so that two cores end together. A chunk ends at the first
// boundary after its target, and is longer if there is none.
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

// boundary returns the boundary of the first run that starts at or after from and before limit. It
// tries as many bytes as the longest record has, since some record must start within them. Without a
// run, ok is false and at is the first byte that was not tried.
func (s *splitter) boundary(from, limit int64) (at int64, ok bool) {
	c := max(from, classicFileHeader)
	s.spent = 0
	last := min(c+s.format.longest(), limit)
	for ; c < last && s.spent < s.budget && s.err == nil; c++ {
		if c < s.at || c > s.at+int64(s.n)/2 {
			s.load(c)
		}
		if end, ok := s.run(c); ok {
			return s.format.boundaryOf(c, end), true
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

// bytes returns n bytes at off, at most len(s.small), valid until the next call, or false beyond the
// end of the file. Candidates are in the buffer; the rest of a run is read piece by piece.
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

// readAt fills p, or reports false. A file that became shorter is no error.
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

// classicRun recognizes records of a classic pcap file by their lengths and times.
type classicRun struct {
	layout  *classic
	maxIncl uint32
	before  uint32 // time of the run's previous record, seconds
}

func newClassicRun(layout *classic) *classicRun {
	c := &classicRun{layout: layout, maxIncl: layout.maxFrame}
	if layout.snapLen > 0 {
		c.maxIncl = min(c.maxIncl, layout.snapLen)
	}
	return c
}

func (c *classicRun) longest() int64 { return int64(c.layout.head) + int64(c.maxIncl) }

// boundaryOf returns the end of the run: even if its start was no record, its records led to real ones.
func (c *classicRun) boundaryOf(_, end int64) int64 { return end }

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

// plausible tests a single header. It refuses empty records, which are legal but rare, since zeros
// would look like a run of them.
func (c *classicRun) plausible(h record) bool {
	return h.incl > 0 && h.incl <= c.maxIncl &&
		h.orig >= h.incl && h.orig <= maxWire &&
		h.frac < c.layout.perSec
}

// near reports whether two times may be those of neighbours; files are not always in order.
func near(a, b uint32) bool {
	d := int64(a) - int64(b)
	return d >= -maxGap && d <= maxGap
}

// blockRun recognizes blocks of a pcapng file by their length, which each block repeats at its end.
type blockRun struct {
	limit          int64 // of a block, bytes
	firstBigEndian bool  // of the first block of the run
	bigEndian      bool  // of the next block
}

func (b *blockRun) longest() int64 { return b.limit }

// boundaryOf returns the start: a wrong start cannot lead to the start of a real block, since the length
// at the end of the block before it would differ. So all blocks of a run are real, or none is.
func (b *blockRun) boundaryOf(start, _ int64) int64 { return start }

func (b *blockRun) next(s *splitter, off int64, first bool) (int64, bool) {
	if !first {
		return b.block(s, off)
	}
	for _, b.firstBigEndian = range [...]bool{false, true} {
		b.bigEndian = b.firstBigEndian
		if end, ok := b.block(s, off); ok {
			return end, true
		}
	}
	return 0, false
}

// block returns the end of the block at off. A section header sets the byte order of the blocks
// after it.
func (b *blockRun) block(s *splitter, off int64) (int64, bool) {
	p, ok := s.bytes(off, packetHeader-4)
	if !ok {
		return 0, false
	}
	read := blocks{swapped: b.bigEndian}
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
		s.spent++ // also for the first block of a candidate, whose end must be read
	}
	if p, ok = s.bytes(end-blockTrailer, blockTrailer); !ok || int64(read.u32(p)) != total {
		return 0, false
	}
	b.bigEndian = read.swapped
	return end, true
}
