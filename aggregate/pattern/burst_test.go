package pattern

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// measured counts draws in 32 buckets, like compact tags.
func measured(rng *rand.Rand, n int, draw func() float64) []Count {
	const buckets = 32
	var times [buckets]uint64
	for range n {
		times[min(int(max(draw(), 0)*buckets), buckets-1)]++
	}
	var list []Count
	for i, n := range times {
		if n > 0 {
			list = append(list, Count{(float64(i) + 0.5) / buckets, n})
		}
	}
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// TestDescribe: loads with the same mean and different distributions are distinguished.
func TestDescribe(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		duty := 0.1 + 0.8*rng.Float64()
		for name, one := range map[string]struct {
			draw func() float64
			want Load
		}{
			"steady": {func() float64 { return duty + 0.05*rng.NormFloat64() }, Steady},
			"bursts": {func() float64 {
				if rng.Float64() < duty {
					return 0.9 + 0.05*rng.NormFloat64()
				}
				return 0.1 + 0.05*rng.NormFloat64()
			}, Bursty},
			"anything": {rng.Float64, Unclear},
			"wide":     {func() float64 { return 0.5 + 0.15*rng.NormFloat64() }, Unclear},
		} {
			w, err := Describe(measured(rng, 300, one.draw))
			if err != nil || w.Load != one.want {
				t.Errorf("seed %d: %s is %d: %+v, %v", seed, name, w.Load, w, err)
			}
			if one.want == Bursty && (math.Abs(w.Duty-duty) > 0.1 || math.Abs(w.High-0.9) > 0.05 || math.Abs(w.Low-0.1) > 0.05) {
				t.Errorf("seed %d: %+v, want %.2f of the time", seed, w, duty)
			}
		}
	}
}

// TestDescribeTurned: available bandwidth instead of used bandwidth mirrors the result.
func TestDescribeTurned(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		list := measured(rng, 100, func() float64 { return rng.Float64() * rng.Float64() })
		turned := slices.Clone(list)
		for i := range turned {
			turned[i].Value = 1 - turned[i].Value
		}
		a, err := Describe(list)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Describe(turned)
		if err != nil {
			t.Fatal(err)
		}
		if a.Load != b.Load || math.Abs(a.Apart-b.Apart) > 1e-9 || math.Abs(a.Low+b.High-1) > 1e-9 || math.Abs(a.Duty+b.Duty-1) > 1e-9 {
			t.Errorf("seed %d: %+v and %+v", seed, a, b)
		}
	}
}

func TestDescribeLittle(t *testing.T) {
	for name, one := range map[string]struct {
		list []Count
		want Load
	}{
		"nothing":          {nil, Unclear},
		"too few":          {[]Count{{0, 9}, {1, 10}}, Unclear},
		"one value":        {[]Count{{0.5, 20}}, Steady},
		"one value in two": {[]Count{{0.5, 10}, {0.5, 10}}, Steady},
		"two values":       {[]Count{{0, 10}, {1, 10}}, Bursty},
		"an outlier":       {[]Count{{0, 1}, {1, 99}}, Steady},
		"never counted":    {[]Count{{0, 0}, {0.5, 20}, {1, 0}}, Steady},
	} {
		if w, err := Describe(one.list); err != nil || w.Load != one.want {
			t.Errorf("%s is %d: %+v, %v", name, w.Load, w, err)
		}
	}
	for _, v := range []float64{-0.1, 1.1, math.NaN(), math.Inf(1)} {
		if _, err := Describe([]Count{{v, 20}}); !errors.Is(err, ErrValue) {
			t.Errorf("%g: %v", v, err)
		}
	}
}
