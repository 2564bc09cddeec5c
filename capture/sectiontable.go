package capture

import (
	"errors"
	"io"
	"os"
	"sync"
)

// sectionTable holds the sections and interfaces that a pcapng file describes before each chunk. The
// readers of all chunks share it, and add what they have read of the descriptions after each batch.
// When a chunk is opened, the part of the file before it that no reader has reached is scanned
// without looking at packets: nothing if chunks are read one after the other, about half of the file
// if two readers take turns. It is safe for concurrent use.
type sectionTable struct {
	mu       sync.Mutex
	chunks   []Chunk
	starts   []resumePoint // of chunks that can be opened without a scan
	frontier resumePoint   // how far the last of these chunks is known

	// Of the file up to frontier. They are only appended to, so that a reader can use the first ones.
	interfaces []Interface
	clocks     []clock
}

// resumePoint is a block boundary in a pcapng file with the state of a reader there.
type resumePoint struct {
	offset     int64
	interfaces int // described before it
	first      int
	sections   uint32
	swapped    bool
	unsure     bool
}

func newSectionTable(chunks []Chunk) *sectionTable {
	return &sectionTable{chunks: chunks, starts: make([]resumePoint, 1)}
}

// open returns a reader of a chunk. The reader owns f, and closes it.
func (t *sectionTable) open(f *os.File, path string, c Chunk, fileSize int64, opts Options) (*Reader, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.starts) <= c.Index {
		if err := t.scan(f, path, fileSize, opts); err != nil {
			return nil, err
		}
	}
	r := newChunkReader(f, path, c, c.Start, fileSize, opts)
	r.ng, r.closer = t.blocks(t.starts[c.Index], opts), f
	return r, nil
}

// scan reads the last chunk that can be opened to its end, so that the next one can be opened.
func (t *sectionTable) scan(f *os.File, path string, fileSize int64, opts Options) error {
	r := newChunkReader(f, path, t.chunks[len(t.starts)-1], t.frontier.offset, fileSize, opts)
	r.ng = t.blocks(t.frontier, opts)
	r.ng.scan = true
	if err := r.ReadBatch(new(Batch)); !errors.Is(err, io.EOF) {
		return err
	}
	t.extend(r)
	return nil
}

// blocks is the state of a reader that begins at a resume point.
func (t *sectionTable) blocks(at resumePoint, opts Options) blocks {
	s := newBlocks(opts)
	n := at.interfaces
	s.interfaces, s.clocks = t.interfaces[:n:n], t.clocks[:n:n]
	s.first, s.sections, s.swapped, s.unsure = at.first, at.sections, at.swapped, at.unsure
	return s
}

// offer adds a reader's position and descriptions. It does nothing while another goroutine holds the
// table, so readers never wait: at worst a later open scans more.
func (t *sectionTable) offer(r *Reader) {
	if t.mu.TryLock() {
		t.extend(r)
		t.mu.Unlock()
	}
}

// extend adds a reader's position and descriptions, if it reads the last chunk that can be opened.
// The caller holds mu.
func (t *sectionTable) extend(r *Reader) {
	at := r.win.offset()
	s := &r.ng
	if r.chunk.Index != len(t.starts)-1 || at < t.frontier.offset || len(s.interfaces) < len(t.interfaces) {
		return // other readers are further, or the file is being changed
	}
	t.interfaces = append(t.interfaces, s.interfaces[len(t.interfaces):]...)
	t.clocks = append(t.clocks, s.clocks[len(t.clocks):]...)
	t.frontier = resumePoint{
		offset: at, interfaces: len(s.interfaces), first: s.first, sections: s.sections,
		swapped: s.swapped, unsure: s.unsure,
	}
	if at == r.chunk.End {
		t.starts = append(t.starts, t.frontier)
	}
}
