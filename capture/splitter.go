package capture

import (
	"encoding/binary"
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
	// A short run has shortRun pcapng blocks, or fewer that end exactly at splitter.end. After damage
	// it is proof enough, since blockRun.settle recognizes blocks in a packet by the end of the packet.
	shortRun = 4
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
	// settle returns a boundary that a run from start to end proves, or false and a later start of
	// another run if that one contradicts it.
	settle(s *splitter, start, end int64) (at int64, ok bool)
}

// splitter finds record boundaries in the middle of a capture file.
type splitter struct {
	src      io.ReaderAt
	format   runFormat
	fileSize int64
	size     int64 // largest wanted chunk, bytes
	minBytes int64 // of a run: 64 KiB, or size/2 if that is less
	end      int64 // a boundary: of the file, or of the part to search
	short    bool  // short runs are proof enough
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
		minBytes: min(runBytes, size/2), end: fileSize,
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
		at, ok := s.boundary(from&^3, s.fileSize) // blocks start at multiples of 4
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
		if before := c - blockTrailer; before < s.at || c > s.at+int64(s.n)/2 { // settle reads the block before c, too
			s.load(before)
		}
		end, ok := s.run(c, s.short)
		if !ok {
			continue
		}
		at, ok := s.format.settle(s, c, end)
		if s.spent >= s.budget || s.err != nil {
			break
		}
		if ok {
			return at, true
		}
		c = at - 1
	}
	return c, false
}

// run walks the records from off and returns the end of the run.
func (s *splitter) run(off int64, short bool) (int64, bool) {
	start, count := off, 0
	for {
		end, ok := s.format.next(s, off, count == 0)
		if !ok {
			return 0, false
		}
		if !short && count >= runRecords && off-start >= s.minBytes {
			return off, true
		}
		if count > 0 {
			if s.spent++; s.spent >= s.budget {
				return 0, false
			}
		}
		count++
		off = end
		if short && (count == shortRun || off >= s.end) {
			return off, off <= s.end
		}
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

// settle returns the end of the run: even if its start was no record, its records led to real ones.
func (c *classicRun) settle(_ *splitter, _, end int64) (int64, bool) { return end, true }

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
	swapped        bool  // byte order that is expected of a run: big-endian
	aligned        bool  // blocks are expected at multiples of 4, as in a file without damage
	firstBigEndian bool  // of the first block of the run
	bigEndian      bool  // of the next block
}

func (b *blockRun) longest() int64 { return b.limit }

// settle returns the start of the run, unless a block contains it that ends where another run starts.
// All blocks of a run are real, or none is: a wrong start cannot lead to the start of a real block,
// since the length at the end of the block before it would differ. But wrong blocks can follow each
// other as real ones do: in the payload of one packet, at the same place in packets of equal length, or
// a few bytes beside real ones in the other byte order. The packet that contains the start refutes it.
// Wrong blocks can in turn seem to contain the real ones. Then the rank decides; of two
// runs of one rank, neither is a boundary.
func (b *blockRun) settle(s *splitter, start, _ int64) (int64, bool) {
	order := b.firstBigEndian
	rank := b.rank(start, order)
	first, last := start+1-blockTrailer, min(start+runBytes, s.end, s.at+int64(s.n))
	for p := s.buf[first-s.at : max(last, start)-s.at]; len(p) >= blockTrailer; p = p[1:] {
		at := last - int64(len(p)) + blockTrailer
		for i, total := range [...]uint32{binary.LittleEndian.Uint32(p), binary.BigEndian.Uint32(p)} {
			bigEndian := i == 1
			if total := int64(total); total <= at-start || total > b.limit || total%4 != 0 || b.rank(at, bigEndian) < rank {
				continue
			}
			if _, ok := s.run(at, true); ok && b.firstBigEndian == bigEndian || at == s.end {
				return at, false
			}
		}
	}
	b.firstBigEndian = order
	return start, true
}

// rank orders possible starts of blocks by how likely they are.
func (b *blockRun) rank(at int64, bigEndian bool) (rank int) {
	if bigEndian == b.swapped {
		rank++
	}
	if b.aligned && at%4 == 0 {
		rank++
	}
	return rank
}

func (b *blockRun) next(s *splitter, off int64, first bool) (int64, bool) {
	if !first {
		end, _, ok := b.block(s, off)
		return end, ok
	}
	for _, b.bigEndian = range [...]bool{false, true} {
		if end, kind, ok := b.block(s, off); ok && (kind == blockSection || kind-1 < lastBlock) {
			b.firstBigEndian = b.bigEndian
			return end, true
		}
	}
	return 0, false
}

// block returns the end and the type of the block at off. A section header sets the byte order of
// the blocks after it.
func (b *blockRun) block(s *splitter, off int64) (end int64, kind uint32, ok bool) {
	p, ok := s.bytes(off, int(min(packetHeader-4, s.fileSize-off)))
	if !ok || len(p) < minBlock {
		return 0, 0, false
	}
	read := blocks{swapped: b.bigEndian}
	kind = read.u32(p)
	if kind == blockSection {
		if read.swapped, ok = byteOrder(p[8:]); !ok {
			return 0, 0, false
		}
	}
	total := int64(read.u32(p[4:]))
	end = off + total
	if least, _ := read.shape(kind); total < int64(least) || total%4 != 0 || total > b.limit || end > s.fileSize {
		return 0, 0, false
	}
	if kind == blockEnhanced && read.u32(p[8:]) >= DefaultMaxInterfaces {
		return 0, 0, false
	}
	if kind == blockEnhanced || kind == blockOldPacket {
		if room := total - packetHeader - blockTrailer; int64(read.u32(p[20:])) > room {
			return 0, 0, false
		}
	}
	if end > s.at+int64(s.n) {
		s.spent++ // also for the first block of a candidate, whose end must be read
	}
	if p, ok = s.bytes(end-blockTrailer, blockTrailer); !ok || int64(read.u32(p)) != total {
		return 0, 0, false
	}
	b.bigEndian = read.swapped
	return end, kind, true
}
