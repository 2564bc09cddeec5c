package pattern

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"testing/quick"
)

// job is traffic in steps, in windows.
type job struct {
	windows  int
	period   float64
	duty     float64
	jitter   float64 // share of the period by which each step is late at most
	wander   float64 // share by which each period is longer or shorter at most
	noise    float64 // standard deviation of a busy window's load, which is 1
	rest     float64 // load of others, exponentially distributed
	unknown  float64 // share of windows
	late     float64 // windows by which it ends later
	realized float64 // resulting mean period
}

// series counts the load in each window, also of steps that begin within one.
func (j *job) series(rng *rand.Rand) []float64 {
	values := make([]float64, j.windows)
	var first, last float64
	steps := 0
	for at := -rng.Float64() * j.period; at < float64(j.windows); {
		from := at + rng.Float64()*j.jitter*j.period
		to := from + j.duty*j.period + j.late
		for i := max(int(from), 0); i < min(int(to)+1, j.windows); i++ {
			part := min(to, float64(i+1)) - max(from, float64(i))
			values[i] += max(part, 0) * max(1+rng.NormFloat64()*j.noise, 0)
		}
		if steps == 0 {
			first = at
		}
		last = at
		steps++
		at += j.period * (1 + j.wander*(2*rng.Float64()-1))
	}
	j.realized = (last - first) / float64(steps-1)
	for i := range values {
		values[i] += rng.ExpFloat64() * j.rest
		if rng.Float64() < j.unknown {
			values[i] = math.NaN()
		}
	}
	return values
}

// TestPeriod: periods from 5 ms to 2 s in windows of 1 ms are found within 1 %, with steps that are
// late by up to a tenth of the period or periods that vary by as much.
func TestPeriod(t *testing.T) {
	t.Parallel()
	worst := 0.0
	for _, period := range []float64{5, 7.3, 12.5, 30, 99.9, 250, 640, 1000, 2000} {
		for seed := range uint64(10) {
			rng := rand.New(rand.NewPCG(seed, uint64(period)))
			for _, j := range []job{
				{jitter: 0.1, duty: 0.4, noise: 0.3, rest: 0.1},
				{wander: 0.1, duty: 0.4, noise: 0.3, rest: 0.1},
				{jitter: 0.1, duty: 0.25 + 0.5*rng.Float64(), noise: 0.5, rest: 0.3, unknown: 0.05},
			} {
				j.period, j.windows = period, max(int(30*period), 4000)
				values := j.series(rng)
				r, err := Find(values)
				if err != nil {
					t.Fatal(err)
				}
				if r == nil {
					t.Errorf("seed %d: no period in %+v", seed, j)
					continue
				}
				off := math.Abs(r.Period/j.realized - 1)
				worst = max(worst, off)
				if off > 0.01 {
					t.Errorf("seed %d: %.3f in %+v", seed, r.Period, j)
				}
			}
		}
	}
	t.Logf("off by %.2f %% at most", 100*worst)
}

// aperiodic are kinds of traffic without a period.
var aperiodic = map[string]func(rng *rand.Rand, n int) []float64{
	"white": func(rng *rand.Rand, n int) []float64 {
		return fill(n, func(int) float64 { return rng.ExpFloat64() })
	},
	"short memory":     remembering(0.7),
	"long memory":      remembering(0.99),
	"walk":             remembering(1),
	"on and off":       bursts(func(rng *rand.Rand) float64 { return 20 * rng.ExpFloat64() }),
	"short on and off": bursts(func(rng *rand.Rand) float64 { return 2 * rng.ExpFloat64() }),
	"heavy-tailed":     bursts(func(rng *rand.Rand) float64 { return 3 * math.Pow(1-rng.Float64(), -1/1.3) }),
	"rare": func(rng *rand.Rand, n int) []float64 {
		return fill(n, func(int) float64 {
			if rng.Float64() < 0.01 {
				return rng.ExpFloat64()
			}
			return 0
		})
	},
	"one step": func(rng *rand.Rand, n int) []float64 {
		at := rng.IntN(n)
		return fill(n, func(i int) float64 { return float64(min(i/at, 1)) + 0.1*rng.NormFloat64() })
	},
	"ramp": func(rng *rand.Rand, n int) []float64 {
		return fill(n, func(i int) float64 { return float64(i)/float64(n) + 0.1*rng.NormFloat64() })
	},
}

func fill(n int, f func(i int) float64) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = f(i)
	}
	return values
}

// remembering is noise that partly carries over to the next window.
func remembering(share float64) func(rng *rand.Rand, n int) []float64 {
	return func(rng *rand.Rand, n int) []float64 {
		v := 0.0
		return fill(n, func(int) float64 { v = share*v + rng.NormFloat64(); return v })
	}
}

// bursts alternate between on and off, with lengths from a distribution.
func bursts(length func(rng *rand.Rand) float64) func(rng *rand.Rand, n int) []float64 {
	return func(rng *rand.Rand, n int) []float64 {
		on, left := 0.0, 0.0
		return fill(n, func(int) float64 {
			for left <= 0 {
				on, left = 1-on, left+length(rng)
			}
			left--
			return on * (1 + 0.2*rng.NormFloat64())
		})
	}
}

