package capture

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
)

const (
	// compressedBuffer is the size of reads from the compressed input in bytes.
	compressedBuffer = 64 << 10
	// maxZstdWindow is the largest accepted window of a zstd stream in bytes, and so the memory for
	// reading one. Every level of zstd without --long or --ultra stays below it; RFC 8878 section
	// 3.1.1.1.2 requires 8 MiB.
	maxZstdWindow = 32 << 20
	// freeInflation is the number of inflated bytes without a ratio limit, since a small file of
	// equal packets compresses to almost nothing.
	freeInflation = 64 << 20
)

// compression is the compression method of a file, by its first bytes.
type compression uint8

const (
	uncompressed compression = iota
	gzipped
	zstandard
)

// compressionOf returns the method by the first four bytes of a file.
func compressionOf(p []byte) compression {
	switch {
	case p[0] == 0x1f && p[1] == 0x8b:
		return gzipped
	case p[0] == 0x28 && p[1] == 0xb5 && p[2] == 0x2f && p[3] == 0xfd:
		return zstandard
	case p[0]&0xf0 == 0x50 && p[1] == 0x2a && p[2] == 0x4d && p[3] == 0x18:
		return zstandard // a skippable frame, which parallel compressors write first
	}
	return uncompressed
}

// openCompressed puts an inflater between the input and the window. Its memory is fixed, whatever
// the stream expands to.
func (r *Reader) openCompressed(how compression) error {
	src := io.MultiReader(bytes.NewReader(bytes.Clone(r.win.unread())), r.win.src)
	if r.win.err != nil { // the window has the whole input: do not read past its end
		src = bytes.NewReader(bytes.Clone(r.win.unread()))
	}
	r.inflated = &meter{src: src}
	packed := bufio.NewReaderSize(r.inflated, compressedBuffer)
	var plain io.Reader
	if how == zstandard {
		// With concurrency 1 it decodes in the caller's goroutine, so a reader dropped without
		// Close leaves no goroutine behind.
		z, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(maxZstdWindow))
		if err != nil {
			return fmt.Errorf("open capture %q: read the zstd header: %w", r.name, err)
		}
		plain = z
	} else {
		z, err := gzip.NewReader(packed)
		if err != nil {
			return fmt.Errorf("open capture %q: read the gzip header: %w", r.name, err)
		}
		plain = z
	}
	r.win = readBuffer{src: &inflationCap{src: plain, packed: &r.inflated.n, opts: r.opts}, buf: r.win.buf}
	return r.detect(false)
}

// meter counts the bytes that pass through it.
type meter struct {
	src io.Reader
	n   atomic.Int64
}

// Read implements io.Reader.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.src.Read(p)
	m.n.Add(int64(n))
	return n, err
}

// inflationError means that a compressed stream expands beyond a limit.
type inflationError struct{ failure }

// Error implements error; the reader turns it into a *LimitError.
func (e *inflationError) Error() string { return e.what }

// inflationCap ends a stream that expands beyond its options.
type inflationCap struct {
	src    io.Reader
	packed *atomic.Int64 // compressed bytes read
	opts   Options
	n      int64 // inflated bytes
}

// Read implements io.Reader. It delivers everything up to the limit.
func (c *inflationCap) Read(p []byte) (int, error) {
	room, why := c.room()
	if room > 0 {
		n, err := c.src.Read(p[:min(int64(len(p)), room)])
		c.n += int64(n)
		return n, c.explain(err)
	}
	// A stream that ends exactly here is within the limit.
	var probe [1]byte
	n, err := c.src.Read(probe[:])
	if n == 0 {
		return 0, c.explain(err)
	}
	return 0, why
}

// room returns the number of bytes still allowed, and the error for one more.
func (c *inflationCap) room() (int64, *inflationError) {
	packed := c.packed.Load()
	why := failure{
		what: fmt.Sprintf("inflated size of %d compressed bytes", packed),
		size: c.n + 1, max: c.n, option: "Options.MaxInflation",
	}
	room := int64(math.MaxInt64)
	if ratio := int64(c.opts.MaxInflation); packed < math.MaxInt64/ratio {
		room = max(freeInflation, packed*ratio) - c.n
	}
	if total := c.opts.MaxInflated; total > 0 && total-c.n < room {
		room = total - c.n
		why.what, why.option = "inflated size", "Options.MaxInflated"
	}
	return room, &inflationError{why}
}

// explain adds advice for the user to the inflater's errors.
func (c *inflationCap) explain(err error) error {
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return fmt.Errorf("%w: its window exceeds the %d MiB that are kept in memory; decompress it first, or compress it without --long and --ultra",
			err, maxZstdWindow>>20)
	}
	return err
}
