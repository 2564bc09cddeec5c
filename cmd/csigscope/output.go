package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// A table is what a command prints in the format that the user chose. Values are
// strings, numbers or nil.
type table struct {
	columns []string
	rows    [][]any
}

var outputFormats = []string{"table", "json", "ndjson", "csv"}

func checkOutput(format string) error {
	if !slices.Contains(outputFormats, format) {
		return usageError{fmt.Errorf("output format %q: expected one of %s", format, strings.Join(outputFormats, ", "))}
	}
	return nil
}

func (t *table) write(w io.Writer, format string) error {
	switch format {
	case "json":
		objects := make([]orderedRow, len(t.rows))
		for i, r := range t.rows {
			objects[i] = orderedRow{t.columns, r}
		}
		return writeIndented(w, objects)
	case "ndjson":
		e := json.NewEncoder(w)
		for _, r := range t.rows {
			if err := e.Encode(orderedRow{t.columns, r}); err != nil {
				return fmt.Errorf("write output: %w", err)
			}
		}
		return nil
	case "csv":
		return t.writeCSV(w)
	}
	return t.writeText(w)
}

func writeIndented(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

func (t *table) writeCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	_ = c.Write(t.columns)
	for _, r := range t.rows {
		_ = c.Write(cells(r))
	}
	c.Flush()
	if err := c.Error(); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

func (t *table) writeText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.ToUpper(strings.Join(t.columns, "\t")))
	for _, r := range t.rows {
		fmt.Fprintln(tw, strings.Join(cells(r), "\t"))
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
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

func addOutputFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", "table", "output `FORMAT`: "+strings.Join(outputFormats, ", "))
	run := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := checkOutput(*format); err != nil {
			return err
		}
		if run != nil {
			return run(cmd, args)
		}
		return nil
	}
}
