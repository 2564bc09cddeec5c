package aggregate

import (
	"math"
	"math/bits"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// CellKey names a cell of one signal, seen in one kind of observations.
type CellKey struct {
	Signal   csig.Signal
	Kind     decode.Kind
	Src, Dst GroupID
}

// ID is the cell without its signal.
func (k CellKey) ID() CellID { return CellID{k.Src, k.Dst, k.Kind} }

// Sums is what a row counts: observations, and the sums and extremes of their values in
// stored units. Min and Max are 0 while Measured, the number of values, is. Merging is
// associative and commutative; totals saturate.
type Sums struct {
	Observations, Bytes, Measured, Sum, Min, Max uint64
	Untouched, Trimmed, Heavy, HeavySum          uint64
}

// AddValues adds n values that lie between lo and hi and come to sum.
func (s *Sums) AddValues(n, lo, hi, sum uint64) {
	if s.Measured == 0 || lo < s.Min {
		s.Min = lo
	}
	s.Max = max(s.Max, hi)
	s.Measured = AddSat(s.Measured, n)
	s.Sum = AddSat(s.Sum, sum)
}

// Merge adds what another row counted.
func (s *Sums) Merge(o *Sums) {
	if o.Measured > 0 {
		s.AddValues(o.Measured, o.Min, o.Max, o.Sum)
	}
	s.Observations = AddSat(s.Observations, o.Observations)
	s.Bytes = AddSat(s.Bytes, o.Bytes)
	s.Untouched = AddSat(s.Untouched, o.Untouched)
	s.Trimmed = AddSat(s.Trimmed, o.Trimmed)
	s.Heavy = AddSat(s.Heavy, o.Heavy)
	s.HeavySum = AddSat(s.HeavySum, o.HeavySum)
}

// Fields are all of them, in the order of encodings.
func (s *Sums) Fields() [10]*uint64 {
	return [...]*uint64{
		&s.Observations, &s.Bytes, &s.Measured, &s.Sum, &s.Min, &s.Max, &s.Untouched, &s.Trimmed, &s.Heavy, &s.HeavySum,
	}
}

// AddSat adds. What does not fit 64 bits stays at the largest value instead of wrapping,
// in whatever order totals are merged.
func AddSat(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// MulSat multiplies, and saturates as AddSat does.
func MulSat(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi != 0 {
		return math.MaxUint64
	}
	return lo
}
