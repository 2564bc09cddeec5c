package tabular

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/golang/snappy"
)

const (
	// parquetRows is the number of rows of a row group, the part held in memory: some 10 MiB.
	parquetRows = 64 << 10
	// parquetDistinct is the maximum number of values in the dictionary of a column chunk.
	parquetDistinct = 8 << 10
)

// Values of enumerations in parquet.thrift (Parquet format 2.10): physical types, repetitions,
// encodings, kinds of pages, and converted types for older readers.
const (
	parquetBool, parquetInt64, parquetDouble, parquetBytes = 0, 2, 5, 6

	parquetRequired, parquetOptional = 0, 1

	parquetPlain, parquetRLE, parquetDictionary = 0, 3, 8

	parquetDataPage, parquetDictionaryPage = 0, 2

	parquetUTF8, parquetUint64 = 0, 14

	parquetSnappy = 1
)

const parquetMagic = "PAR1"

// parquetWriter writes row groups of column chunks, each a dictionary page, if values repeat, and
// one data page, and the footer with their positions. The five types of columns need a small part
// of the format; the complete libraries take as long to compile as the rest of csigscope.
type parquetWriter[T any] struct {
	columns []parquetColumn[T]
	rows    int // of the group
	out     io.Writer
	at      int64 // bytes written
	groups  compactWriter
	count   int   // of groups
	total   int64 // rows of groups
}

// parquetColumn has the values of one column of a row group, without the missing ones.
type parquetColumn[T any] struct {
	Column[T]
	levels   []byte            // of each row: 1 if it has a value; nil if all have
	values   []byte            // in PLAIN encoding: the distinct ones, or all once they are too many
	known    map[string]uint32 // index of a distinct value in ends; nil once they are too many
	ends     []uint32          // in values
	indexes  []uint32          // of the rows with a value, in ends
	flags    int               // rows with a value of a column of flags
	min, max int64             // of times
}

func newParquet[T any](columns []Column[T], w io.Writer) (*parquetWriter[T], error) {
	p := &parquetWriter[T]{columns: make([]parquetColumn[T], len(columns)), out: w}
	for i := range columns {
		p.columns[i].Column = columns[i]
		p.columns[i].reset()
	}
	return p, p.put([]byte(parquetMagic))
}

