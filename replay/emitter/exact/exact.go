// Package exact computes with integers, so that equal scenarios give equal bytes on every machine.
// It knows seeded random numbers, products without overflow, and times in picoseconds. It must
// never know what the numbers mean.
package exact

import (
	"math/bits"
	"time"
)

// Random is the splitmix64 generator. Its state is one word, so each flow owns one and draws
// numbers independently of all other flows.
type Random uint64

// Next returns 64 random bits.
func (r *Random) Next() uint64 {
	*r += 0x9e3779b97f4a7c15
	return Mix(uint64(*r))
}

// Below returns a number in [0, n).
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

// Derive derives an independent generator from a seed and a list of numbers.
func Derive(seed uint64, numbers ...uint64) Random {
	h := Mix(seed + 0x9e3779b97f4a7c15)
	for _, n := range numbers {
		h = Mix(h ^ Mix(n+0x9e3779b97f4a7c15))
	}
	return Random(h)
}

// MulDiv returns a*b/c without overflow in the product. The result must fit 64 bits.
func MulDiv(a, b, c uint64) uint64 {
	high, low := bits.Mul64(a, b)
	quotient, _ := bits.Div64(high, low, c)
	return quotient
}

// Serialization returns how long a link of kbps is busy with the given bytes, in picoseconds. It
// rounds up, so no link ever exceeds its speed.
func Serialization(bytes uint32, kbps uint64) int64 {
	return int64((uint64(bytes)*8e9 + kbps - 1) / kbps)
}

// Picoseconds converts a duration to the simulation's time unit.
func Picoseconds(d time.Duration) int64 { return d.Nanoseconds() * 1000 }
