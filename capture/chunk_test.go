package capture

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readChunks reads a file in chunks by the rules of Chunks: chunks after an error do not count, and
// a wrong boundary means reading the file as one chunk.
func readChunks(t *testing.T, path string, size int64) (got []packet, chunks int, err error) {
	t.Helper()
	list, err := Chunks(path, size)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	for i, c := range list {
		if c.Index != i || c.Start != at || c.End < c.Start || (c.FirstPacket == 1) != (i == 0) {
			t.Fatalf("chunk %d is %+v, the one before ends at %d", i, c, at)
		}
		at = c.End
		r, err := OpenChunk(path, c, Options{})
		if err != nil {
			t.Fatal(err)
		}
		part, err := drain(t, r)
		if cerr := r.Close(); cerr != nil {
			t.Fatal(cerr)
		}
		var boundary *BoundaryError
		if errors.As(err, &boundary) {
			return nil, len(list), err
		}
		for j := range part {
			if part[j].Packet != uint64(j)+1 {
				t.Fatalf("chunk %d: frame %d has number %d", i, j, part[j].Packet)
			}
			part[j].Packet = uint64(len(got) + 1 + j)
		}
		got = append(got, part...)
		if !errors.Is(err, io.EOF) {
			return got, len(list), err
		}
		if r.Offset() != r.Size() || r.Size() != c.End-c.Start {
			t.Fatalf("chunk %d: Offset %d, Size %d", i, r.Offset(), r.Size())
		}
	}
	return got, len(list), io.EOF
}

// misleading lists the payloads in which a short run of false records can look valid. Runs of full
// length must be correct even there.
var misleading = map[string]bool{"one header repeated": true, "capture in transfer": true, "header that leads to the next record": true}

// payloads are kinds of data in which no false boundary may be found.
var payloads = map[string]func(rng *rand.Rand, sec uint32) []byte{
	"random": func(rng *rand.Rand, _ uint32) []byte {
		p := make([]byte, 1+rng.IntN(1500))
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		return p
	},
	"zero": func(rng *rand.Rand, _ uint32) []byte { return make([]byte, 1+rng.IntN(9000)) },
	"one header repeated": func(rng *rand.Rand, sec uint32) []byte {
		h := binary.LittleEndian.AppendUint32(nil, sec)
		for _, v := range []uint32{5, 16, 16, 0, 0, 0, 0} {
			h = binary.LittleEndian.AppendUint32(h, v)
		}
		return slices.Repeat(h, 1+rng.IntN(40))
	},
	"capture in transfer": func(rng *rand.Rand, sec uint32) []byte {
		inner := newPcap(binary.LittleEndian, magicMicros, 0, 1)
		for range 1 + rng.IntN(12) {
			inner.add(sec, uint32(rng.IntN(1e6)), 100, pattern(60+rng.IntN(60), 1))
		}
		return inner.buf
	},
	"header that leads to the next record": func(rng *rand.Rand, sec uint32) []byte {
		n := uint32(rng.IntN(1000))
		p := pattern(rng.IntN(50), 3)
		for _, v := range []uint32{sec, 7, n, n} {
			p = binary.LittleEndian.AppendUint32(p, v)
		}
		return append(p, make([]byte, n)...)
	},
}

// TestChunksCoverFile checks that chunks of any size give the same packets as the whole file.
func TestChunksCoverFile(t *testing.T) {
	for name, payload := range payloads {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, 8))
			p := newPcap(binary.LittleEndian, magicMicros, 65535, 1)
			sec := uint32(1700000000)
			for range 1500 {
				sec += rng.Uint32N(2)
				data := payload(rng, sec)
				p.add(sec, rng.Uint32N(1e6), uint32(len(data))+rng.Uint32N(2)*100, data)
			}
			path := writeFile(t, "f.pcap", p.buf)
			_, want, _ := readAll(t, p.buf, Options{})
			split := 0
			for _, size := range []int64{1, 1000, 4096, 10007, 33333, 65536, 200000, int64(len(p.buf)) / 2, int64(len(p.buf)), 1 << 40, 0, -1} {
				got, chunks, err := readChunks(t, path, size)
				var boundary *BoundaryError
				if errors.As(err, &boundary) {
					if size >= 2*runBytes || !misleading[name] {
						t.Errorf("size %d: %v", size, err)
					}
					continue // a short run was misleading; the error must show it
				}
				if !errors.Is(err, io.EOF) {
					t.Errorf("size %d: %v", size, err)
				}
				if !slices.Equal(got, want) {
					t.Errorf("size %d in %d chunks: %d packets, want %d, or they differ", size, chunks, len(got), len(want))
				}
				if size > 0 && size*3 < int64(len(p.buf)) && chunks > 1 {
					split++
				}
			}
			if split < 3 {
				t.Errorf("only %d sizes split the file", split)
			}
		})
	}
}

