package tabular

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Listing is a table that is held in memory and printed, with columns that are not of one
// type each. Values are strings, numbers, booleans or nil for none.
type Listing struct {
	Columns []string
	Rows    [][]any // each as long as Columns
	// Continued leaves out the line of names in CSV: it goes on after another listing.
	Continued bool
}

// ListingFormats are those that a Listing is printed in: for people, as one JSON array, as
// a JSON object a line, and as CSV.
func ListingFormats() []string { return []string{"table", "json", "ndjson", "csv"} }

// Write prints the listing in one of ListingFormats.
func (l *Listing) Write(w io.Writer, format string) error {
	switch format {
	case "table":
		return l.writeText(w)
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

// written says what an error, unless it is nil, is about.
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

func (l *Listing) writeText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.ToUpper(strings.Join(l.Columns, "\t")))
	for _, r := range l.Rows {
		fmt.Fprintln(tw, strings.Join(cells(r), "\t"))
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

// sixDigits is v to six significant digits, without an exponent.
func sixDigits(v float64) string {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// orderedRow is a JSON object whose keys keep the order of the columns and which
// leaves out the keys without a value.
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
