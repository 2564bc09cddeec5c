package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
)

// blockDamages change a pcapng file from an offset on, where a block starts. They
// return the last offset that they touch.
var blockDamages = map[string]func(p []byte, at int) int{
	"hole of zeros":        func(p []byte, at int) int { clear(p[at : at+20_000]); return at + 20_000 },
	"hole in a block":      func(p []byte, at int) int { clear(p[at+4 : at+30]); return at + 30 },
	"garbage":              func(p []byte, at int) int { return garbage(p, at, 20_000) },
	"long garbage":         func(p []byte, at int) int { return garbage(p, at, 140_000) },
	"length too small":     func(p []byte, at int) int { p[at+4] -= 4; return at + 8 },
	"length too large":     func(p []byte, at int) int { p[at+5] += 0x20; return at + 0x2400 },
	"length to the end":    func(p []byte, at int) int { p[at+6] += 5; return at + 8 },
	"length out of range":  func(p []byte, at int) int { p[at+7] = 0x7f; return at + 8 },
	"length of no block":   func(p []byte, at int) int { p[at+4]++; return at + 8 },
	"type of a skipped":    func(p []byte, at int) int { copy(p[at:], "\xad\x0b\x00\x00\x00\x00\x00\x04"); return at + 8 },
	"captured length":      func(p []byte, at int) int { p[at+22] = 1; return at + 24 },
	"captured length huge": func(p []byte, at int) int { p[at+23] = 1; return at + 24 },
	"interface":            func(p []byte, at int) int { p[at+8] = 99; return at + 12 },
}

// blockStarts are the offsets of the packets of a pcapng file.
func blockStarts(t *testing.T, p []byte) (starts []int) {
	t.Helper()
	_, all, _ := readAll(t, p, Options{})
	for i := range all {
		starts = append(starts, int(all[i].Offset))
	}
	return starts
}

// TestResumeBlocks damages a pcapng file at many places. A reader yields the packets as
// written, all before the damage and again after it, and chunks yield the same, in whatever order they are opened.
func TestResumeBlocks(t *testing.T) {
	const size = 2 * runBytes
	for name, damage := range blockDamages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sound := (&ngBytes{}).section(binary.LittleEndian).nanos("a").nanos("b").packets(rand.New(rand.NewPCG(1, 2)), 3000, 2).buf
			_, want, _ := readAll(t, sound, Options{})
			starts := blockStarts(t, sound)
			bounds, err := Chunks(writeFile(t, "sound", sound), size)
			if err != nil || len(bounds) < 5 {
				t.Fatalf("%d chunks, %v", len(bounds), err)
			}
			inEnd, _ := slices.BinarySearch(starts, int(bounds[2].Start)) // the first block of a chunk
			hits := []int{inEnd - 1, inEnd, inEnd + 1, 0, 1000, 2000}
			if testing.Short() {
				hits = hits[:1]
			}
			for _, i := range hits {
				data := slices.Clone(sound)
				last := damage(data, starts[i])
				path := writeFile(t, "f", data)
				chunks, got := sameAsWhole(t, path, size, Options{Resume: size})
				if chunks < 4 || !errors.Is(got.err, io.EOF) || got.damage.Gaps < 1 || got.damage.Gaps > 3 || got.damage.Bytes < 60 || got.damage.Bytes > int64(last-starts[i])+1000 {
					t.Errorf("packet %d: %d chunks, %v, %+v", i, chunks, got.err, got.damage)
				}
				checkResumedBlocks(t, got.packets, want, starts[i], last)
			}
		})
	}
}

// checkResumedBlocks compares the packets read from a damaged file with the written ones: none
// is lost beyond the blocks that the damage touches, and the one that it begins in.
func checkResumedBlocks(t *testing.T, got []described, want []packet, hit, last int) {
	t.Helper()
	read := map[int64]packet{}
	for i, p := range got {
		if p.Packet != uint64(i)+1 {
			t.Fatalf("packet %d has number %d", i+1, p.Packet)
		}
		p.Packet = 0
		read[p.Offset] = p.packet
	}
	for _, p := range want {
		p.Packet = 0
		got, ok := read[p.Offset]
		if untouched := p.Offset < int64(hit) || p.Offset > int64(last); untouched && (!ok || got != p) {
			t.Fatalf("the packet at offset %d was not read; damaged are %d to %d", p.Offset, hit, last)
		}
		delete(read, p.Offset)
	}
	if len(read) > 0 {
		t.Errorf("%d packets were not written", len(read))
	}
}

