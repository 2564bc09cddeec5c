package chdb

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

const (
	identity = "identity"
	// blockBytes is the size of a compressed block before compression, the same as ClickHouse's.
	blockBytes = 1 << 20
	// zstdWindow bounds the decoder memory for a request.
	zstdWindow = 8 << 20
)

// encodings are the content encodings of answers, the best first.
var encodings = []string{"zstd", "gzip", "deflate"}

// chooseEncoding returns the encoding with the highest weight in an Accept-Encoding header; among
// equals, the first one in encodings.
func chooseEncoding(accept string) string {
	best, quality := identity, 0.0
	for _, name := range encodings {
		if q := acceptance(accept, name); q > quality {
			best, quality = name, q
		}
	}
	return best
}

// acceptance is the q value that accept gives to an encoding. "*" counts for nothing: a client
// that names no encoding gets the plain bytes.
func acceptance(accept, name string) float64 {
	for part := range strings.SplitSeq(accept, ",") {
		coding, weight, weighted := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(coding), name) {
			continue
		}
		if !weighted {
			return 1
		}
		value, found := strings.CutPrefix(strings.ReplaceAll(weight, " ", ""), "q=")
		q, err := strconv.ParseFloat(value, 64)
		if !found || err != nil || q < 0 || q > 1 {
			return 0
		}
		return q
	}
	return 0
}

// newEncoder returns a writer that encodes to w in a content encoding.
func newEncoder(encoding string, w io.Writer) (io.WriteCloser, error) {
	switch encoding {
	case "gzip":
		return gzip.NewWriterLevel(w, gzip.BestSpeed)
	case "deflate":
		return zlib.NewWriterLevel(w, zlib.BestSpeed)
	case "zstd":
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true))
	}
	return unencoded{w}, nil
}

type unencoded struct{ io.Writer }

func (unencoded) Close() error { return nil }

// newDecoder reads a request's body. The caller closes it.
func newDecoder(encoding string, body io.Reader) (io.ReadCloser, error) {
	switch strings.ToLower(encoding) {
	case "", identity:
		return io.NopCloser(body), nil
	case "gzip":
		return gzip.NewReader(body)
	case "deflate":
		return zlib.NewReader(body)
	case "zstd":
		decoder, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderMaxMemory(zstdWindow))
		if err != nil {
			return nil, err
		}
		return decoder.IOReadCloser(), nil
	}
	return nil, newException(codeNotImplemented, "content encoding %q is not supported: send the body as it is, or in gzip, deflate or zstd", headerSafe(encoding))
}

// decodeBody removes the content encoding of a request, so that later limits apply to the decoded
// size.
func decodeBody(r *http.Request) error {
	encoding := r.Header.Get("Content-Encoding")
	if encoding == "" || encoding == identity {
		return nil
	}
	decoder, err := newDecoder(encoding, r.Body)
	if err != nil {
		return bodyError(err)
	}
	r.Body = decoder
	return nil
}

// blockWriter writes ClickHouse's own compressed blocks, each with its checksum: the output of
// compress=1, around any format.
type blockWriter struct {
	w       io.Writer
	encoder *compress.Writer
}

func newBlockWriter(w io.Writer, method compress.Method) *blockWriter {
	return &blockWriter{w: w, encoder: compress.NewWriter(compress.LevelZero, method)}
}

// Write implements io.Writer.
func (b *blockWriter) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		piece := p[done:min(done+blockBytes, len(p))]
		if err := b.encoder.Compress(piece); err != nil {
			return done, err
		}
		if _, err := b.w.Write(b.encoder.Data); err != nil {
			return done, err
		}
		done += len(piece)
	}
	return len(p), nil
}
