package csig

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxQuantity keeps every configured quantity exactly representable as a float64.
const maxQuantity = 1 << 53

type suffix struct {
	text  string
	scale float64
}

// Longer suffixes come first: "Gbit/s" also ends in "bit/s".
var quantitySuffixes = map[Unit][]suffix{
	BitPerSecond: {
		{"Tbit/s", 1e9},
		{"Gbit/s", 1e6},
		{"Mbit/s", 1e3},
		{"kbit/s", 1},
		{"bit/s", 1e-3},
		{"Tbps", 1e9},
		{"Gbps", 1e6},
		{"Mbps", 1e3},
		{"kbps", 1},
		{"bps", 1e-3},
		{"TB/s", 8e9}, // bytes, the unit of SAI counters
		{"GB/s", 8e6},
		{"MB/s", 8e3},
		{"kB/s", 8},
	},
	Ratio:      {{"ppm", 1}, {"%", 1e4}, {"", 1e6}},
	Nanosecond: {{"ns", 1}, {"us", 1e3}, {"µs", 1e3}, {"ms", 1e6}, {"s", 1e9}},
	Count:      {{"", 1}},
}

// ParseQuantity reads a quantity of the unit, such as "100Gbps", "12.5GB/s" (bytes),
// "20%", "0.2" or "128ns", and returns it in the unit's stored integers (kbit/s, parts per
// million, nanoseconds, plain numbers), rounded to the nearest. The result is below 2^53.
func ParseQuantity(u Unit, s string) (uint64, error) {
	text := strings.ReplaceAll(strings.TrimSpace(s), " ", "")
	for _, x := range quantitySuffixes[u] {
		number, ok := strings.CutSuffix(text, x.text)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(number, 64)
		if err != nil {
			break
		}
		v = math.Round(v * x.scale)
		if math.IsNaN(v) || v < 0 || v >= maxQuantity {
			return 0, fmt.Errorf("parse quantity %q: out of range", s)
		}
		return uint64(v), nil
	}
	return 0, fmt.Errorf("parse quantity %q: expected %s", s, quantityExample(u))
}

func quantityExample(u Unit) string {
	switch u {
	case BitPerSecond:
		return "a rate such as 100Gbps or 8Mbit/s"
	case Ratio:
		return "a share such as 20% or 0.2"
	case Nanosecond:
		return "a duration such as 128ns or 20us"
	case Count:
		return "a number such as 3"
	}
	return "no quantity: the signal type has no unit"
}

// FormatQuantity returns a stored integer as text for people: "99.5 Gbit/s", "12.5 %", "18 us".
func FormatQuantity(u Unit, stored float64) string {
	switch u {
	case BitPerSecond:
		return scaled(stored*1e3, 1e3, " bit/s", " kbit/s", " Mbit/s", " Gbit/s", " Tbit/s")
	case Ratio:
		return strconv.FormatFloat(stored/1e4, 'f', 1, 64) + " %"
	case Nanosecond:
		return scaled(stored, 1e3, " ns", " us", " ms", " s")
	}
	return strconv.FormatFloat(stored, 'g', 4, 64)
}

func scaled(v, base float64, units ...string) string {
	i := 0
	for v >= base && i < len(units)-1 {
		v /= base
		i++
	}
	return strconv.FormatFloat(v, 'g', 4, 64) + units[i]
}
