package tabular

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// parquetRows are the rows of a row group, which is what is held in memory: some 10 MiB.
const parquetRows = 64 << 10

// parquetWriter gathers rows to row groups. It goes without the library's own way from Arrow
// to Parquet, which all of gRPC comes along with.
type parquetWriter[T any] struct {
	columns []parquetColumn[T]
	rows    int // of the group
	out     *file.Writer
	sink    *sink
}

// sink keeps the first error of a writer from the library, which panics at some.
type sink struct {
	to  io.Writer
	err error
}

// Write implements io.Writer.
func (s *sink) Write(b []byte) (int, error) {
	if s.err == nil {
		_, s.err = s.to.Write(b)
	}
	return len(b), nil
}

// parquetColumn are the values of one column of a row group, those that there are.
type parquetColumn[T any] struct {
	Column[T]
	levels []int16 // of each row: 1 where it has a value; nil where all have
	texts  []parquet.ByteArray
	ints   []int64 // counts, and times in Unix ns
	reals  []float64
	flags  []bool
}

func newParquet[T any](columns []Column[T], w io.Writer) (*parquetWriter[T], error) {
	p := &parquetWriter[T]{columns: make([]parquetColumn[T], len(columns)), sink: &sink{to: w}}
	fields := make(schema.FieldList, len(columns))
	for i := range columns {
		var err error
		if fields[i], err = columns[i].parquetField(); err != nil {
			return nil, fmt.Errorf("write table: %w", err)
		}
		p.columns[i].Column = columns[i]
	}
	root, err := schema.NewGroupNode("table", parquet.Repetitions.Required, fields, -1)
	if err != nil {
		return nil, fmt.Errorf("write table: %w", err)
	}
	properties := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Snappy), parquet.WithCreatedBy("csigscope"))
	p.out = file.NewParquetWriter(p.sink, root, file.WithWriterProps(properties))
	return p, nil
}

func (c *Column[T]) parquetField() (schema.Node, error) {
	logical, physical := schema.LogicalType(schema.StringLogicalType{}), parquet.Types.ByteArray
	switch {
	case c.Count != nil:
		logical, physical = schema.NewIntLogicalType(64, false), parquet.Types.Int64
	case c.Time != nil:
		logical, physical = schema.NewTimestampLogicalType(true, schema.TimeUnitNanos), parquet.Types.Int64
	case c.Real != nil:
		logical, physical = schema.NoLogicalType{}, parquet.Types.Double
	case c.Flag != nil:
		logical, physical = schema.NoLogicalType{}, parquet.Types.Boolean
	}
	repetition := parquet.Repetitions.Required
	if c.optional() {
		repetition = parquet.Repetitions.Optional
	}
	return schema.NewPrimitiveNodeLogical(c.Name, repetition, logical, physical, 0, -1)
}

// Write implements Writer.
func (p *parquetWriter[T]) Write(row *T) error {
	for i := range p.columns {
		p.columns[i].add(row)
	}
	if p.rows++; p.rows < parquetRows {
		return nil
	}
	return p.flush()
}

func (c *parquetColumn[T]) add(row *T) {
	level := int16(0)
	switch {
	case c.Text != nil:
		if v := c.Text(row); v != "" {
			c.texts, level = append(c.texts, parquet.ByteArray(strings.ToValidUTF8(v, "\ufffd"))), 1
		}
	case c.Time != nil:
		if v := c.Time(row); !v.IsZero() {
			c.ints, level = append(c.ints, v.UnixNano()), 1
		}
	case c.Real != nil:
		if v := c.Real(row); !none(v) {
			c.reals, level = append(c.reals, v), 1
		}
	case c.Count != nil:
		c.ints = append(c.ints, int64(c.Count(row)))
	case c.Flag != nil:
		c.flags = append(c.flags, c.Flag(row))
	}
	if c.optional() {
		c.levels = append(c.levels, level)
	}
}

func (p *parquetWriter[T]) flush() error {
	if p.rows == 0 {
		return nil
	}
	p.rows = 0
	group := p.out.AppendRowGroup()
	for i := range p.columns {
		to, err := group.NextColumn()
		if err == nil {
			err = p.columns[i].flush(to)
		}
		if err != nil {
			return fmt.Errorf("write table: column %s: %w", p.columns[i].Name, err)
		}
	}
	if err := errors.Join(group.Close(), p.sink.err); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// flush writes the values of the row group, and forgets them.
func (c *parquetColumn[T]) flush(to file.ColumnChunkWriter) (err error) {
	switch to := to.(type) {
	case *file.ByteArrayColumnChunkWriter:
		_, err = to.WriteBatch(c.texts, c.levels, nil)
	case *file.Int64ColumnChunkWriter:
		_, err = to.WriteBatch(c.ints, c.levels, nil)
	case *file.Float64ColumnChunkWriter:
		_, err = to.WriteBatch(c.reals, c.levels, nil)
	case *file.BooleanColumnChunkWriter:
		_, err = to.WriteBatch(c.flags, c.levels, nil)
	default:
		err = fmt.Errorf("a writer of %T", to)
	}
	clear(c.texts) // holds on to text
	c.levels, c.texts, c.ints, c.reals, c.flags = c.levels[:0], c.texts[:0], c.ints[:0], c.reals[:0], c.flags[:0]
	if err != nil {
		return err
	}
	return to.Close()
}

// Close implements Writer.
func (p *parquetWriter[T]) Close(notes map[string]string) error {
	if err := p.flush(); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(notes)) {
		if err := p.out.AppendKeyValueMetadata(key, notes[key]); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	if err := errors.Join(p.out.Close(), p.sink.err); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}
