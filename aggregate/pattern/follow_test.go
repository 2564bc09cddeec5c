package pattern

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// shifted is a job's series, and the same with noise of its own, later by some windows.
func shifted(rng *rand.Rand, n int, period, by float64) (a, b []float64) {
	wave := func(i int, late float64) float64 {
		at := math.Mod(float64(i)-late+100*period, period)
		return max(min(at, 0.4*period-at)+0.5, 0) + 0.3*period/10*rng.ExpFloat64()
	}
	return fill(n, func(i int) float64 { return wave(i, 0) }), fill(n, func(i int) float64 { return wave(i, by) })
}

// TestFollow: lags either way are found within a fiftieth of the period, and exchanging
// the two turns the sign.
func TestFollow(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		period := 20 + 300*rng.Float64()
		by := (rng.Float64() - 0.5) * 0.9 * period
		a, b := shifted(rng, 6000, period, by)
		l, err := Follow(a, b, period)
		if err != nil || l == nil {
			t.Fatalf("seed %d: %v, %v", seed, l, err)
		}
		if math.Abs(l.Windows-by) > period/50 {
			t.Errorf("seed %d: lag %.1f, want %.1f of %.1f", seed, l.Windows, by, period)
		}
		back, err := Follow(b, a, period)
		if err != nil || back == nil || math.Abs(back.Windows+l.Windows) > 1e-6 {
			t.Errorf("seed %d: exchanged %v, %v, want %.1f", seed, back, err, -l.Windows)
		}
	}
}

// TestFollowNothing: of 100 pairs of series with nothing in common at most one has a lag.
func TestFollowNothing(t *testing.T) {
	for name, make := range map[string]func(rng *rand.Rand, n int) []float64{"white": aperiodic["white"], "on and off": aperiodic["short on and off"]} {
		found := 0
		for seed := range uint64(100) {
			rng := rand.New(rand.NewPCG(seed, 2))
			l, err := Follow(make(rng, 4000), make(rng, 4000), 100)
			if err != nil {
				t.Fatal(err)
			}
			if l != nil {
				found++
			}
		}
		if found > 1 {
			t.Errorf("%s: %d of 100 have a lag", name, found)
		}
	}
	if _, err := Follow(make([]float64, 100), make([]float64, 99), 10); !errors.Is(err, ErrLength) {
		t.Errorf("other lengths: %v", err)
	}
	if _, err := Follow(make([]float64, 100), make([]float64, 100), 60); !errors.Is(err, ErrLength) {
		t.Errorf("less than two periods: %v", err)
	}
	if l, err := Follow(make([]float64, 100), make([]float64, 100), 10); l != nil || err != nil {
		t.Errorf("silence: %v, %v", l, err)
	}
}

// workers are cells of one job, all of which begin together; one is late in a share of the
// steps, all by a little of their own.
func workers(rng *rand.Rand, cells, steps int, who int, share, by float64) ([][]float64, *Rhythm) {
	const period, length = 100.0, 40.0
	list := make([][]float64, cells)
	for c := range list {
		list[c] = fill(int(period)*steps, func(int) float64 { return 0.05 * rng.ExpFloat64() })
		for s := range steps {
			end := length + 2*rng.Float64()
			if c == who && rng.Float64() < share {
				end += by
			}
			for i := 10; i < 10+int(end); i++ {
				list[c][s*int(period)+i]++
			}
		}
	}
	return list, &Rhythm{Period: period}
}

// TestEarlyStraggler: who is late is so although another begins a window before the job does as
// a whole, and its next step within this one.
func TestEarlyStraggler(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 9))
		list, r := workers(rng, 4, 40, 2, 1, 15)
		list[0] = append(list[0][1:], 0)
		late, err := Straggler(list, r)
		if err != nil || late == nil || late.Series != 2 || math.Abs(late.By-15) > 3 {
			t.Errorf("seed %d: %+v, %v, want 2 by 15", seed, late, err)
		}
	}
}

func TestStraggler(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 3))
		who := rng.IntN(8)
		list, r := workers(rng, 8, 40, who, 0.9, 15)
		late, err := Straggler(list, r)
		if err != nil || late == nil {
			t.Fatalf("seed %d: %v, %v", seed, late, err)
		}
		if late.Series != who || late.Share < 0.7 || math.Abs(late.By-15) > 3 || late.Steps < 38 {
			t.Errorf("seed %d: %+v, want %d, 0.9 of the steps by 15", seed, *late, who)
		}
	}
}

// TestNoStraggler: where nobody is late, chance makes nobody so.
func TestNoStraggler(t *testing.T) {
	found := 0
	for seed := range uint64(100) {
		list, r := workers(rand.New(rand.NewPCG(seed, 4)), 8, 40, -1, 0, 0)
		late, err := Straggler(list, r)
		if err != nil {
			t.Fatal(err)
		}
		if late != nil {
			found++
		}
	}
	if found > 1 {
		t.Errorf("%d of 100 have a straggler", found)
	}
	list, r := workers(rand.New(rand.NewPCG(1, 5)), 2, 40, 0, 1, 15)
	if late, err := Straggler(list, r); late != nil || err != nil {
		t.Errorf("of two nobody tells who is late: %v, %v", late, err)
	}
	list, r = workers(rand.New(rand.NewPCG(1, 5)), 4, 6, 0, 1, 15)
	if late, err := Straggler(list, r); late != nil || err != nil {
		t.Errorf("of six steps: %v, %v", late, err)
	}
	list[1] = list[1][1:]
	if _, err := Straggler(list, r); !errors.Is(err, ErrLength) {
		t.Errorf("other lengths: %v", err)
	}
}
