// Package tabulartest parses tables into text.
//
// It knows formats. It must never be used outside of tests.
package tabulartest

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/csigscope/csigscope/aggregate/query/tabular"
)

// Read returns the rows of a table, the names of columns first; missing values are empty. notes
// are the notes at the table's end.
func Read(f tabular.Format, body []byte) (rows [][]string, notes map[string]string, err error) {
	switch f {
	case tabular.Parquet:
		return readParquet(body)
	case tabular.Arrow:
		rows, err = readArrow(body)
		return rows, nil, err
	}
	rows, err = csv.NewReader(bytes.NewReader(body)).ReadAll()
	return rows, nil, err
}

func moment(ns int64) string     { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }
func number(v float64) string    { return strconv.FormatFloat(v, 'f', -1, 64) }
func unsigned(v uint64) string   { return strconv.FormatUint(v, 10) }
func boolean(v bool) string      { return strconv.FormatBool(v) }
func text[T ~[]byte](v T) string { return string(v) }

func readArrow(body []byte) (rows [][]string, err error) {
	r, err := ipc.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer r.Release()
	var names []string
	for _, f := range r.Schema().Fields() {
		names = append(names, f.Name)
	}
	rows = append(rows, names)
	for r.Next() {
		batch := r.RecordBatch()
		for i := range int(batch.NumRows()) {
			row := make([]string, len(names))
			for n, column := range batch.Columns() {
				if column.IsValid(i) {
					row[n] = arrowText(column, i)
				}
			}
			rows = append(rows, row)
		}
	}
	if err := r.Err(); err != nil && !errors.Is(err, io.EOF) {
		return rows, err
	}
	return rows, nil
}

func arrowText(column arrow.Array, i int) string {
	switch c := column.(type) {
	case *array.String:
		return c.Value(i)
	case *array.Uint64:
		return unsigned(c.Value(i))
	case *array.Float64:
		return number(c.Value(i))
	case *array.Boolean:
		return boolean(c.Value(i))
	case *array.Timestamp:
		return moment(int64(c.Value(i)))
	}
	return fmt.Sprintf("%T", column)
}

func readParquet(body []byte) (rows [][]string, notes map[string]string, err error) {
	r, err := file.NewParquetReader(bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	notes = map[string]string{}
	for _, key := range r.MetaData().KeyValueMetadata().Keys() {
		notes[key] = *r.MetaData().KeyValueMetadata().FindValue(key)
	}
	var names []string
	for i := range r.MetaData().Schema.NumColumns() {
		names = append(names, r.MetaData().Schema.Column(i).Name())
	}
	rows = append(rows, names)
	for g := range r.NumRowGroups() {
		group := r.RowGroup(g)
		first := len(rows)
		for range group.NumRows() {
			rows = append(rows, make([]string, len(names)))
		}
		for i := range names {
			column, err := group.Column(i)
			if err == nil {
				err = readColumn(column, group.NumRows(), func(row int, v string) { rows[first+row][i] = v })
			}
			if err != nil {
				return nil, nil, fmt.Errorf("column %s: %w", names[i], err)
			}
		}
	}
	return rows, notes, nil
}

func readColumn(column file.ColumnChunkReader, rows int64, put func(int, string)) error {
	d := column.Descriptor()
	switch c := column.(type) {
	case *file.ByteArrayColumnChunkReader:
		return readValues(c.ReadBatch, rows, d, put, text[parquet.ByteArray])
	case *file.Float64ColumnChunkReader:
		return readValues(c.ReadBatch, rows, d, put, number)
	case *file.BooleanColumnChunkReader:
		return readValues(c.ReadBatch, rows, d, put, boolean)
	case *file.Int64ColumnChunkReader:
		if _, ok := d.LogicalType().(schema.TimestampLogicalType); ok {
			return readValues(c.ReadBatch, rows, d, put, moment)
		}
		return readValues(c.ReadBatch, rows, d, put, func(v int64) string { return unsigned(uint64(v)) })
	}
	return fmt.Errorf("a column of %T", column)
}

func readValues[T any](
	read func(int64, []T, []int16, []int16) (int64, int, error), rows int64, d *schema.Column, put func(int, string), text func(T) string,
) error {
	values, levels := make([]T, rows), make([]int16, rows)
	for done := int64(0); done < rows; {
		n, found, err := read(rows-done, values, levels, nil)
		if err != nil || n == 0 {
			return fmt.Errorf("%d of %d rows: %w", done, rows, err)
		}
		next := 0
		for i := range int(n) {
			if d.MaxDefinitionLevel() == 0 || levels[i] == d.MaxDefinitionLevel() {
				put(int(done)+i, text(values[next]))
				next++
			}
		}
		if next != found {
			return fmt.Errorf("%d values, %d levels", found, next)
		}
		done += n
	}
	return nil
}
