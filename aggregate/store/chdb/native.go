package chdb

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	chproto "github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"
)

// nativeReadBuffer is at least the size that the block decoder would allocate itself, so that it
// reads through this buffer and a clean end differs from a cut block.
const nativeReadBuffer = 1 << 20

// convertNative copies Native blocks from r, in the engine's form (revision 0), to w, in the form
// for a client of the given revision: from revision 54454 on a block begins with its info and
// each column states whether its serialization is custom. Each block is written whole.
func convertNative(w io.Writer, r io.Reader, revision uint64) error {
	buffered := bufio.NewReaderSize(r, nativeReadBuffer)
	reader := chproto.NewReader(buffered)
	out := new(chproto.Buffer)
	for n := 0; ; n++ {
		if _, err := buffered.Peek(1); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		block := proto.Block{ServerContext: &column.ServerContext{Timezone: time.UTC}}
		if err := block.Decode(reader, 0); err != nil {
			return newException(codeUnknownFormat, "decode block %d of the result: %v", n, err)
		}
		out.Reset()
		if err := encodeBlock(out, &block, revision); err != nil {
			return newException(codeUnknownFormat, "encode block %d of the result: %v", n, err)
		}
		if _, err := w.Write(out.Buf); err != nil {
			return fmt.Errorf("write block %d: %w", n, err)
		}
	}
}

// encodeBlock appends block to out. The library's own Encode writes the state of a column even
// without rows, which a reader does not expect.
func encodeBlock(out *chproto.Buffer, block *proto.Block, revision uint64) error {
	if err := block.EncodeHeader(out, revision); err != nil {
		return err
	}
	for i, c := range block.Columns {
		if block.Rows() > 0 {
			if err := block.EncodeColumn(out, revision, i); err != nil {
				return err
			}
			continue
		}
		out.PutString(c.Name())
		out.PutString(string(c.Type()))
		if revision >= proto.DBMS_MIN_REVISION_WITH_CUSTOM_SERIALIZATION {
			out.PutBool(false)
		}
	}
	return nil
}

// streamReader reads a result's chunks as one run of bytes.
type streamReader struct {
	stream *resultStream
	rest   []byte
}

func (r *streamReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		chunk, err := r.stream.next()
		if err != nil {
			return 0, err
		}
		if len(chunk) == 0 {
			return 0, io.EOF
		}
		r.rest = chunk
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
