package tabular

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"

	flatbuffers "github.com/google/flatbuffers/go"
)

// arrowRows is the number of rows of a record batch.
const arrowRows = 8 << 10

// arrowWriter writes the IPC streaming format of Arrow (Arrow Columnar Format 1.5, "IPC Streaming
// Format"): the schema, record batches, and an end marker. The five types of columns need a small
// part of it; the complete library takes as long to compile as the rest of csigscope.
type arrowWriter[T any] struct {
	columns []arrowColumn[T]
	rows    int // of the batch
	out     io.Writer
	meta    *flatbuffers.Builder
}

// arrowColumn has the buffers of one column of a batch ("Physical Memory Layout").
type arrowColumn[T any] struct {
	Column[T]
	nulls int
	valid []byte // one bit per row
	ends  []byte // of texts: int32 each, after a zero
	data  []byte
}

// Types of a column, and headers of a message, in Schema.fbs and Message.fbs of the format.
const (
	arrowInt       = 2
	arrowFloat     = 3
	arrowText      = 5
	arrowBool      = 6
	arrowTimestamp = 10

	arrowSchema = 1
	arrowBatch  = 3
)

func newArrow[T any](columns []Column[T], w io.Writer) (*arrowWriter[T], error) {
	a := &arrowWriter[T]{columns: make([]arrowColumn[T], len(columns)), out: w, meta: flatbuffers.NewBuilder(4 << 10)}
	fields := make([]flatbuffers.UOffsetT, len(columns))
	for i := range columns {
		a.columns[i].Column = columns[i]
		a.columns[i].reset()
		fields[i] = columns[i].arrowField(a.meta)
	}
	list := a.meta.CreateVectorOfTables(fields)
	a.meta.StartObject(4) // Schema: endianness (little), fields, custom metadata, features
	a.meta.PrependUOffsetTSlot(1, list, 0)
	return a, a.message(arrowSchema, a.meta.EndObject(), 0)
}

// arrowField is the Field of a schema: name, nullable, the type's kind and its table, dictionary,
// children. Readers refuse a field without a list of children.
func (c *Column[T]) arrowField(b *flatbuffers.Builder) flatbuffers.UOffsetT {
	kind, of := c.arrowType(b)
	name := b.CreateString(c.Name)
	children := b.CreateVectorOfTables(nil)
	b.StartObject(7)
	b.PrependUOffsetTSlot(0, name, 0)
	b.PrependBoolSlot(1, c.optional(), false)
	b.PrependByteSlot(2, kind, 0)
	b.PrependUOffsetTSlot(3, of, 0)
	b.PrependUOffsetTSlot(5, children, 0)
	return b.EndObject()
}

func (c *Column[T]) arrowType(b *flatbuffers.Builder) (kind byte, of flatbuffers.UOffsetT) {
	switch {
	case c.Count != nil: // Int: bits, signed
		b.StartObject(2)
		b.PrependInt32Slot(0, 64, 0)
		kind = arrowInt
	case c.Real != nil: // FloatingPoint: precision, 2 for double
		b.StartObject(1)
		b.PrependInt16Slot(0, 2, 0)
		kind = arrowFloat
	case c.Time != nil: // Timestamp: unit, 3 for nanoseconds, and time zone
		zone := b.CreateString("UTC")
		b.StartObject(2)
		b.PrependInt16Slot(0, 3, 0)
		b.PrependUOffsetTSlot(1, zone, 0)
		kind = arrowTimestamp
	case c.Flag != nil:
		b.StartObject(0)
		kind = arrowBool
	default:
		b.StartObject(0)
		kind = arrowText
	}
	return kind, b.EndObject()
}

// Write implements Writer.
func (a *arrowWriter[T]) Write(row *T) error {
	for i := range a.columns {
		a.columns[i].add(row, a.rows)
	}
	if a.rows++; a.rows < arrowRows {
		return nil
	}
	return a.flush()
}

// add appends the value of row n of the batch. A null takes the space of a zero.
func (c *arrowColumn[T]) add(row *T, n int) {
	there := true
	switch {
	case c.Text != nil:
		v := c.Text(row)
		there = v != ""
		c.data = append(c.data, strings.ToValidUTF8(v, "\ufffd")...)
		c.ends = binary.LittleEndian.AppendUint32(c.ends, uint32(len(c.data)))
	case c.Count != nil:
		c.data = binary.LittleEndian.AppendUint64(c.data, c.Count(row))
	case c.Flag != nil:
		c.data = appendBit(c.data, n, c.Flag(row))
	case c.Real != nil:
		v := c.Real(row)
		if there = !none(v); !there {
			v = 0
		}
		c.data = binary.LittleEndian.AppendUint64(c.data, math.Float64bits(v))
	case c.Time != nil:
		var ns int64
		if t := c.Time(row); t.IsZero() {
			there = false
		} else {
			ns = t.UnixNano()
		}
		c.data = binary.LittleEndian.AppendUint64(c.data, uint64(ns))
	}
	if c.valid = appendBit(c.valid, n, there); !there {
		c.nulls++
	}
}

