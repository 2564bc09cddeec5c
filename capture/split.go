package capture

import (
	"errors"
	"fmt"
	"io"
)

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
