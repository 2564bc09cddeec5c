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

	table *sectionTable // shared by the chunks of a pcapng file
}

// Chunks splits a pcap or pcapng file into byte ranges, so that several cores can read one file. It
// aims at an even number of ranges of about the same length, at most size bytes; a range is longer
// where no boundary between records is found. The ranges cover the file without a gap and depend only on the
// file's bytes and on size, never on the number of cores. Compressed files, pipes, small files, a
// size below 1, and files that are no captures (OpenChunk returns the error) give one chunk. A file
// has at most 65536 chunks: a smaller size is raised.
//
// A boundary is a guess: the records from there on form a run, in which each header has a plausible
// length and time and leads to the next one, and each pcapng block repeats its length at its end. A
// run has at least 16 records and 64 KiB (size/2 if that is less). In a pcapng file, no other run may
// contradict it, so no range starts at blocks inside frames of equal length. Reading confirms the guess:
// chunk 0 starts at a known record, and a chunk whose reader returns io.EOF ended exactly where the
// next one starts. A reader that skips damage (Options.Resume) cannot confirm it, and relies on the
// run. After a *BoundaryError the guess was wrong: drop the results of the chunk and of all later
// ones, and read the file again with Open. Without Options.Resume, any error but io.EOF invalidates
// all later chunks too.
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
	format, err := formatOf(f, path, DefaultMaxFrame)
	if err != nil {
		return nil, err
	}
	if format == nil || size < 1 || fileSize <= size {
		return whole, nil
	}
	bounds, err := newSplitter(f, format, fileSize, size).bounds()
	if err != nil {
		return nil, fmt.Errorf("split capture %q: %w", path, err)
	}
	chunks := cover(bounds, fileSize)
	if _, ok := format.(*blockRun); ok && len(chunks) > 1 {
		table := newSectionTable(chunks)
		for i := range chunks {
			chunks[i].table = table
		}
	}
	return chunks, nil
}

// formatOf returns the format of a file's records, or nil for a file that is read in one piece.
func formatOf(f io.ReaderAt, path string, maxFrame int) (runFormat, error) {
	layout, found, err := classicLayout(f, path, maxFrame)
	switch {
	case err != nil:
		return nil, err
	case found:
		return newClassicRun(layout), nil
	}
	var head [minBlock]byte
	if n, err := f.ReadAt(head[:], 0); n < len(head) {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, fmt.Errorf("read capture %q: read the section header: %w", path, err)
	}
	swapped, ok := byteOrder(head[8:])
	if !ok || !isSection(head[:]) {
		return nil, nil
	}
	return &blockRun{limit: int64(Options{MaxFrame: maxFrame}.maxRecord()), swapped: swapped, aligned: true}, nil
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
	if _, ok := errors.AsType[*FormatError](err); ok {
		return nil, false, nil
	}
	return layout, err == nil, err
}

// OpenChunk opens one chunk of Chunks. Its reader counts packets from 1 in the chunk; frame offsets
// are those of the file, Offset and Size those of the chunk. Chunks describes the *BoundaryError at
// its end.
//
// A chunk of a pcapng file needs the sections and interfaces that earlier chunks describe. OpenChunk
// knows those that the readers of earlier chunks have seen so far, and walks the block headers of
// the rest, in a fraction of the time of decoding: open chunks in order. It does not wait until
// earlier chunks are read. All chunks of a file must be opened with the same options.
//
// OpenChunk is safe for concurrent use; of one pcapng file, calls walk headers one after the other.
func OpenChunk(path string, c Chunk, opts Options) (*Reader, error) {
	if path == "-" || c.End < 0 {
		return Open(path, opts)
	}
	f, fileSize, err := openFile(path)
	if err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	if c.table != nil {
		r, err := c.table.open(f, path, c, fileSize, opts)
		if err != nil {
			_ = f.Close() // only read from
		}
		return r, err
	}
	layout, found, err := classicLayout(f, path, opts.MaxFrame)
	if err != nil || !found {
		_ = f.Close() // read-only
		if err != nil {
			return nil, err
		}
		return openOnly(path, c, opts)
	}
	r := newChunkReader(f, path, c, max(c.Start, classicFileHeader), fileSize, opts)
	r.classic = layout
	r.ng.interfaces = []Interface{layout.describe()}
	r.closer = f
	return r, nil
}

// openOnly opens the only chunk of a file that cannot be split.
func openOnly(path string, c Chunk, opts Options) (*Reader, error) {
	r, err := Open(path, opts)
	if err == nil && c.Start != 0 {
		_ = r.Close() // only read from
		return nil, fmt.Errorf("open capture %q: chunk %d starts at byte offset %d: it is not one that Chunks returned for this file",
			path, c.Index, c.Start)
	}
	return r, err
}

// newChunkReader returns a reader of the records in [from, c.End), without its format.
func newChunkReader(f *os.File, name string, c Chunk, from, fileSize int64, opts Options) *Reader {
	src := io.NewSectionReader(f, from, max(0, c.End-from))
	return &Reader{
		name: name, opts: opts,
		chunk: &c, tail: c.End >= fileSize,
		size: c.End - c.Start, start: c.Start,
		win:     readBuffer{src: src, buf: make([]byte, opts.ReadBuffer), base: from},
		resumer: resumer{file: f, size: fileSize},
	}
}
