package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// described is a packet with its interface.
type described struct {
	packet
	Interface Interface
}

// drainDescribed reads to the end of a reader, or until it has read so many batches.
func drainDescribed(t *testing.T, r *Reader, batches int) (got []described, err error) {
	t.Helper()
	var b Batch
	for ; batches != 0; batches-- {
		if err := r.ReadBatch(&b); err != nil {
			return got, err
		}
		for _, f := range b.Frames[:b.N] {
			p := packet{string(f.Data), f.TimeNS, f.WireLen, f.Interface, f.NoTime, f.Packet, f.Offset}
			got = append(got, described{p, r.Interfaces()[f.Interface]})
		}
	}
	return got, nil
}

// chunkOrders are the ways in which several readers come by the chunks of a file: they
// differ in what each can take over from others.
var chunkOrders = map[string]func(n int) []int{
	"one after another": upTo,
	"backwards":         func(n int) []int { l := upTo(n); slices.Reverse(l); return l },
	"at random":         func(n int) []int { return rand.New(rand.NewPCG(5, 6)).Perm(n) },
}

func upTo(n int) []int {
	l := make([]int, n)
	for i := range l {
		l[i] = i
	}
	return l
}

// A chunkResult is how a chunk was read.
type chunkResult struct {
	packets []described
	err     error
	damage  DamageError
}

func readChunk(t *testing.T, path string, c Chunk, opts Options) chunkResult {
	t.Helper()
	r, err := OpenChunk(path, c, opts)
	if err != nil {
		return chunkResult{err: err}
	}
	return readToEnd(t, r)
}

func readToEnd(t *testing.T, r *Reader) (result chunkResult) {
	t.Helper()
	defer func() { _ = r.Close() }() // only read from
	result.packets, result.err = drainDescribed(t, r, -1)
	if d := r.Damage(); d != nil {
		result.damage = *d
	}
	return result
}

// joinChunks joins the results of chunks, up to the first that ends with an error.
func joinChunks(results []chunkResult) (all chunkResult) {
	all.err = io.EOF
	for _, r := range results {
		for _, p := range r.packets {
			p.Packet = uint64(len(all.packets)) + 1
			all.packets = append(all.packets, p)
		}
		all.damage.Gaps += r.damage.Gaps
		all.damage.Bytes += r.damage.Bytes
		if !errors.Is(r.err, io.EOF) {
			all.err = r.err
			break
		}
	}
	return all
}

// readWhole reads a file with one reader.
func readWhole(t *testing.T, path string, opts Options) chunkResult {
	t.Helper()
	r, err := Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	return readToEnd(t, r)
}

// sameAsWhole checks that the chunks of a file yield the same as one reader, in whatever order
// they are opened.
func sameAsWhole(t *testing.T, path string, size int64, opts Options) (chunks int, whole chunkResult) {
	t.Helper()
	whole = readWhole(t, path, opts)
	check := func(how string, results []chunkResult) {
		t.Helper()
		got := joinChunks(results)
		if !slices.Equal(got.packets, whole.packets) {
			t.Errorf("%s, size %d, %d chunks: %d packets, want %d, or they differ: %s", how, size, len(results), len(got.packets), len(whole.packets), firstDifference(whole.packets, got.packets))
		}
		if fmt.Sprint(atEnd(got.err)) != fmt.Sprint(atEnd(whole.err)) || got.damage.Gaps != whole.damage.Gaps || got.damage.Bytes != whole.damage.Bytes {
			t.Errorf("%s, size %d: ends with %v and %+v, want %v and %+v", how, size, got.err, got.damage, whole.err, whole.damage)
		}
	}
	for how, order := range chunkOrders {
		list, err := Chunks(path, size)
		if err != nil {
			t.Fatal(err)
		}
		chunks = len(list)
		results := make([]chunkResult, chunks)
		for _, i := range order(chunks) {
			results[i] = readChunk(t, path, list[i], opts)
		}
		check(how, results)
	}
	list, err := Chunks(path, size)
	if err != nil {
		t.Fatal(err)
	}
	results := make([]chunkResult, chunks)
	var wg sync.WaitGroup
	for i, c := range list {
		wg.Go(func() { results[i] = readChunk(t, path, c, opts) })
	}
	wg.Wait()
	check("at the same time", results)
	return chunks, whole
}

// atEnd returns the position in an error at the end: one reader and the readers of chunks agree on it.
func atEnd(err error) any {
	var cut *CutError
	var limit *LimitError
	switch {
	case errors.As(err, &cut):
		return []any{cut.Offset, cut.Want, cut.Have, cut.What}
	case errors.As(err, &limit):
		return []any{limit.Offset, limit.Size}
	}
	return err
}

func firstDifference(want, got []described) string {
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			want[i].Data, got[i].Data = "", ""
			return cmp.Diff(want[i], got[i])
		}
	}
	return ""
}