// TestResumeLostDescriptions: packets whose interface may be described in the damage are left
// out, and those of interfaces that were described before it are read.
func TestResumeLostDescriptions(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	le, be := binary.LittleEndian, binary.BigEndian
	begin := func() *ngBytes { return (&ngBytes{}).section(le).nanos("a").packets(rng, 300, 1) }
	for name, test := range map[string]struct {
		middle func(n *ngBytes) // ends with what is damaged
		lost   int              // bytes of the middle that are damaged
		rest   func(n *ngBytes)
		want   []string // interfaces of the packets behind the damage
	}{
		"an interface": {
			func(n *ngBytes) { n.nanos("b") }, 12,
			func(n *ngBytes) { n.packets(rng, 900, 2) },
			[]string{"a"},
		},
		"an interface before another": {
			func(n *ngBytes) { n.nanos("b") }, 12,
			func(n *ngBytes) { n.packets(rng, 300, 1).nanos("c").packets(rng, 900, 3) },
			[]string{"a"},
		},
		"an interface before a section": {
			func(n *ngBytes) { n.nanos("b") }, 12,
			func(n *ngBytes) { n.packets(rng, 300, 2).section(be).nanos("c").nanos("d").packets(rng, 900, 2) },
			[]string{"a", "c", "d"},
		},
		"a section header": {
			func(n *ngBytes) { n.section(le) }, 28,
			func(n *ngBytes) { n.nanos("b").packets(rng, 900, 1) }, nil,
		},
		"the end of a section header": {
			func(n *ngBytes) { n.section(le) }, 4,
			func(n *ngBytes) { n.packets(rng, 900, 1) }, nil,
		},
		"a section header of other byte order": {
			func(n *ngBytes) { n.section(be) }, 28,
			func(n *ngBytes) { n.packets(rng, 900, 1) }, nil,
		},
		"an option of an interface": {
			func(n *ngBytes) { n.iface(1, 0, n.option(optResolution, []byte{9, 9})) }, 0,
			func(n *ngBytes) { n.packets(rng, 900, 2) },
			[]string{"a"},
		},
		"a section of another version": {
			func(n *ngBytes) { n.section(le); n.buf[len(n.buf)-28+12] = 2 }, 0,
			func(n *ngBytes) { n.nanos("b").packets(rng, 900, 1).section(le).nanos("c").packets(rng, 900, 1) },
			[]string{"c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := begin()
			test.middle(n)
			clear(n.buf[len(n.buf)-test.lost:])
			hit := int64(len(n.buf))
			test.rest(n)
			path := writeFile(t, "f", n.buf)
			_, got := sameAsWhole(t, path, 2*runBytes, Options{Resume: 2 * runBytes})
			var names []string
			for _, p := range got.packets {
				if p.Offset >= hit && !slices.Contains(names, p.Interface.Name) {
					names = append(names, p.Interface.Name)
				}
			}
			slices.Sort(names)
			if !slices.Equal(names, test.want) || got.damage.Gaps == 0 || !errors.Is(got.err, io.EOF) {
				t.Errorf("interfaces %q, want %q; %v, %+v", names, test.want, got.err, got.damage)
			}
		})
	}
}

// equalBlocks returns a pcapng file of blocks of equal length, and the start of each.
func equalBlocks(before, order binary.AppendByteOrder, kind uint32, ticks uint64, data []byte) (p []byte, starts []int) {
	n := (&ngBytes{}).section(before).section(order).iface(1, uint32(len(data)))
	for i := range uint64(6_000) {
		starts = append(starts, len(n.buf))
		switch kind {
		case blockSimple:
			n.simple(uint32(len(data)), data)
		case blockOldPacket:
			n.old(0, 0, ticks+i, uint32(len(data)), data)
		default:
			n.enhanced(0, ticks+i, uint32(len(data)), data)
		}
	}
	return n.buf, starts
}

