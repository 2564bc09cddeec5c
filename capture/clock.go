package capture

import (
	"math"
	"math/bits"
)

// clock turns the ticks of one pcapng interface into Unix ns without rounding
// twice: ns = (ticks * mul >> shift) / div + offset.
type clock struct {
	mul      uint64
	div      uint64
	shift    uint  // 0 to 127
	offset   int64 // if_tsoffset, seconds
	straight bool  // only mul matters: the resolutions in use
}

// newClock builds the clock of an if_tsresol byte (draft-ietf-opsawg-pcapng
// section 4.2): the top bit selects powers of 2 over powers of 10.
func newClock(resol byte, offset int64) clock {
	c := clock{mul: 1e9, div: 1, offset: offset}
	exp := uint(resol & 0x7f)
	switch {
	case resol&0x80 != 0:
		c.shift = exp
	case exp <= 9:
		c.mul = power10(9 - exp)
	case exp-9 <= 19:
		c.mul, c.div = 1, power10(exp-9)
	default: // no count of 64 bits reaches one ns
		c.mul = 0
	}
	c.straight = c.shift == 0 && c.div == 1 && offset == 0
	return c
}

func power10(n uint) uint64 {
	p := uint64(1)
	for ; n > 0; n-- {
		p *= 10
	}
	return p
}

// nanosPerTick describes the resolution; times are not computed from it.
func (c clock) nanosPerTick() float64 {
	return math.Ldexp(float64(c.mul)/float64(c.div), -int(c.shift))
}

// nanos converts ticks. It reports true where the result had to be saturated.
func (c *clock) nanos(ticks uint64) (int64, bool) {
	hi, lo := bits.Mul64(ticks, c.mul)
	if c.straight && hi == 0 && lo <= math.MaxInt64 {
		return int64(lo), false
	}
	return c.reduce(hi, lo)
}

// reduce finishes the conversion of the 128-bit product hi:lo.
func (c *clock) reduce(hi, lo uint64) (int64, bool) {
	// In Go a shift by 64 or more yields 0, which is what is meant here.
	lo = lo>>c.shift | hi<<(64-c.shift)
	if c.shift >= 64 {
		lo = hi >> (c.shift - 64)
	}
	hi >>= c.shift
	if c.div > 1 { // then mul is 1 and hi is 0
		lo /= c.div
	}
	return addSeconds(hi, lo, c.offset)
}

// addSeconds returns hi:lo ns plus s seconds, saturated at the range of int64.
func addSeconds(hi, lo uint64, s int64) (int64, bool) {
	abs := uint64(s)
	if s < 0 {
		abs = -abs
	}
	oh, ol := bits.Mul64(abs, 1e9)
	if s < 0 {
		var borrow uint64
		lo, borrow = bits.Sub64(lo, ol, 0)
		hi, _ = bits.Sub64(hi, oh, borrow)
	} else {
		var carry uint64
		lo, carry = bits.Add64(lo, ol, 0)
		hi, _ = bits.Add64(hi, oh, carry)
	}
	// hi:lo is below 2^94 in magnitude, so its sign bit is sound.
	switch {
	case int64(hi) < 0 && (hi != math.MaxUint64 || int64(lo) >= 0):
		return math.MinInt64, true
	case int64(hi) >= 0 && (hi != 0 || int64(lo) < 0):
		return math.MaxInt64, true
	}
	return int64(lo), false
}
