// Package exact computes with integers, so that the same scenario gives the same bytes on every
// machine: seeded random numbers, products without overflow, and times in picoseconds. It must
// never know what the numbers stand for.
package exact

import (
	"math/bits"
	"time"
)

// Random is the splitmix64 generator: one word of state, so that every flow owns
// one and the numbers that a flow draws do not depend on other flows.
type Random uint64

// Next is a number of 64 bits.
func (r *Random) Next() uint64 {
	*r += 0x9e3779b97f4a7c15
	return Mix(uint64(*r))
}

// Below is a number in [0, n).
func (r *Random) Below(n uint64) uint64 {
	high, _ := bits.Mul64(r.Next(), n)
	return high
}

// Mix spreads the bits of a number over all 64.
func Mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Stream derives an independent generator from a seed and a list of numbers.
func Stream(seed uint64, numbers ...uint64) Random {
	h := Mix(seed + 0x9e3779b97f4a7c15)
	for _, n := range numbers {
		h = Mix(h ^ Mix(n+0x9e3779b97f4a7c15))
	}
	return Random(h)
}

// MulDiv is a*b/c without overflow; the result must fit.
func MulDiv(a, b, c uint64) uint64 {
	high, low := bits.Mul64(a, b)
	quotient, _ := bits.Div64(high, low, c)
	return quotient
}

// Serialization is how long a link of kbps is busy with so many bytes, in
// picoseconds, rounded up so that no link ever carries more than its speed.
func Serialization(bytes uint32, kbps uint64) int64 {
	return int64((uint64(bytes)*8e9 + kbps - 1) / kbps)
}

// Picoseconds is a time in the unit of the simulation.
func Picoseconds(d time.Duration) int64 { return d.Nanoseconds() * 1000 }
