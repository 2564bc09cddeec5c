package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/iotest"
)

// FuzzReader passes arbitrary input to the reader. Delivered frames must lie in the input, be
// within the limits, and not depend on how the input is split.
func FuzzReader(f *testing.F) {
	for _, data := range cutSamples() {
		f.Add(data)
		f.Add(zipped(f, data))
		f.Add(zstded(f, data))
		f.Add(data[:len(data)-3])
	}
	opts := Options{MaxFrame: 2000, ReadBuffer: minReadBuffer, MaxInterfaces: 8, MaxInflated: 1 << 20}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := NewReader(bytes.NewReader(data), "fuzz", opts)
		if err != nil {
			return
		}
		got, err := drain(t, r)
		if r.inflated == nil {
			checkInside(t, data, got)
		}
		if size := len(r.win.buf); size > opts.maxRecord() {
			t.Errorf("the buffer grew to %d bytes", size)
		}
		if len(r.Interfaces()) > opts.MaxInterfaces {
			t.Errorf("%d interfaces", len(r.Interfaces()))
		}
		for _, p := range got {
			if int(p.Interface) >= len(r.Interfaces()) || len(p.Data) > opts.MaxFrame {
				t.Errorf("packet %d: interface %d, %d bytes", p.Packet, p.Interface, len(p.Data))
			}
		}
		slow, err2 := NewReader(iotest.OneByteReader(bytes.NewReader(data)), "fuzz", opts)
		if err2 != nil {
			t.Fatal(err2)
		}
		again, err2 := drain(t, slow)
		if !slices.Equal(got, again) || (errors.Is(err, io.EOF) != errors.Is(err2, io.EOF)) {
			t.Errorf("byte by byte: %d packets and %v, at once: %d and %v", len(again), err2, len(got), err)
		}
	})
}

// checkInside checks that frames are bytes of the file, in its order.
func checkInside(t *testing.T, file []byte, got []packet) {
	t.Helper()
	end := int64(0)
	for i, p := range got {
		if p.Packet != uint64(i)+1 || p.Offset < end || p.Offset > int64(len(file)) {
			t.Fatalf("packet %d at offset %d, the one before ends at %d", p.Packet, p.Offset, end)
		}
		at := bytes.Index(file[p.Offset:], []byte(p.Data))
		if at < 0 || at > modifiedHeader && at > packetHeader {
			t.Fatalf("packet %d at offset %d: its data is not there", p.Packet, p.Offset)
		}
		end = p.Offset + int64(len(p.Data)) + simpleHeader
	}
}

// FuzzChunks splits arbitrary input at any size: the chunks must give the same packets as the whole
// file, or the boundary error that requires reading it as a whole.
func FuzzChunks(f *testing.F) {
	for _, data := range cutSamples() {
		f.Add(data, int64(40))
	}
	long := newPcap(binary.BigEndian, magicNanos, 0, 1)
	for i := range 200 {
		long.add(uint32(i), uint32(i), 99, pattern(20+i%40, byte(i)))
	}
	f.Add(long.buf, int64(1000))
	f.Fuzz(func(t *testing.T, data []byte, size int64) {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, want, wantErr := readAll(t, data, Options{})
		if want == nil {
			return
		}
		got, chunks, err := readChunks(t, path, size)
		var boundary *BoundaryError
		if errors.As(err, &boundary) {
			return
		}
		if errors.Is(err, io.EOF) != errors.Is(wantErr, io.EOF) || !slices.Equal(got, want) {
			t.Errorf("%d chunks: %d packets and %v, want %d and %v", chunks, len(got), err, len(want), wantErr)
		}
	})
}

// FuzzResumedChunks splits anything at any size and reads on behind damage: chunks that are
// opened backwards, and so scanned, yield what one reader does, or the boundary error.
func FuzzResumedChunks(f *testing.F) {
	for name, shape := range shapes {
		if name == "what holds no packet in between" {
			continue // too long
		}
		data := shape(rand.New(rand.NewPCG(3, 4))).buf
		f.Add(data[:min(len(data), 40_000)], int64(9000))
		damaged := slices.Clone(data[:min(len(data), 40_000)])
		clear(damaged[len(damaged)/2:][:100])
		f.Add(damaged, int64(9000))
	}
	f.Fuzz(func(t *testing.T, data []byte, size int64) {
		if size < 1 {
			return
		}
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		opts := Options{MaxInterfaces: 20, Resume: size}
		if r, err := Open(path, opts); err != nil {
			return
		} else if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		whole := readWhole(t, path, opts)
		list, err := Chunks(path, size)
		if err != nil {
			t.Fatal(err)
		}
		results := make([]chunkResult, len(list))
		var boundary *BoundaryError
		for i := len(list) - 1; i >= 0; i-- {
			if results[i] = readChunk(t, path, list[i], opts); errors.As(results[i].err, &boundary) {
				return
			}
		}
		got := joinChunks(results)
		if !slices.Equal(got.packets, whole.packets) || errors.Is(got.err, io.EOF) != errors.Is(whole.err, io.EOF) ||
			got.damage.Gaps != whole.damage.Gaps || got.damage.Bytes != whole.damage.Bytes {
			t.Errorf("%d chunks: %d packets, %v, %+v, want %d, %v, %+v",
				len(list), len(got.packets), got.err, got.damage, len(whole.packets), whole.err, whole.damage)
		}
	})
}