// shapes are pcapng files of some hundred KiB with all that may lie between packets.
var shapes = map[string]func(rng *rand.Rand) *ngBytes{
	"one section": func(rng *rand.Rand) *ngBytes {
		n := (&ngBytes{}).section(binary.LittleEndian).nanos("a").nanos("b")
		return n.packets(rng, 1500, 2)
	},
	"big endian": func(rng *rand.Rand) *ngBytes {
		n := (&ngBytes{}).section(binary.BigEndian).iface(1, 0).nanos("b")
		return n.packets(rng, 1500, 2)
	},
	"two sections": func(rng *rand.Rand) *ngBytes {
		n := (&ngBytes{}).section(binary.LittleEndian).nanos("a").nanos("b").packets(rng, 700, 2)
		return n.section(binary.LittleEndian).iface(1, 60).packets(rng, 900, 1)
	},
	"sections of either byte order": func(rng *rand.Rand) *ngBytes {
		n := &ngBytes{}
		for i := range 12 {
			n.section([]binary.AppendByteOrder{binary.BigEndian, binary.LittleEndian}[i%2])
			n.nanos(fmt.Sprint("tap", i)).iface(113, 80).packets(rng, 100+i*20, 2)
		}
		return n
	},
	"interfaces in the middle": func(rng *rand.Rand) *ngBytes {
		n := (&ngBytes{}).section(binary.LittleEndian)
		for i := range 40 {
			resolution := []byte{byte(3 + i%7)}
			n.iface(1, uint32(i%3*70), n.option(optName, fmt.Append(nil, "eth", i)), n.option(optResolution, resolution),
				n.option(optOffset, []byte{byte(i), 0, 0, 0, 0, 0, 0, 0}), n.option(11, []byte("\x00tcp")), n.option(optEnd, nil))
			n.packets(rng, 50, i+1)
		}
		return n
	},
	"what holds no packet in between": func(rng *rand.Rand) *ngBytes {
		n := (&ngBytes{}).section(binary.LittleEndian).nanos("a")
		for i := range 60 {
			n.packets(rng, 20, 1)
			n.block([]uint32{4, 5, 10, 0xbad, 0x40000bad}[i%5], pattern(rng.IntN(2000), byte(i)))
		}
		return n.block(4, pattern(600<<10, 1)).packets(rng, 200, 1)
	},
	"every kind of packet block": func(rng *rand.Rand) *ngBytes {
		n := (&ngBytes{}).section(binary.LittleEndian).iface(1, 100).nanos("b")
		for i := range 500 {
			n.packets(rng, 1, 2).old(uint16(i%2), 3, uint64(i), 90, pattern(rng.IntN(90), 1)).simple(400, pattern(100, byte(i)))
			n.enhanced(1, uint64(i), 77, pattern(77, byte(i)), n.option(optComment, pattern(rng.IntN(300), 2)), n.option(optEnd, nil))
		}
		return n
	},
	"a section in a packet": func(rng *rand.Rand) *ngBytes {
		n := (&ngBytes{}).section(binary.LittleEndian).nanos("a")
		inner := (&ngBytes{}).section(binary.BigEndian).nanos("inner").packets(rng, 20, 1)
		for range 60 {
			n.enhanced(0, 5, uint32(len(inner.buf)), inner.buf).packets(rng, 3, 1)
		}
		return n
	},
}

// nanos describes an interface of Ethernet with nanoseconds.
func (n *ngBytes) nanos(name string) *ngBytes {
	return n.iface(1, 0, n.option(optName, []byte(name)), n.option(optResolution, []byte{9}), n.option(optEnd, nil))
}

// packets adds packets of random lengths of the first interfaces of the section.
func (n *ngBytes) packets(rng *rand.Rand, count, interfaces int) *ngBytes {
	for i := range count {
		data := pattern(30+rng.IntN(400), byte(i))
		n.enhanced(uint32(rng.IntN(interfaces)), 1<<60+uint64(len(n.buf)), uint32(len(data)), data)
	}
	return n
}

// TestChunksOfBlocks: chunks of pcapng files of any shape, also cut ones, yield the same packets and interfaces
// as one reader.
func TestChunksOfBlocks(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := shape(rand.New(rand.NewPCG(1, 2))).buf
			path := writeFile(t, "f.pcapng", data)
			split := 0
			sizes, ways := []int64{20_000, 2 * runBytes, 150_000, -1}, []Options{{ReadBuffer: minReadBuffer}}
			if testing.Short() {
				sizes = sizes[:2] // the same goroutines
			} else {
				ways = append(ways, Options{Resume: 20_000}, Options{})
			}
			for _, size := range sizes {
				if size < 2*runBytes && name == "a section in a packet" {
					continue // misleads short runs
				}
				for _, opts := range ways {
					chunks, whole := sameAsWhole(t, path, size, opts)
					if !errors.Is(whole.err, io.EOF) || whole.damage.Gaps != 0 {
						t.Fatalf("%v, %+v", whole.err, whole.damage)
					}
					if size > 0 && chunks > max(1, int(int64(len(data))/size/3)) {
						split++
					}
				}
			}
			if split < len(ways) {
				t.Errorf("%d times split", split)
			}
			cut := writeFile(t, "cut.pcapng", data[:len(data)-11])
			for _, opts := range []Options{{}, {Resume: 2 * runBytes}} {
				if _, whole := sameAsWhole(t, cut, 2*runBytes, opts); errors.Is(whole.err, io.EOF) {
					t.Error("the end is cut")
				}
			}
		})
	}
}

