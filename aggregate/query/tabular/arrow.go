package tabular

import (
	"fmt"
	"io"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// arrowRows are the rows of a record batch.
const arrowRows = 8 << 10

// arrowWriter gathers rows to record batches.
type arrowWriter[T any] struct {
	columns []Column[T]
	builder *array.RecordBuilder
	rows    int // of the batch
	out     *ipc.Writer
}

func newArrow[T any](columns []Column[T], w io.Writer) *arrowWriter[T] {
	fields := make([]arrow.Field, len(columns))
	for i := range columns {
		fields[i] = arrow.Field{Name: columns[i].Name, Type: columns[i].arrowType(), Nullable: columns[i].optional()}
	}
	schema := arrow.NewSchema(fields, nil)
	return &arrowWriter[T]{
		columns: columns, builder: array.NewRecordBuilder(memory.DefaultAllocator, schema), out: ipc.NewWriter(w, ipc.WithSchema(schema)),
	}
}

func (c *Column[T]) arrowType() arrow.DataType {
	switch {
	case c.Count != nil:
		return arrow.PrimitiveTypes.Uint64
	case c.Real != nil:
		return arrow.PrimitiveTypes.Float64
	case c.Time != nil:
		return &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}
	case c.Flag != nil:
		return arrow.FixedWidthTypes.Boolean
	}
	return arrow.BinaryTypes.String
}

// Write implements Writer.
func (b *arrowWriter[T]) Write(row *T) error {
	for i := range b.columns {
		b.columns[i].append(b.builder.Field(i), row)
	}
	if b.rows++; b.rows < arrowRows {
		return nil
	}
	return b.flush()
}

func (c *Column[T]) append(to array.Builder, row *T) {
	switch to := to.(type) {
	case *array.StringBuilder:
		if v := c.Text(row); v != "" {
			to.Append(strings.ToValidUTF8(v, "\ufffd"))
			return
		}
	case *array.Uint64Builder:
		to.Append(c.Count(row))
		return
	case *array.BooleanBuilder:
		to.Append(c.Flag(row))
		return
	case *array.Float64Builder:
		if v := c.Real(row); !none(v) {
			to.Append(v)
			return
		}
	case *array.TimestampBuilder:
		if t := c.Time(row); !t.IsZero() {
			to.Append(arrow.Timestamp(t.UnixNano()))
			return
		}
	}
	to.AppendNull()
}

func (b *arrowWriter[T]) flush() error {
	if b.rows == 0 {
		return nil
	}
	b.rows = 0
	batch := b.builder.NewRecordBatch()
	defer batch.Release()
	if err := b.out.Write(batch); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// Close implements Writer.
func (b *arrowWriter[T]) Close(map[string]string) error {
	defer b.builder.Release()
	if err := b.flush(); err != nil {
		return err
	}
	if err := b.out.Close(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}
