package native

import (
	"io"
	"regexp"
	"strings"
)

// block checks the rows of one block, column by column.
func (c *checker) block(r source) error {
	// Two fields, of one and four bytes, and the end of fields.
	var info [8]byte
	if _, err := io.ReadFull(r, info[:]); err != nil {
		return err
	}
	if info[0] != 1 || info[1] > 1 || info[2] != 2 || info[7] != 0 {
		return malformed("a block begins with % x", info)
	}
	columns, err := c.length(r, maxColumns)
	if err != nil {
		return err
	}
	rows, err := c.length(r, c.left)
	if err != nil {
		return err
	}
	for range columns {
		if err := c.charge(columnBytes); err != nil {
			return err
		}
		if err := c.column(r, rows); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) column(r source, rows int) error {
	var text [2]string // name and type
	for i := range text {
		n, err := c.length(r, maxColumnType)
		if err != nil {
			return err
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
		text[i] = string(b)
	}
	kind, err := parseColumnType(text[1], maxTypeDepth)
	if err != nil {
		return err
	}
	custom, err := r.ReadByte()
	if err != nil {
		return err
	}
	if custom != 0 {
		return malformed("column %.64q is serialized in a way of its own", text[0])
	}
	if rows == 0 {
		return nil
	}
	if err := c.prefix(r, kind); err != nil {
		return err
	}
	return c.cells(r, kind, rows)
}

// columnType is a type of columns as the protocol writes it.
type columnType struct {
	base  string
	width int // bytes of a cell; 0 if they differ
	of    []columnType
}

// The encoding of other types in an answer is unknown, so they are refused.
var (
	cellWidths = map[string]int{
		"Bool": 1, "UInt8": 1, "UInt16": 2, "UInt32": 4, "UInt64": 8, "Int8": 1, "Int16": 2, "Int32": 4, "Int64": 8,
		"Float32": 4, "Float64": 8, "Date": 2, "DateTime": 4, "IPv4": 4, "IPv6": 16, "UUID": 16,
		"Enum8": 1, "Enum16": 2, "DateTime64": 8, "String": 0,
	}
	// The library indexes into parameters without checking their number.
	typeParameters = map[string]*regexp.Regexp{
		"DateTime":   regexp.MustCompile(`^'[\w/+-]{1,64}'$`),
		"DateTime64": regexp.MustCompile(`^\d(, '[\w/+-]{1,64}')?$`),
		"Enum8":      regexp.MustCompile(`^'[^'\\]*' = -?\d{1,3}(, '[^'\\]*' = -?\d{1,3})*$`),
		"Enum16":     regexp.MustCompile(`^'[^'\\]*' = -?\d{1,5}(, '[^'\\]*' = -?\d{1,5})*$`),
	}
	containers = map[string]int{"Array": 1, "Map": 2, "Nullable": 1, "LowCardinality": 1}
)

func parseColumnType(text string, depth int) (columnType, error) {
	base, within, parameters := strings.Cut(text, "(")
	unknown := malformed("a column of type %.64q", text)
	if parameters {
		var closed bool
		if within, closed = strings.CutSuffix(within, ")"); !closed {
			return columnType{}, unknown
		}
	}
	t := columnType{base: base}
	width, simple := cellWidths[base]
	pattern := typeParameters[base]
	switch {
	case simple && !parameters && (pattern == nil || base == "DateTime"),
		simple && parameters && pattern != nil && pattern.MatchString(within):
		t.width = width
		return t, nil
	case simple || containers[base] == 0 || !parameters || depth == 0:
		return t, unknown
	}
	for _, inner := range splitTypes(within) {
		of, err := parseColumnType(inner, depth-1)
		if err != nil {
			return t, unknown
		}
		t.of = append(t.of, of)
	}
	if len(t.of) != containers[base] || base == "LowCardinality" && t.of[0].base != "String" || base == "Nullable" && t.of[0].of != nil {
		return t, unknown
	}
	return t, nil
}

// splitTypes splits at the commas outside of brackets.
func splitTypes(text string) []string {
	var parts []string
	depth, from := 0, 0
	for i, b := range []byte(text) {
		switch {
		case b == '(':
			depth++
		case b == ')':
			depth--
		case b == ',' && depth == 0:
			parts = append(parts, text[from:i])
			from = i + 1
		}
	}
	parts = append(parts, text[from:])
	for i := range parts {
		parts[i] = strings.TrimPrefix(parts[i], " ")
	}
	return parts
}

// prefix checks the bytes before the cells of a column.
func (c *checker) prefix(r source, t columnType) error {
	if t.base == "LowCardinality" {
		return eachNumber(r, 8, 1, func(version uint64) error {
			if version != 1 {
				return malformed("a dictionary of version %d", version)
			}
			return nil
		})
	}
	for _, of := range t.of {
		if err := c.prefix(r, of); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) cells(r source, t columnType, rows int) error {
	if rows == 0 {
		return nil
	}
	if rows > c.left {
		return malformed("%d rows in a packet of at most %d bytes", rows, c.limit)
	}
	switch t.base {
	case "String":
		return c.strings(r, rows)
	case "LowCardinality":
		return c.dictionary(r, t, rows)
	case "Array", "Map":
		if err := c.charge(8 * rows); err != nil {
			return err
		}
		last := uint64(0)
		err := eachNumber(r, 8, rows, func(end uint64) error {
			if end < last || end > uint64(c.limit) {
				return malformed("the end of an array at %d after %d", end, last)
			}
			last = end
			return nil
		})
		if err != nil {
			return err
		}
		rows = int(last)
	case "Nullable":
		if err := c.skip(r, rows); err != nil {
			return err
		}
	default:
		return c.skip(r, t.width*rows)
	}
	for _, of := range t.of {
		if err := c.cells(r, of, rows); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) skip(r source, n int) error {
	if err := c.charge(n); err != nil {
		return err
	}
	_, err := r.Discard(n)
	return err
}

// strings charges memory as the library allocates it: when the library reads a short string, it
// reserves room for all remaining rows too.
func (c *checker) strings(r source, rows int) error {
	const position, short = 16, 128
	if err := c.charge(position * rows); err != nil {
		return err
	}
	room, end := 0, 0
	for i := range rows {
		n, err := c.length(r, c.limit)
		if err != nil {
			return err
		}
		if end += n; room < end {
			grow := n
			if n < short {
				grow *= rows - i
			}
			if err := c.charge(grow); err != nil {
				return err
			}
			room += grow
		}
		if _, err := r.Discard(n); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) dictionary(r source, t columnType, rows int) error {
	var head [2]uint64 // flags, number of entries
	i := 0
	err := eachNumber(r, 8, len(head), func(v uint64) error { head[i] = v; i++; return nil })
	if err != nil {
		return err
	}
	key, entries := head[0]&0xff, head[1]
	if key > 3 || entries == 0 || entries > uint64(c.left) {
		return malformed("a dictionary of %d entries with flags %#x", entries, head[0])
	}
	if err := c.cells(r, t.of[0], int(entries)); err != nil {
		return err
	}
	err = eachNumber(r, 8, 1, func(n uint64) error {
		if n != uint64(rows) {
			return malformed("%d keys of a dictionary for %d rows", n, rows)
		}
		return nil
	})
	if err != nil {
		return err
	}
	width := 1 << key
	if err := c.charge(width * rows); err != nil {
		return err
	}
	return eachNumber(r, width, rows, func(k uint64) error {
		if k >= entries {
			return malformed("key %d of a dictionary of %d entries", k, entries)
		}
		return nil
	})
}

// eachNumber calls f for n little-endian numbers of the given width in bytes.
func eachNumber(r source, width, n int, f func(uint64) error) error {
	var buffer [512]byte
	for n > 0 {
		b := buffer[:min(n*width, len(buffer))]
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
		for ; len(b) > 0; b = b[width:] {
			var v uint64
			for i := width - 1; i >= 0; i-- {
				v = v<<8 | uint64(b[i])
			}
			if err := f(v); err != nil {
				return err
			}
			n--
		}
	}
	return nil
}