// TestEqualBlocks: blocks of equal length look like other ones a few bytes before or behind them in
// the other byte order, and frames of equal length can hold blocks at the same place. Chunks start at
// real blocks, and after damage reading resumes at the next one, wherever the damage shifts it.
func TestEqualBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	ack := pattern(70, 3) // the block has 104 bytes, and ends with padding
	for i := range 40 {
		var order binary.AppendByteOrder = binary.LittleEndian
		if i%3 == 2 {
			order = binary.BigEndian
		}
		kind := []uint32{blockEnhanced, blockEnhanced, blockOldPacket, blockSimple}[rng.IntN(4)]
		data := slices.Clone(ack)
		if i > 0 {
			data = pattern(14+rng.IntN(240), byte(i))
			if i%2 == 0 {
				clear(data[:6])           // loopback
				clear(data[len(data)-3:]) // looks like the upper bytes of a length
			}
		}
		ticks := []uint64{0, 1_767_571_200e6, 1_767_571_200e9}[rng.IntN(3)]
		before := order // of an empty section
		if i%5 == 3 {
			before = []binary.AppendByteOrder{binary.BigEndian, binary.LittleEndian}[i/5%2]
		}
		if i == 8 {
			kind, ticks, data = blockEnhanced, 1_767_571_200e9, data[:100]
		}
		p, starts := equalBlocks(before, order, kind, ticks, data)
		name := fmt.Sprintf("%d: %s, %s, type %d, %d bytes, ticks %d", i, before, order, kind, len(data), ticks)
		path := writeFile(t, "f", p)
		list, err := Chunks(path, 100_000)
		if err != nil || len(list) < len(p)/100_000 && (before == order || kind == blockEnhanced && ticks > 1e18) {
			t.Errorf("%s: %d chunks of %d bytes, %v", name, len(list), len(p), err)
		}
		for _, c := range list[1:] {
			if _, ok := slices.BinarySearch(starts, int(c.Start)); !ok {
				t.Errorf("%s: chunk %d starts at %d, which is no block", name, c.Index, c.Start)
			}
		}
		hit, lost := 1000+rng.IntN(100), 1+rng.IntN(6)
		at := starts[hit] + rng.IntN(starts[1]-starts[0]-lost)
		p = slices.Delete(p, at, at+lost)
		got, damage := readResumed(t, writeFile(t, "damaged", p), Options{Resume: -1})
		same := len(got) == len(starts)-1 && damage != nil && damage.Gaps == 1
		for j := range got {
			want := starts[j]
			if j >= hit && same {
				want = starts[j+1] - lost
			}
			same = same && got[j].Offset == int64(want)
		}
		if !same {
			t.Errorf("%s, without %d bytes at %d of block %d: %d packets of %d, %v", name, lost, at-starts[hit], hit, len(got), len(starts)-1, damage)
		}
	}
}

// TestBlocksInFrames: frames of equal length hold what looks like blocks that follow each other, and
// the frame that is damaged holds a capture. Neither is taken for blocks of the file.
func TestBlocksInFrames(t *testing.T) {
	data := pattern(100, 1)
	fake := binary.LittleEndian.AppendUint32(nil, 132)
	fake = binary.LittleEndian.AppendUint32(append(fake, 3, 0, 0, 0), 132)
	copy(data[40:], fake)
	p, _ := equalBlocks(binary.LittleEndian, binary.LittleEndian, blockEnhanced, 1, data)
	list, err := Chunks(writeFile(t, "f", p), 100_000)
	if err != nil || len(list) != 1 { // each boundary would be a guess
		t.Errorf("%d chunks, %v", len(list), err)
	}

	inner := (&ngBytes{}).section(binary.LittleEndian).nanos("inner").packets(rand.New(rand.NewPCG(1, 2)), 12, 1).buf
	n := (&ngBytes{}).section(binary.LittleEndian).nanos("a")
	var starts []int
	for i := range 20 {
		starts = append(starts, len(n.buf))
		n.enhanced(0, uint64(i), 4000, slices.Concat(pattern(54, 3), inner, inner))
	}
	for i, lost := range []int{4, 54, 64, 4, 54, 64} { // bytes in and behind the header of block 5, and of the last one
		hit := starts[[]int{5, 19}[i/3]]
		p := slices.Delete(slices.Clone(n.buf), hit+4, hit+4+lost)
		got, damage := readResumed(t, writeFile(t, "damaged", p), Options{Resume: -1})
		if len(got) != 19 || damage == nil || damage.Bytes != int64(starts[1]-starts[0]-lost) {
			t.Errorf("without %d bytes at %d: %d packets of 19, %v", lost, hit, len(got), damage)
		}
		for _, f := range got {
			if f.Interface != 0 || f.WireLen != 4000 {
				t.Errorf("without %d bytes at %d: packet %d is no packet of the file", lost, hit, f.Packet)
			}
		}
	}
}

// TestResumeBlocksSoon: damages that are near each other, or near the end of the file, cost only the
// blocks that they touch.
func TestResumeBlocksSoon(t *testing.T) {
	for name, test := range map[string]struct {
		packets int
		hits    []int
	}{
		"small file":          {400, []int{10}},
		"two damages":         {1300, []int{100, 461}},
		"far from the end":    {4000, []int{100, 460}},
		"four blocks apart":   {400, []int{100, 105, 110, 115}},
		"before the last":     {400, []int{398}},
		"before the last two": {400, []int{397}},
		"the last":            {400, []int{399}},
	} {
		p := (&ngBytes{}).section(binary.LittleEndian).nanos("a").packets(rand.New(rand.NewPCG(1, 2)), test.packets, 1).buf
		starts := append(blockStarts(t, p), len(p))
		lost := int64(0)
		for _, i := range slices.Backward(test.hits) {
			p = slices.Delete(p, starts[i]+30, starts[i]+34)
			lost += int64(starts[i+1] - starts[i] - 4)
		}
		r, err := Open(writeFile(t, "f", p), Options{Resume: -1})
		if err != nil {
			t.Fatal(err)
		}
		got, err := drain(t, r)
		_ = r.Close() // read-only
		var damage DamageError
		if d := r.Damage(); d != nil {
			damage = *d
		}
		if cut, ok := errors.AsType[*CutError](err); ok { // the file ends inside its last block
			damage.Gaps, damage.Bytes = damage.Gaps+1, damage.Bytes+int64(cut.Have)
		}
		if len(got) != test.packets-len(test.hits) || damage.Gaps != len(test.hits) || damage.Bytes != lost {
			t.Errorf("%s: %d packets of %d, %+v, want %d places and %d bytes", name, len(got), test.packets, damage, len(test.hits), lost)
		}
	}
}