func (p *parquetWriter[T]) put(b []byte) error {
	n, err := p.out.Write(b)
	if p.at += int64(n); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
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

func (c *parquetColumn[T]) reset() {
	c.levels, c.values, c.ends, c.indexes, c.flags = c.levels[:0], c.values[:0], c.ends[:0], c.indexes[:0], 0
	c.min, c.max = math.MaxInt64, math.MinInt64
	if c.known == nil {
		c.known = map[string]uint32{}
	}
	clear(c.known)
}

func (c *parquetColumn[T]) add(row *T) {
	level := byte(0)
	var fixed [8]byte
	switch {
	case c.Text != nil:
		if v := c.Text(row); v != "" {
			v = strings.ToValidUTF8(v, "\ufffd")
			c.put(append(binary.LittleEndian.AppendUint32(fixed[:0], uint32(len(v))), v...))
			level = 1
		}
	case c.Time != nil:
		if v := c.Time(row); !v.IsZero() {
			ns := v.UnixNano()
			c.min, c.max = min(c.min, ns), max(c.max, ns)
			c.put(binary.LittleEndian.AppendUint64(fixed[:0], uint64(ns)))
			level = 1
		}
	case c.Real != nil:
		if v := c.Real(row); !none(v) {
			c.put(binary.LittleEndian.AppendUint64(fixed[:0], math.Float64bits(v)))
			level = 1
		}
	case c.Count != nil:
		c.put(binary.LittleEndian.AppendUint64(fixed[:0], c.Count(row)))
	case c.Flag != nil:
		c.values = appendBit(c.values, c.flags, c.Flag(row))
		c.flags++
	}
	if c.optional() {
		c.levels = append(c.levels, level)
	}
}

// put adds a value in PLAIN encoding.
func (c *parquetColumn[T]) put(plain []byte) {
	if c.known != nil {
		n, ok := c.known[string(plain)]
		if !ok && len(c.ends) < parquetDistinct {
			n, ok = uint32(len(c.ends)), true
			c.known[string(plain)] = n
			c.values = append(c.values, plain...)
			c.ends = append(c.ends, uint32(len(c.values)))
		}
		if ok {
			c.indexes = append(c.indexes, n)
			return
		}
		c.values, c.known = c.plain(), nil
	}
	c.values = append(c.values, plain...)
	c.indexes = append(c.indexes, 0) // only for the count
}

// plain returns the values of all rows, from the dictionary.
func (c *parquetColumn[T]) plain() []byte {
	var out []byte
	for _, n := range c.indexes {
		first := uint32(0)
		if n > 0 {
			first = c.ends[n-1]
		}
		out = append(out, c.values[first:c.ends[n]]...)
	}
	return out
}

// flush writes the row group.
func (p *parquetWriter[T]) flush() error {
	if p.rows == 0 {
		return nil
	}
	g := &p.groups
	g.open()
	g.list(1, compactStruct, len(p.columns))
	var size int64
	for i := range p.columns {
		n, err := p.chunk(&p.columns[i])
		if err != nil {
			return err
		}
		size += n
		p.columns[i].reset()
	}
	g.integer(2, compactInt64, size)
	g.integer(3, compactInt64, int64(p.rows))
	g.end()
	p.total += int64(p.rows)
	p.count++
	p.rows = 0
	return nil
}

// chunk writes the pages of a column, and its entry in the row group. size is the size before
// compression.
func (p *parquetWriter[T]) chunk(c *parquetColumn[T]) (size int64, err error) {
	first, dictionary := p.at, c.known != nil && len(c.ends) < len(c.indexes)
	var page []byte
	if c.optional() {
		levels := appendHybrid(nil, c.levels, 1)
		page = append(binary.LittleEndian.AppendUint32(page, uint32(len(levels))), levels...)
	}
	encoding := int64(parquetPlain)
	switch {
	case dictionary:
		if size, err = p.page(parquetDictionaryPage, parquetPlain, len(c.ends), c.values); err != nil {
			return 0, err
		}
		width := max(1, bits.Len(uint(len(c.ends)-1)))
		page = appendHybrid(append(page, byte(width)), c.indexes, width)
		encoding = parquetDictionary
	case c.known != nil && c.Flag == nil:
		page = append(page, c.plain()...)
	default:
		page = append(page, c.values...)
	}
	data := p.at
	n, err := p.page(parquetDataPage, encoding, p.rows, page)
	if err != nil {
		return 0, err
	}
	size += n
	g := &p.groups
	g.open()
	g.integer(2, compactInt64, 0) // file_offset, which is obsolete
	g.begin(3)
	kind, _ := c.parquetType()
	g.integer(1, compactInt32, kind)
	g.list(2, compactInt32, 3)
	g.varint(parquetPlain)
	g.varint(parquetRLE)
	g.varint(encoding)
	g.list(3, compactBytes, 1)
	g.bytes(c.Name)
	g.integer(4, compactInt32, parquetSnappy)
	g.integer(5, compactInt64, int64(p.rows))
	g.integer(6, compactInt64, size)
	g.integer(7, compactInt64, p.at-first)
	g.integer(9, compactInt64, data)
	if dictionary {
		g.integer(11, compactInt64, first)
	}
	if c.Time != nil && c.min <= c.max {
		g.begin(12)
		g.text(5, string(binary.LittleEndian.AppendUint64(nil, uint64(c.max))))
		g.text(6, string(binary.LittleEndian.AppendUint64(nil, uint64(c.min))))
		g.end()
	}
	g.end()
	g.end()
	return size, nil
}

// page writes a page of a number of values. size is the size before compression, with the header.
func (p *parquetWriter[T]) page(kind, encoding int64, values int, body []byte) (size int64, err error) {
	packed := snappy.Encode(nil, body)
	var h compactWriter
	h.open()
	h.integer(1, compactInt32, kind)
	h.integer(2, compactInt32, int64(len(body)))
	h.integer(3, compactInt32, int64(len(packed)))
	if kind == parquetDictionaryPage {
		h.begin(7)
	} else {
		h.begin(5)
	}
	h.integer(1, compactInt32, int64(values))
	h.integer(2, compactInt32, encoding)
	if kind == parquetDataPage {
		h.integer(3, compactInt32, parquetRLE) // of levels
		h.integer(4, compactInt32, parquetRLE)
	}
	h.end()
	h.end()
	if err := p.put(h.out); err != nil {
		return 0, err
	}
	return int64(len(h.out) + len(body)), p.put(packed)
}

// parquetType is the physical type of the column, and its logical type.
func (c *Column[T]) parquetType() (kind int64, logical func(*compactWriter)) {
	switch {
	case c.Count != nil:
		return parquetInt64, func(w *compactWriter) {
			w.integer(6, compactInt32, parquetUint64)
			w.begin(10)
			w.begin(10) // INTEGER: bits, signed
			w.octet(1, 64)
			w.flag(2, false)
			w.end()
			w.end()
		}
	case c.Time != nil:
		return parquetInt64, func(w *compactWriter) {
			w.begin(10)
			w.begin(8) // TIMESTAMP: in UTC, unit
			w.flag(1, true)
			w.begin(2)
			w.begin(3) // NANOS
			w.end()
			w.end()
			w.end()
			w.end()
		}
	case c.Real != nil:
		return parquetDouble, func(*compactWriter) {}
	case c.Flag != nil:
		return parquetBool, func(*compactWriter) {}
	}
	return parquetBytes, func(w *compactWriter) {
		w.integer(6, compactInt32, parquetUTF8)
		w.begin(10)
		w.begin(1) // STRING
		w.end()
		w.end()
	}
}

// Close implements Writer.
func (p *parquetWriter[T]) Close(notes map[string]string) error {
	if err := p.flush(); err != nil {
		return err
	}
	var f compactWriter
	f.open()
	f.integer(1, compactInt32, 2) // version of the format
	f.list(2, compactStruct, len(p.columns)+1)
	f.open()
	f.text(4, "table")
	f.integer(5, compactInt32, int64(len(p.columns)))
	f.end()
	for i := range p.columns {
		p.columns[i].describe(&f)
	}
	f.integer(3, compactInt64, p.total)
	f.list(4, compactStruct, p.count)
	f.out = append(f.out, p.groups.out...)
	f.list(5, compactStruct, len(notes))
	for _, key := range slices.Sorted(maps.Keys(notes)) {
		f.open()
		f.text(1, key)
		f.text(2, notes[key])
		f.end()
	}
	f.text(6, "csigscope")
	f.list(7, compactStruct, len(p.columns))
	for range p.columns {
		f.open()
		f.begin(1) // TYPE_ORDER: min and max are by the type's own order
		f.end()
		f.end()
	}
	f.end()
	f.out = binary.LittleEndian.AppendUint32(f.out, uint32(len(f.out)))
	return p.put(append(f.out, parquetMagic...))
}

// describe writes the column's SchemaElement.
func (c *parquetColumn[T]) describe(w *compactWriter) {
	kind, logical := c.parquetType()
	repetition := int64(parquetRequired)
	if c.optional() {
		repetition = parquetOptional
	}
	w.open()
	w.integer(1, compactInt32, kind)
	w.integer(3, compactInt32, repetition)
	w.text(4, c.Name)
	logical(w)
	w.end()
}

// appendHybrid appends values of width bits as runs of one value, or of eight packed ones each
// (Parquet Encodings, "Run Length Encoding / Bit-Packing Hybrid").
func appendHybrid[V byte | uint32](out []byte, values []V, width int) []byte {
	for i := 0; i < len(values); {
		n := i + 1
		for n < len(values) && values[n] == values[i] {
			n++
		}
		if n-i >= 8 || n == len(values) {
			out = binary.AppendUvarint(out, uint64(n-i)<<1)
			for b := 0; b < width; b += 8 {
				out = append(out, byte(uint64(values[i])>>b))
			}
			i = n
			continue
		}
		first := i
		for i < len(values) && !repeats(values[i:]) {
			i += 8
		}
		out = appendPacked(out, values[first:min(i, len(values))], width)
	}
	return out
}

// repeats reports whether the first eight values are equal.
func repeats[V byte | uint32](values []V) bool {
	return len(values) >= 8 && slices.Equal(values[1:8], values[:7])
}

// appendPacked appends a run of packed values, the lowest bit first, padded with zeros to a
// multiple of eight values.
func appendPacked[V byte | uint32](out []byte, values []V, width int) []byte {
	groups := (len(values) + 7) / 8
	out = binary.AppendUvarint(out, uint64(groups)<<1|1)
	end := len(out) + groups*width
	var word uint64
	var held int
	for _, v := range values {
		word |= uint64(v) << held
		for held += width; held >= 8; held -= 8 {
			out = append(out, byte(word))
			word >>= 8
		}
	}
	if held > 0 {
		out = append(out, byte(word))
	}
	return append(out, make([]byte, end-len(out))...)
}
