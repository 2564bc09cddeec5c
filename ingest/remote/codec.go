package remote

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"connectrpc.com/connect"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/ingest/wire"
)

// options returns the options of handlers and error writers at a collector.
func (s *Server) options() []connect.HandlerOption {
	most := s.limits.MaxMessage
	return []connect.HandlerOption{
		connect.WithReadMaxBytes(most),
		connect.WithCodec(scanningCodec{}),
		connect.WithCodec(noJSON{}),
		connect.WithCompression(compressionGzip, func() connect.Decompressor { return &bounded{most: most, open: openGzip} }, newGzip),
		connect.WithCompression(CompressionZstd, func() connect.Decompressor { return &bounded{most: most, open: openZstd} }, newZstd),
		connect.WithCompressMinBytes(1 << 10),
	}
}

// scanningCodec decodes requests that are within the protocol's limits.
type scanningCodec struct{}

// Name implements connect.Codec.
func (scanningCodec) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (scanningCodec) Marshal(m any) ([]byte, error) {
	message, ok := m.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("encode %T: no message", m)
	}
	return proto.Marshal(message)
}

// Unmarshal implements connect.Codec.
func (scanningCodec) Unmarshal(data []byte, m any) error {
	request, ok := m.(proto.Message)
	if !ok {
		return fmt.Errorf("decode %T: no request", m)
	}
	return unmarshal(data, request)
}

func unmarshal(data []byte, m proto.Message) error {
	check := scan
	if _, shared := m.(*wire.ShareRequest); shared {
		check = scanShared
	}
	if err := check(data); err != nil {
		return err
	}
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m)
}

// noJSON replaces the library's own codec, which has no limits.
type noJSON struct{}

var errJSON = errors.New("JSON is not taken")

// Name implements connect.Codec.
func (noJSON) Name() string { return "json" }

// Marshal implements connect.Codec.
func (noJSON) Marshal(any) ([]byte, error) { return nil, errJSON }

// Unmarshal implements connect.Codec.
func (noJSON) Unmarshal([]byte, any) error { return errJSON }

// The compressions of requests.
const (
	CompressionZstd = "zstd"
	compressionGzip = "gzip"
)

// bounded limits decompression: the library would decompress a message that is too large to its
// end.
type bounded struct {
	most int
	open func(previous io.Reader, r io.Reader) (io.Reader, error)
	r    io.Reader
	left int
}

// errBomb is the error for a message that is too large when decompressed.
var errBomb = errors.New("message too large when decompressed")

// Reset implements connect.Decompressor.
func (b *bounded) Reset(r io.Reader) (err error) {
	b.left = b.most + 1
	b.r, err = b.open(b.r, r)
	return err
}

// Read implements connect.Decompressor.
func (b *bounded) Read(p []byte) (int, error) {
	if b.r == nil {
		return 0, io.EOF
	}
	if b.left == 0 {
		return 0, errBomb
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// Close implements connect.Decompressor. The library calls it before it pools the decompressor.
func (b *bounded) Close() error { return nil }

func openGzip(previous, r io.Reader) (io.Reader, error) {
	if z, ok := previous.(*gzip.Reader); ok && z != nil {
		return z, z.Reset(r)
	}
	return gzip.NewReader(r)
}

func newGzip() connect.Compressor { return gzip.NewWriter(io.Discard) }

// maxZstdWindow limits the memory of a decoder.
const maxZstdWindow = 8 << 20

func openZstd(previous, r io.Reader) (io.Reader, error) {
	if z, ok := previous.(*zstd.Decoder); ok && z != nil {
		return z, z.Reset(r)
	}
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
}

func newZstd() connect.Compressor {
	z, _ := zstd.NewWriter(io.Discard, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(128<<10)) // fails only for invalid options
	return z
}