// TestResumeShorterFile: a file that became shorter after it was split ends with an error.
func TestResumeShorterFile(t *testing.T) {
	p := (&ngBytes{}).section(binary.LittleEndian).nanos("a").packets(rand.New(rand.NewPCG(1, 2)), 1000, 1).buf
	path := writeFile(t, "f", p)
	list, err := Chunks(path, 100_000)
	if err != nil || len(list) < 2 {
		t.Fatal(len(list), err)
	}
	last := list[len(list)-1]
	for _, lost := range []int{1, 10, 100, 1000} {
		r, err := OpenChunk(writeFile(t, "f", p[:len(p)-lost]), last, Options{Resume: -1})
		if err != nil {
			t.Fatal(err)
		}
		_, err = drain(t, r)
		_ = r.Close() // read-only
		if cut, ok := errors.AsType[*CutError](err); !ok || cut.Want == 0 || r.Damage() != nil {
			t.Errorf("without %d bytes: %v, %v", lost, err, r.Damage())
		}
	}
}

// TestManyDamages: a search by a short run looks far ahead, so a reader has a number of them, and more
// in a larger file. Without any left, few blocks between damages are left out.
func TestManyDamages(t *testing.T) {
	const more = 100
	n := (&ngBytes{}).section(binary.LittleEndian).nanos("a")
	for range 2 * more {
		for range shortRun {
			n.buf = append(n.buf, n.words(4, 12, 12)...)
		}
		n.buf = append(n.buf, n.words(0, 0, 0)...)
	}
	r, err := Open(writeFile(t, "f", n.buf), Options{Resume: -1})
	if err != nil {
		t.Fatal(err)
	}
	r.resumer.short = maxShort - more
	_, err = drain(t, r)
	_ = r.Close() // read-only
	if d := r.Damage(); !errors.Is(err, io.EOF) || d == nil || d.Gaps != more+1 {
		t.Errorf("%v, %+v, want %d gaps", err, d, more+1)
	}
}

// TestBlockSearchIsLinear splits large files without a block whose bytes look like blocks everywhere:
// each that could start one needs its end, or leads to others and is contradicted by others. Then it
// reads a file that is nothing but damage.
func TestBlockSearchIsLinear(t *testing.T) {
	n := (&ngBytes{}).section(binary.LittleEndian).nanos("a").packets(rand.New(rand.NewPCG(1, 2)), 20, 1)
	head := len(n.buf)
	limit := int64(Options{MaxFrame: DefaultMaxFrame}.maxRecord())
	for _, words := range [][2]uint32{{5, 128<<10 + 4}, {5, 128 << 10}, {4, 16}, {5, 24}} {
		n.buf = n.buf[:head]
		for range 2 << 20 / 8 {
			n.buf = append(n.buf, n.words(words[0], words[1])...)
		}
		for _, short := range []bool{false, true} {
			src := &countingReaderAt{data: n.buf}
			s := newSplitter(src, &blockRun{limit: limit}, int64(len(n.buf)), 256<<10)
			s.short = short
			if found, err := s.bounds(); err != nil || len(found) > 0 && !short { // a short run can lead to the end of the file
				t.Errorf("%v: boundaries %d, %v", words, found, err)
			}
			if src.read > 6*int64(len(n.buf)) || src.reads > len(n.buf)/2 {
				t.Errorf("%v, short runs %t: %d bytes read of a file of %d, %d times", words, short, src.read, len(n.buf), src.reads)
			}
		}
	}
	clear(n.buf[head:])
	path := writeFile(t, "f", n.buf)
	_, got := sameAsWhole(t, path, 256<<10, Options{Resume: 256 << 10})
	if len(got.packets) != 20 || !errors.Is(got.err, io.EOF) || got.damage.Bytes != int64(len(n.buf)-head) {
		t.Errorf("%d packets, %v, %+v", len(got.packets), got.err, got.damage)
	}
}
