package aggregate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrState is wrapped by the error for bytes that are no state of this program, or one
// of something else: of another tap, of other settings or of another version.
var ErrState = errors.New("not a state that can be restored")

// StateReader takes encoded values off a slice. It never reads beyond it: after the
// first value that is not there all others are 0, and Ok is false.
type StateReader struct {
	b   []byte
	bad bool
}

// NewStateReader reads b, which it keeps.
func NewStateReader(b []byte) *StateReader { return &StateReader{b: b} }

// Ok says that all values so far were there, and sound.
func (r *StateReader) Ok() bool { return !r.bad }

// Fail makes all further values 0.
func (r *StateReader) Fail() {
	r.b, r.bad = nil, true
}

// Check fails the reader unless the condition holds.
func (r *StateReader) Check(condition bool) {
	if !condition {
		r.Fail()
	}
}

// Take takes n bytes, which lie in what is read.
func (r *StateReader) Take(n int) []byte {
	if n > len(r.b) {
		r.Fail()
		return make([]byte, min(n, 8)) // of fixed-size values, which are at most that long
	}
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}

// U8 takes one byte.
func (r *StateReader) U8() uint8 { return r.Take(1)[0] }

// U16 takes two bytes, little-endian.
func (r *StateReader) U16() uint16 { return binary.LittleEndian.Uint16(r.Take(2)) }

// U32 takes four bytes, little-endian.
func (r *StateReader) U32() uint32 { return binary.LittleEndian.Uint32(r.Take(4)) }

// U64 takes eight bytes, little-endian.
func (r *StateReader) U64() uint64 { return binary.LittleEndian.Uint64(r.Take(8)) }

// Flag takes what AppendFlag appended.
func (r *StateReader) Flag() bool {
	v := r.U8()
	r.Check(v <= 1)
	return v == 1
}

// Uvarint takes a number as encoding/binary writes it.
func (r *StateReader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.Fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Varint takes a signed number as encoding/binary writes it.
func (r *StateReader) Varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.Fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// UpTo is a number of at most limit.
func (r *StateReader) UpTo(limit uint64) uint64 {
	v := r.Uvarint()
	if v > limit {
		r.Fail()
		return 0
	}
	return v
}

// Time is Unix ns, not negative.
func (r *StateReader) Time() int64 { return int64(r.UpTo(math.MaxInt64)) }

// Count is a number of things that take at least size bytes each, so that what is made
// room for is bounded by what is there.
func (r *StateReader) Count(size int) int { return int(r.UpTo(uint64(len(r.b) / size))) }

// Copy fills p.
func (r *StateReader) Copy(p []byte) {
	if len(p) > len(r.b) {
		r.Fail()
		return
	}
	r.b = r.b[copy(p, r.b):]
}

// End is the error of a state of what, which has to end here.
func (r *StateReader) End(what string) error {
	if r.bad || len(r.b) > 0 {
		return fmt.Errorf("restore %s: damaged: %w", what, ErrState)
	}
	return nil
}

// AppendFlag appends a byte of 0 or 1.
func AppendFlag(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}
