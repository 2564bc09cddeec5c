// Package tabular writes rows as tables that other programs read: CSV, Parquet and streams of
// Arrow record batches, row by row and in bounded memory; and as listings, which are printed.
//
// It knows columns and formats. It must never know what rows mean or where they go.
package tabular

import (
	"fmt"
	"io"
	"math"
	"time"
)

// Format is how a table is written.
type Format string

// The formats.
const (
	CSV     Format = "csv"
	Parquet Format = "parquet"
	Arrow   Format = "arrow" // the stream format of Arrow IPC
)

// contentTypes are the formats' media types.
var contentTypes = map[Format]string{
	CSV: "text/csv; charset=utf-8", Parquet: "application/vnd.apache.parquet", Arrow: "application/vnd.apache.arrow.stream",
}

// ContentType is the media type of the format.
func (f Format) ContentType() string { return contentTypes[f] }

// Column is one column of rows of type T. One of the functions is set; an empty text, a zero
// time and NaN stand for no value.
type Column[T any] struct {
	Name  string
	Text  func(*T) string
	Count func(*T) uint64
	Real  func(*T) float64
	Time  func(*T) time.Time
	Flag  func(*T) bool
}

// Writer writes rows. It serves one goroutine.
type Writer[T any] interface {
	// Write writes a row, of which it keeps nothing.
	Write(*T) error
	// Close writes what is left, and the end of the table. notes are kept in it where the
	// format has a place for them after the rows.
	Close(notes map[string]string) error
}

// New makes a writer of the format to w, which stays open.
func New[T any](f Format, columns []Column[T], w io.Writer) (Writer[T], error) {
	switch f {
	case CSV:
		return newCSV(columns, w)
	case Parquet:
		return newParquet(columns, w)
	case Arrow:
		return newArrow(columns, w), nil
	}
	return nil, fmt.Errorf("write table: format %q: expected %s, %s or %s", f, CSV, Parquet, Arrow)
}

// none tells whether there is no value.
func none(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }

// optional tells whether a row may have no value there.
func (c *Column[T]) optional() bool { return c.Count == nil && c.Flag == nil }
