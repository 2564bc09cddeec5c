package api

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestAppendNumber: numbers are written as strconv writes them, also at the edges of powers of
// ten and half way between two of six digits.
func TestAppendNumber(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	list := []float64{0, 1e-300, 9.9999e-5, 999999.4999, 999999.5, 999999.9, 0.5, 1.0 / 3, 100000.5, 100001.5, 0.0001234565}
	for _, p := range powers {
		list = append(list, p, math.Nextafter(p, 0), math.Nextafter(p, 1e12), 1.234565*p, 9.999995*p)
	}
	for range 200_000 {
		v := math.Pow(10, -5+11*random.Float64())
		list = append(list, v, float64(random.Uint64N(2_000_000))/1e6, float64(random.IntN(1e6))+0.5)
	}
	var got, want []byte
	for _, v := range list {
		if v >= 1e6 {
			continue // whole numbers
		}
		got, want = appendNumber(got[:0], v), strconv.AppendFloat(want[:0], v, 'g', 6, 64)
		if string(got) != string(want) {
			t.Fatalf("%v is written %s, want %s", v, got, want)
		}
	}
}