// TestNoPeriod: of 100 seeds of each kind of aperiodic traffic at most one has a period.
func TestNoPeriod(t *testing.T) {
	t.Parallel()
	for name, make := range aperiodic {
		found := 0
		for seed := range uint64(100) {
			rng := rand.New(rand.NewPCG(seed, 7))
			r, err := Find(make(rng, 1000+rng.IntN(7000)))
			if err != nil {
				t.Fatal(err)
			}
			if r != nil {
				found++
				t.Logf("%s, seed %d: %+v", name, seed, *r)
			}
		}
		if found > 1 {
			t.Errorf("%s: %d of 100 have a period", name, found)
		}
	}
}

// TestTwoBursts: a step of two bursts is one step, with its own period.
func TestTwoBursts(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 4))
		period := 20 + 200*rng.Float64()
		r, err := Find(fill(8000, func(i int) float64 {
			at := math.Mod(float64(i), period) / period
			if at < 0.15 || at > 0.4 && at < 0.55 {
				return 1 + 0.3*rng.NormFloat64()
			}
			return 0.1 * rng.ExpFloat64()
		}))
		if err != nil || r == nil || math.Abs(r.Period/period-1) > 0.01 {
			t.Errorf("seed %d: %+v, %v, want %.1f", seed, r, err, period)
		}
	}
}

// TestDuty: the lengths and number of steps and rests.
func TestDuty(t *testing.T) {
	j := job{windows: 8000, period: 200, duty: 0.3, noise: 0.2, rest: 0.05}
	r, err := Find(j.series(rand.New(rand.NewPCG(1, 1))))
	if err != nil || r == nil {
		t.Fatalf("%v, %v", r, err)
	}
	if math.Abs(r.Duty-0.3) > 0.01 || math.Abs(r.Idle-140) > 1.5 || r.Steps < 38 || r.Steps > 39 || r.Strength < r.Chance {
		t.Errorf("%+v", *r)
	}
}

// TestScale: the unit of the values, their origin and a slow trend change nothing.
func TestScale(t *testing.T) {
	j := job{windows: 4000, period: 64.5, duty: 0.4, jitter: 0.1, noise: 0.3, rest: 0.1}
	values := j.series(rand.New(rand.NewPCG(2, 2)))
	want, err := Find(values)
	if err != nil || want == nil {
		t.Fatalf("%v, %v", want, err)
	}
	same := func(scale float64, offset int32) bool {
		scale = math.Abs(scale)
		if !(scale > 1e-100 && scale < 1e100) {
			scale = 1e3
		}
		got, err := Find(fill(len(values), func(i int) float64 { return values[i]*scale + float64(offset)*scale*1e-6 }))
		return err == nil && got != nil && *got == *want
	}
	if err := quick.Check(same, nil); err != nil {
		t.Error(err)
	}
	huge := append([]float64(nil), values...)
	huge[100] = 1e12
	if got, err := Find(huge); err != nil || got == nil || math.Abs(got.Period/want.Period-1) > 1e-3 {
		t.Errorf("one huge value: %+v, %v", got, err)
	}
}

func TestFindErrors(t *testing.T) {
	for _, n := range []int{0, MinWindows - 1, MaxWindows + 1} {
		if _, err := Find(make([]float64, n)); !errors.Is(err, ErrLength) {
			t.Errorf("%d windows: %v", n, err)
		}
	}
	for name, values := range map[string][]float64{
		"constant": fill(1000, func(int) float64 { return 3 }),
		"unknown":  fill(1000, func(int) float64 { return math.NaN() }),
		"infinite": fill(1000, func(i int) float64 { return math.Inf(1 - i%2*2) }),
	} {
		if r, err := Find(values); err != nil || r != nil && name != "infinite" {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}

func TestTransform(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	values := fill(50, func(int) float64 { return rng.NormFloat64() })
	for k, got := range autocorrelate([][]float64{values}, 49) {
		sum := 0.0
		for i := range 50 - k {
			sum += values[i] * values[i+k]
		}
		if want := sum / float64(50-k) * 50 / power(values); math.Abs(got-want) > 1e-12 {
			t.Errorf("lag %d: %g, want %g", k, got, want)
		}
	}
}

// TestSignificance checks that a stronger period is less likely by chance, and that a period at the
// level of chance has the probability of false alarms.
func TestSignificance(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	last := 1.0
	for _, amplitude := range []float64{0.55, 1, 2} {
		values := make([]float64, 4096)
		for i := range values {
			values[i] = rng.NormFloat64()
			if i%50 < 25 {
				values[i] += amplitude
			}
		}
		r, err := Find(values)
		if err != nil || r == nil || r.Significance <= 0 || r.Significance >= last || r.Significance > falseAlarm {
			t.Fatalf("amplitude %g: %+v, %v", amplitude, r, err)
		}
		last = r.Significance
	}
	c := chance{variance: 0.01, term: 0.1, lags: 500}
	if p := c.of(c.level()); math.Abs(p/falseAlarm-1) > 1e-9 || c.of(0) != 1 {
		t.Errorf("at the level of chance %g, at 0 %g", p, c.of(0))
	}
}
