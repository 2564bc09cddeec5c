package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// damages change the file of TestResume from an offset on, where a record starts. They return the
// last changed offset.
var damages = map[string]func(p []byte, at int) int{
	"hole of zeros":       func(p []byte, at int) int { clear(p[at : at+50_000]); return at + 50_000 },
	"hole in a record":    func(p []byte, at int) int { clear(p[at+10 : at+9000]); return at + 9000 },
	"garbage":             func(p []byte, at int) int { return garbage(p, at, 20_000) },
	"long garbage":        func(p []byte, at int) int { return garbage(p, at, 600_000) },
	"length too small":    func(p []byte, at int) int { p[at+8] -= 30; return at + 1000 },
	"length too large":    func(p []byte, at int) int { p[at+9] = 0x7f; return at + 0x7fff },
	"length out of range": func(p []byte, at int) int { p[at+11] = 0x7f; return at + 16 },
	"another file": func(p []byte, at int) int {
		return at + copy(p[at:], newPcap(binary.LittleEndian, magicMicros, 0, 1).buf)
	},
}

func garbage(p []byte, at, n int) int {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		p[at+i] = byte(rng.Uint32())
	}
	return at + n
}

// records returns a file of packets of random lengths, and the start of each record.
func records(n int) (p *pcapBytes, starts []int) {
	rng := rand.New(rand.NewPCG(3, 4))
	p = newPcap(binary.LittleEndian, magicMicros, 65535, 1)
	for i := range n {
		starts = append(starts, len(p.buf))
		data := pattern(60+rng.IntN(1400), byte(i))
		p.add(uint32(1700000000+i/100), uint32(i), uint32(len(data)), data)
	}
	return p, starts
}

// TestResume damages a file in the middle and reads it whole and in chunks: every packet must be
// genuine, all packets up to the damage and from shortly after it must be delivered, and the result
// must not depend on the number of readers.
func TestResume(t *testing.T) {
	const size = 300_000
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			p, starts := records(3000)
			_, want, _ := readAll(t, p.buf, Options{})
			hit := starts[1000]
			last := damage(p.buf, hit)
			path := writeFile(t, "f.pcap", p.buf)
			list, err := Chunks(path, size)
			if err != nil || len(list) < 5 {
				t.Fatalf("%d chunks, %v", len(list), err)
			}
			for _, resume := range []int64{size, -1} {
				got, found := readResumed(t, path, Options{Resume: resume})
				checkResumed(t, got, want, hit, last)
				if found == nil || found.Gaps < 1 || found.Bytes < 16 || !strings.Contains(found.Error(), fmt.Sprint(found.Bytes, " bytes")) {
					t.Errorf("damage %v", found)
				}
				if resume < 0 {
					continue
				}
				parts, gaps, bytes := readResumedChunks(t, path, list, Options{Resume: resume})
				if !slices.Equal(parts, got) || gaps != found.Gaps || bytes != found.Bytes {
					t.Errorf("in chunks: %d packets, %d places, %d bytes; as a whole: %d, %d, %d",
						len(parts), gaps, bytes, len(got), found.Gaps, found.Bytes)
				}
			}
		})
	}
}

// checkResumed compares the packets read from a damaged file with the written ones.
func checkResumed(t *testing.T, got, want []packet, hit, last int) {
	t.Helper()
	sound := make(map[int64]packet, len(want))
	for _, p := range want {
		p.Packet = 0
		sound[p.Offset] = p
	}
	read := map[int64]bool{}
	for i, p := range got {
		if p.Packet != uint64(i)+1 {
			t.Fatalf("packet %d has number %d", i+1, p.Packet)
		}
		p.Packet = 0
		read[p.Offset] = true
		if p != sound[p.Offset] && p.Offset != int64(hit) { // the record whose own header is damaged
			t.Errorf("%d bytes at offset %d are no packet that was written", len(p.Data), p.Offset)
		}
	}
	for _, p := range want {
		if before := p.Offset < int64(hit); (before || p.Offset > int64(last+2*runBytes)) && !read[p.Offset] {
			t.Errorf("the packet at offset %d was not read; damaged are %d to %d", p.Offset, hit, last)
			return
		}
	}
}

func readResumed(t *testing.T, path string, opts Options) ([]packet, *DamageError) {
	t.Helper()
	r, err := Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }() // read-only
	return mustDrain(t, r), r.Damage()
}