// TestChunksLayouts splits every classic layout, complete and truncated.
func TestChunksLayouts(t *testing.T) {
	for _, magic := range []uint32{magicMicros, magicNanos, magicModified} {
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			p := newPcap(order, magic, 0, 1)
			for i := range 3000 {
				p.add(uint32(i/100), uint32(i), 1500, pattern(40+i%100, byte(i)))
			}
			data := p.buf[:len(p.buf)-11]
			_, want, wantErr := readAll(t, data, Options{})
			got, chunks, err := readChunks(t, writeFile(t, "f", data), 20000)
			if chunks < 8 || !slices.Equal(got, want) {
				t.Errorf("%#x %s: %d chunks, %d packets, want %d", magic, order, chunks, len(got), len(want))
			}
			var cut, wantCut *CutError
			if !errors.As(err, &cut) || !errors.As(wantErr, &wantCut) || cut.Offset != wantCut.Offset || cut.Have != wantCut.Have {
				t.Errorf("%#x %s: error %v, want the place of %v", magic, order, err, wantErr)
			}
		}
	}
}

// TestBoundaryError reads a chunk whose end lies inside a record, or past the end of a file that
// has shrunk.
func TestBoundaryError(t *testing.T) {
	p := newPcap(binary.LittleEndian, magicMicros, 0, 1)
	for range 10 {
		p.add(1, 1, 84, pattern(84, 1))
	}
	path := writeFile(t, "f.pcap", p.buf)
	for end := int64(24); end <= int64(len(p.buf))+3; end++ {
		c := Chunk{End: end}
		r, err := OpenChunk(path, c, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := drain(t, r)
		_ = r.Close() // read-only
		whole := min(end-24, int64(len(p.buf))-24) / 100
		var boundary *BoundaryError
		switch {
		case len(got) != int(whole):
			t.Errorf("end %d: %d packets, want %d", end, len(got), whole)
		case end == 24+whole*100:
			if !errors.Is(err, io.EOF) {
				t.Errorf("end %d: %v, want io.EOF", end, err)
			}
		case !errors.As(err, &boundary):
			t.Errorf("end %d: %v, want a *BoundaryError", end, err)
		default:
			if diff := cmp.Diff(&BoundaryError{File: path, Chunk: c, Offset: 24 + whole*100}, boundary, cmp.AllowUnexported(Chunk{})); diff != "" {
				t.Error(diff)
			}
		}
	}
}

// TestChunkOfUnsplittable opens files that have one chunk only.
func TestChunkOfUnsplittable(t *testing.T) {
	samples := cutSamples()
	for name, data := range map[string][]byte{"small pcapng": samples["pcapng"], "gzip": zipped(t, samples["pcap"])} {
		t.Run(name, func(t *testing.T) {
			path := writeFile(t, "f", data)
			_, want, _ := readAll(t, data, Options{})
			got, chunks, err := readChunks(t, path, 1)
			if chunks != 1 || !errors.Is(err, io.EOF) || !slices.Equal(got, want) {
				t.Errorf("%d chunks, %d packets, error %v", chunks, len(got), err)
			}
			if r, err := OpenChunk(path, Chunk{Index: 1, Start: 10, End: 20}, Options{}); err == nil {
				_ = r.Close() // read-only
				t.Error("a chunk inside a file that cannot be split was opened")
			}
		})
	}
}

// TestSplitIsLinear splits a large file without records at the smallest size: each byte may be
// tried as a start only once.
func TestSplitIsLinear(t *testing.T) {
	p := newPcap(binary.LittleEndian, magicMicros, 0, 1)
	zero := make([]byte, 250<<10)
	for range 80 {
		p.add(1, 0, uint32(len(zero)), zero)
	}
	src := &countingReaderAt{data: p.buf}
	layout, _, err := classicLayout(src, "x", DefaultMaxFrame)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = newSplitter(src, newClassicRun(layout), int64(len(p.buf)), 1).bounds(); err != nil {
		t.Fatal(err)
	}
	if limit := 4 * int64(len(p.buf)); src.read > limit {
		t.Errorf("%d bytes read of a file of %d", src.read, len(p.buf))
	}
}

type countingReaderAt struct {
	data  []byte
	read  int64
	reads int
}

func (c *countingReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(c.data)) {
		return 0, io.EOF
	}
	n := copy(p, c.data[off:])
	c.read += int64(n)
	c.reads++
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
