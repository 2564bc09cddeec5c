package capture

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

func TestClock(t *testing.T) {
	tests := []struct {
		name      string
		resol     byte
		offset    int64
		ticks     uint64
		want      int64
		saturated bool
	}{
		{"seconds", 0, 0, 1700000000, 1700000000e9, false},
		{"milliseconds", 3, 0, 1, 1e6, false},
		{"microseconds", 6, 0, 1700000000000001, 1700000000000001000, false},
		{"nanoseconds", 9, 0, math.MaxInt64, math.MaxInt64, false},
		{"picoseconds", 12, 0, 1999, 1, false},
		{"10^-28", 28, 0, math.MaxUint64, 1, false},
		{"10^-127", 127, 0, math.MaxUint64, 0, false},
		{"2^0", 0x80, 0, 3, 3e9, false},
		{"2^-10", 0x80 | 10, 0, 1 << 10, 1e9, false},
		{"2^-32", 0x80 | 32, 0, 1700000000<<32 | 1<<31, 1700000000500000000, false},
		{"2^-64", 0x80 | 64, 0, 1 << 63, 5e8, false},
		{"2^-65", 0x80 | 65, 0, 1 << 63, 25e7, false},
		{"2^-127", 0x80 | 127, 0, math.MaxUint64, 0, false},
		{"offset", 6, 100, 5, 100e9 + 5000, false},
		{"negative offset", 9, -3, 1e9, -2e9, false},
		{"offset takes back an overflow", 0, -9e9, 18e9, 9e18, false},
		{"overflow", 0, 0, math.MaxUint64, math.MaxInt64, true},
		{"overflow by one", 9, 0, 1 << 63, math.MaxInt64, true},
		{"offset overflow", 9, math.MaxInt64, 0, math.MaxInt64, true},
		{"offset underflow", 9, math.MinInt64, math.MaxUint64, math.MinInt64, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newClock(tt.resol, tt.offset)
			got, saturated := c.nanos(tt.ticks)
			if got != tt.want || saturated != tt.saturated {
				t.Errorf("%d, %v, want %d, %v", got, saturated, tt.want, tt.saturated)
			}
		})
	}
}

// TestClockAgainstBig compares with arbitrary precision.
func TestClockAgainstBig(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		resol := byte(rng.Uint32())
		offset := int64(rng.Uint64()) >> rng.UintN(64)
		ticks := rng.Uint64() >> rng.UintN(64)
		per := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(resol&0x7f)), nil)
		if resol&0x80 != 0 {
			per.Lsh(big.NewInt(1), uint(resol&0x7f))
		}
		want := new(big.Int).Mul(new(big.Int).SetUint64(ticks), big.NewInt(1e9))
		want.Quo(want, per)
		want.Add(want, new(big.Int).Mul(big.NewInt(offset), big.NewInt(1e9)))
		saturated := !want.IsInt64()
		ns := want.Int64()
		if saturated {
			ns = math.MaxInt64
			if want.Sign() < 0 {
				ns = math.MinInt64
			}
		}
		c := newClock(resol, offset)
		if got, sat := c.nanos(ticks); got != ns || sat != saturated {
			t.Fatalf("resolution %#x, offset %d, ticks %d: %d, %v, want %d, %v", resol, offset, ticks, got, sat, ns, saturated)
		}
	}
}

func TestSaturatedTimesAreCounted(t *testing.T) {
	n := (&ngBytes{}).section(binary.LittleEndian).iface(1, 0).
		enhanced(0, math.MaxUint64, 1, []byte{1}).enhanced(0, 1, 1, []byte{1})
	r, err := NewReader(bytes.NewReader(n.buf), "x", Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := mustDrain(t, r)
	if len(got) != 2 || got[0].TimeNS != math.MaxInt64 || got[1].TimeNS != 1000 {
		t.Errorf("packets %+v", got)
	}
	if c := r.Counters(); c.SaturatedTimes != 1 {
		t.Errorf("Counters %+v, want one saturated time", c)
	}
}
