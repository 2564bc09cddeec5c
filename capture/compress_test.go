package capture

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
)

func zipped(tb testing.TB, data []byte) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(data); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func zstded(tb testing.TB, data []byte, options ...zstd.EOption) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w, err := zstd.NewWriter(&buf, append(options, zstd.WithEncoderConcurrency(1), zstd.WithZeroFrames(true))...)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err = w.Write(data); err != nil {
		tb.Fatal(err)
	}
	if err = w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// TestCompressedCut cuts a compressed file at every byte: delivered packets must be correct, and
// the end must never look like a clean one.
func TestCompressedCut(t *testing.T) {
	for name, data := range cutSamples() {
		_, want, _ := readAll(t, data, Options{})
		for how, stored := range map[string][]byte{"gzip": zipped(t, data), "zstd": zstded(t, data)} {
			t.Run(name+" "+how, func(t *testing.T) {
				for size := range stored {
					_, got, err := readAll(t, stored[:size], Options{})
					if err == nil || errors.Is(err, io.EOF) {
						t.Errorf("cut at %d: error %v", size, err)
					}
					if !slices.Equal(want[:len(got)], got) {
						t.Errorf("cut at %d: packets %+v", size, got)
					}
				}
			})
		}
	}
}

// TestCompressedBadSum expects an error for a wrong checksum.
func TestCompressedBadSum(t *testing.T) {
	data := cutSamples()["pcap"]
	stored := zipped(t, data)
	stored[len(stored)-8] ^= 1
	if _, _, err := readAll(t, stored, Options{}); !errors.Is(err, gzip.ErrChecksum) {
		t.Errorf("error %v, want gzip.ErrChecksum", err)
	}
	stored = zstded(t, data)
	stored[len(stored)-1] ^= 1
	if _, _, err := readAll(t, stored, Options{}); !errors.Is(err, zstd.ErrCRCMismatch) {
		t.Errorf("error %v, want zstd.ErrCRCMismatch", err)
	}
}

// TestCompressedParts reads the output of parallel and appending compressors: several streams in
// one file, and a skippable frame before the first.
func TestCompressedParts(t *testing.T) {
	data := cutSamples()["pcapng"]
	_, want, _ := readAll(t, data, Options{})
	skippable := []byte{0x5a, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4}
	for name, stored := range map[string][]byte{
		"gzip members": append(zipped(t, data[:50]), zipped(t, data[50:])...),
		"zstd frames":  slices.Concat(skippable, zstded(t, data[:50]), skippable, zstded(t, data[50:])),
	} {
		_, got, err := readAll(t, stored, Options{})
		if !errors.Is(err, io.EOF) || !slices.Equal(got, want) {
			t.Errorf("%s: %d packets and %v, want %d", name, len(got), err, len(want))
		}
	}
}

// bomb returns a file of n packets of 64 KiB of zeros each.
func bomb(n int) []byte {
	p := newPcap(binary.LittleEndian, magicMicros, 0, 1)
	zero := make([]byte, 64<<10)
	for range n {
		p.add(1, 0, uint32(len(zero)), zero)
	}
	return p.buf
}

// TestInflationLimits checks the limits on expanding files. The packets within the limit must be
// delivered first.
func TestInflationLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: one goroutine has nothing for the race detector")
	}
	data := bomb(1200) // 75 MiB
	record := int64(classicRecordHeader + 64<<10)
	tight, exact := classicFileHeader+10*record+7, int64(len(data))
	gz, zs := zipped(t, data), zstded(t, data)
	tests := []struct {
		name    string
		stored  []byte
		opts    Options
		packets int // -1: only the packets in the first 64 MiB
		option  string
	}{
		{"gzip, ratio of gzip", gz, Options{}, 1200, ""},
		{"gzip, ratio of 2", gz, Options{MaxInflation: 2}, -1, "Options.MaxInflation"},
		{"zstd, default ratio", zs, Options{}, -1, "Options.MaxInflation"},
		{"zstd, largest ratio", zs, Options{MaxInflation: 1 << 30}, 1200, ""},
		{"total", gz, Options{MaxInflated: tight}, 10, "Options.MaxInflated"},
		{"total reached, not passed", gz, Options{MaxInflated: exact}, 1200, ""},
		{"total passed by a byte", gz, Options{MaxInflated: exact - 1}, 1199, "Options.MaxInflated"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := NewReader(bytes.NewReader(tt.stored), "x.gz", tt.opts)
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := 0
			var b Batch
			for err == nil {
				err = r.ReadBatch(&b)
				got += b.N
			}
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > maxZstdWindow {
				t.Errorf("%d bytes allocated", used)
			}
			if got != tt.packets && (tt.packets >= 0 || got < 1000 || got == 1200) {
				t.Errorf("%d packets, want %d", got, tt.packets)
			}
			var limit *LimitError
			if tt.option == "" && errors.Is(err, io.EOF) {
				return
			}
			if !errors.As(err, &limit) || limit.Option != tt.option || limit.Packet != uint64(got)+1 || limit.Size <= limit.Max {
				t.Errorf("error %v, want a *LimitError of %q", err, tt.option)
			}
		})
	}
}

// TestZstdWindowLimit expects a clear error for a stream whose window needs too much memory.
func TestZstdWindowLimit(t *testing.T) {
	data := bomb(1100)
	_, _, err := readAll(t, zstded(t, data, zstd.WithWindowSize(64<<20)), Options{})
	if !errors.Is(err, zstd.ErrWindowSizeExceeded) || !strings.Contains(err.Error(), "32 MiB that are kept in memory; decompress it first") {
		t.Errorf("error %v", err)
	}
	stored := zstded(t, data, zstd.WithWindowSize(32<<20))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := NewReader(bytes.NewReader(stored), "x.zst", Options{MaxInflation: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	packets := 0
	var b Batch
	for err == nil {
		err = r.ReadBatch(&b)
		packets += b.N
	}
	runtime.ReadMemStats(&after)
	if packets != 1100 || !errors.Is(err, io.EOF) {
		t.Errorf("%d packets and %v within the limit", packets, err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
		t.Errorf("%d bytes allocated", used)
	}
}

// TestZstdLeavesNothingBehind drops a reader in the middle of a file: its inflater must have no
// goroutine to stop.
func TestZstdLeavesNothingBehind(t *testing.T) {
	defer goleak.VerifyNone(t)
	r, err := NewReader(bytes.NewReader(zstded(t, bomb(100))), "x.zst", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	if err := r.ReadBatch(&b); err != nil || b.N == 0 {
		t.Errorf("%d frames, %v", b.N, err)
	}
}
