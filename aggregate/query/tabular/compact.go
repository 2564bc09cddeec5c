package tabular

import "encoding/binary"

// Types of fields and elements in Thrift's compact protocol.
const (
	compactTrue   = 1
	compactFalse  = 2
	compactByte   = 3
	compactInt32  = 5
	compactInt64  = 6
	compactBytes  = 8
	compactList   = 9
	compactStruct = 12
)

// compactWriter appends structs in Thrift's compact protocol, the form of Parquet's metadata.
// Fields are written in the order of their numbers, which are at most 15 apart.
type compactWriter struct {
	out  []byte
	last []byte // the number of the last field of each open struct
}

// open begins a struct that is an element of a list, or the whole.
func (w *compactWriter) open() { w.last = append(w.last, 0) }

// begin begins a struct that is field id of another.
func (w *compactWriter) begin(id byte) {
	w.field(id, compactStruct)
	w.open()
}

// end ends the innermost open struct.
func (w *compactWriter) end() {
	w.out = append(w.out, 0)
	w.last = w.last[:len(w.last)-1]
}

func (w *compactWriter) field(id, kind byte) {
	last := &w.last[len(w.last)-1]
	w.out = append(w.out, (id-*last)<<4|kind)
	*last = id
}

// list begins a list of n elements, which follow.
func (w *compactWriter) list(id, kind byte, n int) {
	w.field(id, compactList)
	if n < 15 {
		w.out = append(w.out, byte(n)<<4|kind)
		return
	}
	w.out = binary.AppendUvarint(append(w.out, 15<<4|kind), uint64(n))
}

// integer writes a field of kind compactInt32 or compactInt64.
func (w *compactWriter) integer(id, kind byte, v int64) {
	w.field(id, kind)
	w.varint(v)
}

// varint writes an integer that is an element of a list.
func (w *compactWriter) varint(v int64) { w.out = binary.AppendVarint(w.out, v) }

func (w *compactWriter) octet(id, v byte) {
	w.field(id, compactByte)
	w.out = append(w.out, v)
}

func (w *compactWriter) flag(id byte, v bool) {
	if v {
		w.field(id, compactTrue)
		return
	}
	w.field(id, compactFalse)
}

func (w *compactWriter) text(id byte, v string) {
	w.field(id, compactBytes)
	w.bytes(v)
}

// bytes writes a text that is an element of a list.
func (w *compactWriter) bytes(v string) {
	w.out = append(binary.AppendUvarint(w.out, uint64(len(v))), v...)
}