func readResumedChunks(t *testing.T, path string, list []Chunk, opts Options) (got []packet, gaps int, bytes int64) {
	t.Helper()
	for _, c := range list {
		r, err := OpenChunk(path, c, opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range mustDrain(t, r) {
			p.Packet = uint64(len(got)) + 1
			got = append(got, p)
		}
		_ = r.Close() // read-only
		if d := r.Damage(); d != nil {
			gaps, bytes = gaps+d.Gaps, bytes+d.Bytes
		}
	}
	return got, gaps, bytes
}

// TestResumeGivesUp reads files whose rest has no valid run: all of it is left out. Files that are not
// resumed, and files that end inside a packet, end with the error.
func TestResumeGivesUp(t *testing.T) {
	p, starts := records(400)
	hit := starts[len(starts)-30] // too few records for a run
	garbage(p.buf, hit, 500)
	blocks := (&ngBytes{}).section(binary.LittleEndian).nanos("a").packets(rand.New(rand.NewPCG(1, 2)), 40, 1).buf
	blockHit := blockStarts(t, blocks)[20]
	clear(blocks[blockHit:])
	for name, test := range map[string]struct {
		data []byte
		opts Options
		left int // bytes
	}{
		"too little behind": {p.buf, Options{Resume: -1}, len(p.buf) - hit},
		"no block behind":   {blocks, Options{Resume: -1}, len(blocks) - blockHit},
		"cut":               {p.buf[:hit-1], Options{Resume: -1}, 0},
		"cut block":         {blocks[:blockHit-1], Options{Resume: -1}, 0},
		"compressed":        {zipped(t, p.buf), Options{Resume: -1}, 0},
		"not asked for":     {p.buf, Options{}, 0},
	} {
		r, err := Open(writeFile(t, "f", test.data), test.opts)
		if err != nil {
			t.Fatal(err)
		}
		got, err := drain(t, r)
		_ = r.Close() // read-only
		left := leftOut(r)
		if len(got) == 0 || left != test.left || errors.Is(err, io.EOF) != (left > 0) || left == 0 && !damaged(err) {
			t.Errorf("%s: %d packets, error %v, damage %v", name, len(got), err, r.Damage())
		}
	}
}

// TestResumeGrowingFile: a file that grows while it is read is searched up to the size that it had when
// it was opened. Reading ends there, or at damage behind it.
func TestResumeGrowingFile(t *testing.T) {
	classic, records := records(40)
	blocks := (&ngBytes{}).section(binary.LittleEndian).nanos("a").packets(rand.New(rand.NewPCG(1, 2)), 40, 1).buf
	for name, test := range map[string]struct {
		data   []byte
		starts []int
	}{"pcap": {classic.buf, records}, "pcapng": {blocks, blockStarts(t, blocks)}} {
		for _, hit := range []int{20, 35} {
			p, size := slices.Clone(test.data), test.starts[30]+9
			garbage(p, test.starts[hit], test.starts[hit+1]-test.starts[hit])
			for i := hit + 1; i < 30; i++ {
				garbage(p, test.starts[i], 16)
			}
			path := writeFile(t, "f", p[:size])
			r, err := Open(path, Options{Resume: -1})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, p, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := drain(t, r)
			_ = r.Close() // read-only
			left := leftOut(r)
			if want := max(0, size-test.starts[hit]); len(got) != hit || left != want || errors.Is(err, io.EOF) != (want > 0) {
				t.Errorf("%s, damage in record %d: %d packets, %d bytes left out of %d, %v", name, hit, len(got), left, want, err)
			}
		}
	}
}

// TestResumeIsBounded reads a large file that is all damage.
func TestResumeIsBounded(t *testing.T) {
	p, _ := records(20)
	p.buf = append(p.buf, make([]byte, 8<<20)...)
	header := []byte{1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0} // almost leads to itself
	for at := len(p.buf) - 4<<20; at+17 < len(p.buf); at += 17 {
		copy(p.buf[at:], header)
		if at/17%1000 == 0 {
			p.buf[at+11] = 0xff
		}
	}
	path := writeFile(t, "f", p.buf)
	r, err := Open(path, Options{Resume: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }() // read-only
	if got, err := drain(t, r); len(got) < 20 || err == nil {
		t.Errorf("%d packets, %v", len(got), err)
	}
}

// leftOut returns the number of bytes that a reader skipped.
func leftOut(r *Reader) int {
	if d := r.Damage(); d != nil {
		return int(d.Bytes)
	}
	return 0
}
