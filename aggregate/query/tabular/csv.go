package tabular

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"time"
)

// csvWriter has a line for each row, after one of names. What a row has no value for is
// empty.
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