// TestChunksCutAtEveryByte cuts a small file of several chunks at every byte.
func TestChunksCutAtEveryByte(t *testing.T) {
	n := (&ngBytes{}).section(binary.BigEndian).nanos("a")
	for i := range 40 {
		n.enhanced(0, uint64(i), 9, pattern(9+i%5, byte(i)))
	}
	n.nanos("b").section(binary.LittleEndian).iface(1, 10).nanos("c")
	for i := range 40 {
		n.enhanced(uint32(i%2), uint64(i), 9, pattern(9+i%5, byte(i)))
	}
	path := writeFile(t, "f", n.buf)
	const size = 1000
	if list, err := Chunks(path, size); err != nil || len(list) < 3 {
		t.Fatalf("%d chunks, %v", len(list), err)
	}
	for end := len(n.buf) - 1; end >= minBlock; end-- {
		if err := os.Truncate(path, int64(end)); err != nil {
			t.Fatal(err)
		}
		list, err := Chunks(path, size)
		if err != nil {
			t.Fatal(err)
		}
		opts := Options{Resume: size * int64(end%2), ReadBuffer: minReadBuffer}
		results := make([]chunkResult, len(list))
		for i := range slices.Backward(list) { // every chunk is scanned
			results[i] = readChunk(t, path, list[i], opts)
		}
		got, want := joinChunks(results), readWhole(t, path, opts)
		if !slices.Equal(got.packets, want.packets) || fmt.Sprint(atEnd(got.err)) != fmt.Sprint(atEnd(want.err)) || got.damage.Bytes != want.damage.Bytes {
			t.Fatalf("cut at %d: %d packets, %v, want %d, %v", end, len(got.packets), got.err, len(want.packets), want.err)
		}
	}
}

// TestChunkTakesOver: a worker that reads one chunk after another scans nothing. A worker that begins a
// chunk while the previous one is being read scans only the rest of that one.
func TestChunkTakesOver(t *testing.T) {
	path := writeFile(t, "f", shapes["interfaces in the middle"](rand.New(rand.NewPCG(1, 2))).buf)
	list, err := Chunks(path, 100_000)
	if err != nil || len(list) < 4 {
		t.Fatalf("%d chunks, %v", len(list), err)
	}
	table := list[0].table
	for i, c := range list[:2] {
		if readChunk(t, path, c, Options{}); len(table.starts) != i+2 {
			t.Fatalf("behind chunk %d, %d chunks are known", i, len(table.starts))
		}
	}
	r, err := OpenChunk(path, list[2], Options{ReadBuffer: minReadBuffer})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }() // only read from
	if _, err := drainDescribed(t, r, 5); err != nil {
		t.Fatal(err)
	}
	if at := table.frontier.offset; at <= list[2].Start || at >= list[2].End || at != r.win.offset() {
		t.Errorf("known up to %d, chunk 2 is read up to %d", at, r.win.offset())
	}
	want := joinChunks([]chunkResult{readChunk(t, path, list[3], Options{})})
	whole := readWhole(t, path, Options{}).packets
	for i := range whole {
		whole[i].Packet -= uint64(len(whole) - len(want.packets))
	}
	if at := len(whole) - len(want.packets); len(list) == 4 && !slices.Equal(whole[at:], want.packets) {
		t.Error("chunk 3 differs")
	}
}

// TestBlockBoundaryError: a chunk whose end is inside a block says so.
func TestBlockBoundaryError(t *testing.T) {
	path := writeFile(t, "f", shapes["one section"](rand.New(rand.NewPCG(1, 2))).buf)
	for _, opts := range []Options{{}, {Resume: 100_000}} {
		for _, off := range []int64{-6, -4, 4, 8, 50} {
			list, err := Chunks(path, 100_000)
			if err != nil {
				t.Fatal(err)
			}
			list[0].End += off
			list[1].Start += off
			table := newSectionTable(list)
			list[0].table, list[1].table = table, table
			var boundary *BoundaryError
			if got := readChunk(t, path, list[0], opts); !errors.As(got.err, &boundary) || boundary.Offset >= list[0].End {
				t.Errorf("%+v: end moved by %d: %v", opts, off, got.err)
			}
			if _, err := OpenChunk(path, list[1], opts); !errors.As(err, &boundary) {
				t.Errorf("%+v: start moved by %d: %v", opts, off, err)
			}
		}
	}
}
