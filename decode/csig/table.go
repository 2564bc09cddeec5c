package csig

import (
	"math/bits"
	"sort"
)

// Table is the quantization of one signal in one layout (sections 4.1.3 and 5.3.3, Appendix A; IETF
// 124 slides, "Quantization Algorithm"). It turns the raw signal field S into a code, and a code
// into a range of values. Codes ascend with values. Values are stored integers: kbit/s, parts per
// million, nanoseconds, plain numbers.
//
// Never read severity from raw S: on some switches S is two constant bits and a 3-bit bucket, so a
// table has a mask, a shift and fixed bits.
//
// A Table is immutable and safe for concurrent use. Spec.Compile makes Tables.
type Table struct {
	layout  Layout
	signal  Signal
	mask    uint32 // bits of S that hold the code
	shift   uint8  // position of the code's lowest bit
	fixed   uint32 // bits of S that switches set to a constant
	initial uint32 // raw S that senders write

	// Explicit buckets: bounds[i] is the lower bound of code i; upper is the end
	// of the last one, 0 when it is open-ended. Empty for linear tables.
	bounds []uint64
	upper  uint64

	// Linear tables: code i covers [base+i*step, base+(i+1)*step).
	base, step uint64

	most uint64 // largest value: the unit's Max

	heavy      uint64 // absolute threshold in stored units
	heavyRatio uint64 // min_abw only: threshold in ppm of the port's capacity
	interval   uint64 // averaging interval of the switches, ns; 0 unknown
}

// Layout returns the tag layout that the table belongs to.
func (t *Table) Layout() Layout { return t.layout }

// Signal returns the signal that the table quantizes, a ConfiguredSignal for a type that the
// profile does not define.
func (t *Table) Signal() Signal { return t.signal }

// Unit returns the unit of the table's values.
func (t *Table) Unit() Unit { return t.signal.Unit() }

// Aggregation returns how hops combine the table's signal.
func (t *Table) Aggregation() Aggregation { return t.signal.Aggregation() }

// Initial returns the raw S that senders write: all ones for min signals and 0 for all others
// unless configured (IEEE slides, "Init Value").
func (t *Table) Initial() uint32 { return t.initial }

// IntervalNS returns the averaging interval delta_t of the switches in nanoseconds (section 5.1.1),
// or 0 when it is not configured.
func (t *Table) IntervalNS() uint64 { return t.interval }

// Codes returns the number of codes; valid codes are below it.
func (t *Table) Codes() uint32 {
	if t.bounds != nil {
		return uint32(len(t.bounds))
	}
	return t.mask>>t.shift + 1
}

// Code extracts the code from a raw S. A code beyond the table's last bucket counts as the last: a
// 5-bit field with fewer than 32 buckets can carry one.
func (t *Table) Code(s uint32) uint32 {
	c := s & t.mask >> t.shift
	if last := t.Codes() - 1; c > last {
		return last
	}
	return c
}

// Field returns the position of the code in a raw S: Code is S&mask>>shift, at most the last code.
func (t *Table) Field() (mask uint32, shift uint8) { return t.mask, t.shift }

// Untouched reports whether raw S is the initial value. Then no hop replaced the tag, and it names
// no location, whatever LM says.
func (t *Table) Untouched(s uint32) bool { return s == t.initial }

// Quantize returns the code of a value in stored integers, clamped to the table.
func (t *Table) Quantize(v uint64) uint32 {
	if t.bounds != nil {
		i := sort.Search(len(t.bounds), func(i int) bool { return t.bounds[i] > v })
		return uint32(max(i-1, 0))
	}
	if v < t.base {
		return 0
	}
	return uint32(min((v-t.base)/t.step, uint64(t.mask>>t.shift)))
}

// Raw returns the signal field S that a switch writes for a code.
func (t *Table) Raw(code uint32) uint32 { return code<<t.shift&t.mask | t.fixed }

// Range returns the half-open range [low, high) of stored integers that a code covers. Both ends
// are at most the unit's Max. An open-ended range (the last code of most tables) has high == 0 and
// open true. The code must be below Codes.
func (t *Table) Range(code uint32) (low, high uint64, open bool) {
	if t.bounds == nil {
		low = t.base + uint64(code)*t.step
		if code == t.mask>>t.shift {
			return min(low, t.most), 0, true
		}
		return min(low, t.most), min(low+t.step, t.most), false
	}
	low, high = t.bounds[code], t.upper
	if int(code) < len(t.bounds)-1 {
		high = t.bounds[code+1]
	}
	return min(low, t.most), min(high, t.most), high == 0
}

// Value returns the value that a code contributes to sums: the midpoint of its range, or the finite
// bound of an open-ended one.
func (t *Table) Value(code uint32) uint64 {
	low, high, open := t.Range(code)
	if open {
		return low
	}
	return low + (high-low)/2
}

// HeavyCodes returns the inclusive range [lo, hi] of heavy codes: their whole bucket is at
// or beyond the threshold. capacity is the speed of the bottleneck port in kbit/s, 0 if unknown;
// only min_abw with a relative threshold needs it. ok is false when no code is heavy, or when the
// capacity is needed and unknown.
func (t *Table) HeavyCodes(capacity uint64) (lo, hi uint32, ok bool) {
	threshold := t.heavy
	if t.heavyRatio > 0 {
		if capacity == 0 {
			return 0, 0, false
		}
		// heavyRatio is at most 1e6, so the quotient fits.
		hi, lo := bits.Mul64(capacity, t.heavyRatio)
		threshold, _ = bits.Div64(hi, lo, 1e6)
	}
	n := int(t.Codes())
	if t.signal.Direction() == Max {
		first := sort.Search(n, func(i int) bool {
			low, _, _ := t.Range(uint32(i))
			return low >= threshold
		})
		return uint32(first), uint32(n - 1), first < n && threshold > 0
	}
	past := sort.Search(n, func(i int) bool {
		_, high, open := t.Range(uint32(i))
		return open || high > threshold
	})
	return 0, uint32(past - 1), past > 0
}

// Each code below distExact has a distribution bucket of its own; above, each octave has
// distExact/2 buckets.
const (
	distExactBits = 7
	distExact     = 1 << distExactBits
)

// DistIndexes bounds DistIndex, 960: 128 exact buckets and 64 for each of the 13
// octaves of a 20-bit code above them.
const DistIndexes = (20-distExactBits)*distExact/2 + distExact

// DistIndex returns the distribution bucket of a code: the code itself below 128 (so that compact
// distributions are exact), and 64 log-linear buckets for each octave above. A bucket's midpoint is
// within 0.8 % of every code in it, and so of every value, since values are an offset plus a
// multiple of the code.
func DistIndex(code uint32) uint16 {
	e := max(bits.Len32(code), distExactBits) - distExactBits
	return uint16(e*distExact/2 + int(code>>e))
}

// DistCodes returns the inclusive range of codes that a distribution bucket holds.
func DistCodes(index uint16) (first, last uint32) {
	i := uint32(index)
	if i < distExact {
		return i, i
	}
	e := (i - distExact/2) / (distExact / 2)
	m := i - e*distExact/2
	return m << e, (m+1)<<e - 1
}
