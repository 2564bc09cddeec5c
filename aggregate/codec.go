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

// stateReader takes encoded values off a slice. It never reads beyond it: after the
// first value that is not there all others are 0, and ok is false.
type stateReader struct {
	b   []byte
	bad bool
}

func (r *stateReader) ok() bool { return !r.bad }

func (r *stateReader) fail() {
	r.b, r.bad = nil, true
}

// check fails the reader unless the condition holds.
func (r *stateReader) check(condition bool) {
	if !condition {
		r.fail()
	}
}

func (r *stateReader) take(n int) []byte {
	if n > len(r.b) {
		r.fail()
		return make([]byte, min(n, 8)) // of fixed-size values, which are at most that long
	}
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}

func (r *stateReader) u8() uint8   { return r.take(1)[0] }
func (r *stateReader) u16() uint16 { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *stateReader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *stateReader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

func (r *stateReader) flag() bool {
	v := r.u8()
	r.check(v <= 1)
	return v == 1
}

func (r *stateReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *stateReader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// upTo is a number of at most limit.
func (r *stateReader) upTo(limit uint64) uint64 {
	v := r.uvarint()
	if v > limit {
		r.fail()
		return 0
	}
	return v
}

// time is Unix ns, not negative.
func (r *stateReader) time() int64 { return int64(r.upTo(math.MaxInt64)) }

// count is a number of things that take at least size bytes each, so that what is made
// room for is bounded by what is there.
func (r *stateReader) count(size int) int { return int(r.upTo(uint64(len(r.b) / size))) }

// copy fills p.
func (r *stateReader) copy(p []byte) {
	if len(p) > len(r.b) {
		r.fail()
		return
	}
	r.b = r.b[copy(p, r.b):]
}

// end is the error of a state of what, which has to end here.
func (r *stateReader) end(what string) error {
	if r.bad || len(r.b) > 0 {
		return fmt.Errorf("restore %s: damaged: %w", what, ErrState)
	}
	return nil
}

func appendFlag(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}