// appendBit appends bit n to bits, which has n of them, the lowest of a byte first.
func appendBit(bits []byte, n int, set bool) []byte {
	if n%8 == 0 {
		bits = append(bits, 0)
	}
	if set {
		bits[n/8] |= 1 << (n % 8)
	}
	return bits
}

// buffers are the buffers of the column in a record batch. An empty first one means that all rows
// have a value.
func (c *arrowColumn[T]) buffers() [][]byte {
	valid := c.valid
	if c.nulls == 0 {
		valid = nil
	}
	if c.Text != nil {
		return [][]byte{valid, c.ends, c.data}
	}
	return [][]byte{valid, c.data}
}

func (c *arrowColumn[T]) reset() {
	c.nulls, c.valid, c.ends, c.data = 0, c.valid[:0], c.ends[:0], c.data[:0]
	if c.Text != nil {
		c.ends = append(c.ends, 0, 0, 0, 0)
	}
}

// flush writes the rows as a RecordBatch: length, nodes (length and nulls of a column), buffers
// (offset and length in the message's body).
func (a *arrowWriter[T]) flush() error {
	if a.rows == 0 {
		return nil
	}
	var body [][]byte
	for i := range a.columns {
		body = append(body, a.columns[i].buffers()...)
	}
	var length int64
	for _, b := range body {
		length += padded(len(b))
	}
	// Flatbuffers are written from their end.
	a.meta.StartVector(16, len(body), 8)
	at := length
	for i := len(body) - 1; i >= 0; i-- {
		at -= padded(len(body[i]))
		a.meta.PrependInt64(int64(len(body[i])))
		a.meta.PrependInt64(at)
	}
	buffers := a.meta.EndVector(len(body))
	a.meta.StartVector(16, len(a.columns), 8)
	for i := len(a.columns) - 1; i >= 0; i-- {
		a.meta.PrependInt64(int64(a.columns[i].nulls))
		a.meta.PrependInt64(int64(a.rows))
	}
	nodes := a.meta.EndVector(len(a.columns))
	a.meta.StartObject(5)
	a.meta.PrependInt64Slot(0, int64(a.rows), 0)
	a.meta.PrependUOffsetTSlot(1, nodes, 0)
	a.meta.PrependUOffsetTSlot(2, buffers, 0)
	if err := a.message(arrowBatch, a.meta.EndObject(), length); err != nil {
		return err
	}
	for _, b := range body {
		if err := a.put(b, padded(len(b))); err != nil {
			return err
		}
	}
	for i := range a.columns {
		a.columns[i].reset()
	}
	a.rows = 0
	return nil
}

// padded is n rounded up to a multiple of 8 bytes.
func padded(n int) int64 { return int64(n+7) &^ 7 }

// message writes the bytes before a body: a marker, the length of the metadata, and as metadata a
// Message: version (4 for V5), kind and table of the header, length of the body.
func (a *arrowWriter[T]) message(kind byte, header flatbuffers.UOffsetT, body int64) error {
	a.meta.StartObject(5)
	a.meta.PrependInt16Slot(0, 4, 0)
	a.meta.PrependByteSlot(1, kind, 0)
	a.meta.PrependUOffsetTSlot(2, header, 0)
	a.meta.PrependInt64Slot(3, body, 0)
	a.meta.Finish(a.meta.EndObject())
	meta := a.meta.FinishedBytes()
	head := binary.LittleEndian.AppendUint32(nil, math.MaxUint32)
	head = binary.LittleEndian.AppendUint32(head, uint32(padded(len(meta))))
	if err := a.put(head, int64(len(head))); err != nil {
		return err
	}
	err := a.put(meta, padded(len(meta)))
	a.meta.Reset()
	return err
}

// put writes b, and zeros up to the length.
func (a *arrowWriter[T]) put(b []byte, length int64) error {
	_, err := a.out.Write(b)
	if rest := int(length) - len(b); err == nil && rest > 0 {
		_, err = a.out.Write(make([]byte, rest))
	}
	if err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// Close implements Writer.
func (a *arrowWriter[T]) Close(map[string]string) error {
	if err := a.flush(); err != nil {
		return err
	}
	return a.put(binary.LittleEndian.AppendUint64(nil, math.MaxUint32), 8)
}
