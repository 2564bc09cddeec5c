// Package tabular writes rows as tables for other programs: CSV, Parquet and streams of Arrow
// record batches, row by row and in bounded memory; and as listings, which are printed.
//
// It knows columns and formats. It must never know the meaning of rows or their destination.
package tabular

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Format is a file format for tables.
type Format string

// The formats.
const (
	CSV     Format = "csv"
	Parquet Format = "parquet"
	Arrow   Format = "arrow"  // the stream format of Arrow IPC
	NDJSON  Format = "ndjson" // one object per line, which callers encode themselves
)

// contentTypes are the formats' media types.
var contentTypes = map[Format]string{
	CSV: "text/csv; charset=utf-8", NDJSON: "application/x-ndjson", Parquet: "application/vnd.apache.parquet", Arrow: "application/vnd.apache.arrow.stream",
}

// ContentType is the media type of the format.
func (f Format) ContentType() string { return contentTypes[f] }

// Column is one column of rows of type T. One of the functions is set; an empty text, a zero time
// and NaN stand for no value.
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
	// Write writes a row, and keeps no reference to it.
	Write(*T) error
	// Close writes the remaining rows and the end of the table. It also stores notes, if the
	// format has a place for them after the rows.
	Close(notes map[string]string) error
}

// New makes a writer of the format to w, which stays open. NDJSON and unknown formats are errors.
func New[T any](f Format, columns []Column[T], w io.Writer) (Writer[T], error) {
	switch f {
	case CSV:
		return newCSV(columns, w)
	case Parquet:
		return newParquet(columns, w)
	case Arrow:
		return newArrow(columns, w)
	}
	return nil, fmt.Errorf("write table: format %q: expected %s, %s or %s", f, CSV, Parquet, Arrow)
}

// none reports whether there is no value.
func none(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }

// optional reports whether a row may have no value there.
func (c *Column[T]) optional() bool { return c.Count == nil && c.Flag == nil }

// csvWriter writes a line for each row, after one of names. Missing values are empty.
type csvWriter[T any] struct {
	columns []Column[T]
	out     *csv.Writer
	line    []string
}

func newCSV[T any](columns []Column[T], w io.Writer) (*csvWriter[T], error) {
	c := &csvWriter[T]{columns: columns, out: csv.NewWriter(w), line: make([]string, len(columns))}
	for i := range columns {
		c.line[i] = columns[i].Name
	}
	return c, c.put()
}

func (c *csvWriter[T]) put() error {
	if err := c.out.Write(c.line); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// Write implements Writer.
func (c *csvWriter[T]) Write(row *T) error {
	for i := range c.columns {
		c.line[i] = c.columns[i].text(row)
	}
	return c.put()
}

func (c *Column[T]) text(row *T) string {
	switch {
	case c.Text != nil:
		return c.Text(row)
	case c.Count != nil:
		return strconv.FormatUint(c.Count(row), 10)
	case c.Flag != nil:
		return strconv.FormatBool(c.Flag(row))
	case c.Real != nil:
		if v := c.Real(row); !none(v) {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
	case c.Time != nil:
		if t := c.Time(row); !t.IsZero() {
			return t.UTC().Format(time.RFC3339Nano)
		}
	}
	return ""
}

// Close implements Writer.
func (c *csvWriter[T]) Close(map[string]string) error {
	c.out.Flush()
	if err := c.out.Error(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// Listing is a table that is held in memory and printed; a column may have values of several
// types. Values are strings, numbers, booleans or nil for none.
type Listing struct {
	Columns []string
	Rows    [][]any // each as long as Columns
	// Brief are the columns of the format table, which shows the most useful ones; empty for all.
	Brief []string
	// Show formats a value of a column in the format table; nil for six digits, as in the others.
	Show func(column string, v any) string
	// Continued omits the line of names in CSV: the listing continues another one.
	Continued bool
}

// ListingFormats are the formats of a Listing: for people, with all columns for people, as one
// JSON array, as one JSON object per line, and as CSV.
func ListingFormats() []string { return []string{"table", "wide", "json", "ndjson", "csv"} }

// Write prints the listing in one of ListingFormats.
func (l *Listing) Write(w io.Writer, format string) error {
	switch format {
	case "table":
		return l.writeText(w, l.brief(), l.Show)
	case "wide":
		return l.writeText(w, l.Columns, nil)
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return written(e.Encode(l.objects()))
	case "ndjson":
		e := json.NewEncoder(w)
		for _, o := range l.objects() {
			if err := e.Encode(o); err != nil {
				return written(err)
			}
		}
		return nil
	case "csv":
		return l.writeCSV(w)
	}
	return fmt.Errorf("write output: format %q: expected one of %s", format, strings.Join(ListingFormats(), ", "))
}

// written adds the context to an error, unless it is nil.
func written(err error) error {
	if err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

func (l *Listing) objects() []orderedRow {
	objects := make([]orderedRow, len(l.Rows))
	for i, r := range l.Rows {
		objects[i] = orderedRow{l.Columns, r}
	}
	return objects
}

func (l *Listing) writeCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	if !l.Continued {
		_ = c.Write(l.Columns)
	}
	for _, r := range l.Rows {
		_ = c.Write(cells(r))
	}
	c.Flush()
	return written(c.Error())
}

// brief returns the columns of the format table.
func (l *Listing) brief() []string {
	if len(l.Brief) == 0 {
		return l.Columns
	}
	return l.Brief
}

func (l *Listing) writeText(w io.Writer, columns []string, show func(string, any) string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	at := make([]int, len(columns))
	for i, name := range columns {
		at[i] = slices.Index(l.Columns, name)
	}
	fmt.Fprintln(tw, strings.ToUpper(strings.Join(columns, "\t")))
	for _, r := range l.Rows {
		texts := cells(r)
		line := make([]string, len(at))
		for i, n := range at {
			if line[i] = texts[n]; show != nil && r[n] != nil {
				line[i] = show(l.Columns[n], r[n])
			}
		}
		fmt.Fprintln(tw, strings.Join(line, "\t"))
	}
	return written(tw.Flush())
}

func cells(row []any) []string {
	out := make([]string, len(row))
	for i, v := range row {
		switch v := v.(type) {
		case nil:
		case float64:
			out[i] = sixDigits(v)
		default:
			out[i] = fmt.Sprint(v)
		}
	}
	return out
}

// sixDigits formats v with six significant digits, without an exponent.
func sixDigits(v float64) string {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// orderedRow is a JSON object that keeps its keys in the order of the columns and omits keys
// without a value.
type orderedRow struct {
	columns []string
	values  []any
}

// MarshalJSON implements json.Marshaler.
func (r orderedRow) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, c := range r.columns {
		if r.values[i] == nil {
			continue
		}
		v, err := json.Marshal(r.values[i])
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", c, err)
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = fmt.Appendf(out, "%q:%s", c, v)
	}
	return append(out, '}'), nil
}
