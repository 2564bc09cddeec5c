package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// rhythmsEnv requests 100 seeds of aperiodic traffic and names a file for the results; make
// accuracy sets it.
const rhythmsEnv = "CSIGSCOPE_TEST_RHYTHMS"

const (
	seconds     = 1000 // windows of 1 ms
	stretchOf   = 4096 // steps, the default of source.Memory
	inWindow    = 20   // observations per window
	aperiodics  = 100  // seeds of each kind for make accuracy
	seedsOfKind = 8    // seeds of each kind otherwise
)

// scalesOf returns the known steps of a cell with the given load per window: stretches of 1 ms and
// of 20 ms, spread over the time, and the whole time in steps of the given length.
func scalesOf(load []float64, step int, rng *rand.Rand) [][]cellSeries {
	all := cellPart{make([]uint64, len(load)), make([]uint64, len(load))}
	for i, v := range load {
		for range inWindow {
			all.all[i]++
			if rng.Float64() < 0.02+0.96*min(v, 1) {
				all.heavy[i]++
			}
		}
	}
	return scalesFrom(all, step, rng)
}

// scalesFrom returns the known steps of a cell that was observed in windows of 1 ms.
func scalesFrom(all cellPart, step int, rng *rand.Rand) [][]cellSeries {
	var scales [][]cellSeries
	windows := len(all.all)
	for _, ms := range []int{1, 20} {
		if ms >= step {
			continue
		}
		s := cellSeries{step: time.Duration(ms) * time.Millisecond}
		every := 1
		for windows/(ms*stretchOf*every) > 4 {
			every *= 2
		}
		for from := rng.IntN(ms*stretchOf/2) / ms * ms; from < windows; from += ms * stretchOf * every {
			s.parts = append(s.parts, added(all, from, min(from+ms*stretchOf, windows), ms))
		}
		scales = append(scales, []cellSeries{s})
	}
	whole := cellSeries{step: time.Duration(step) * time.Millisecond, parts: []cellPart{added(all, 0, windows, step)}}
	return append(scales, []cellSeries{whole})
}

// added sums the windows between from and to in steps of several windows.
func added(p cellPart, from, to, windows int) cellPart {
	n := (to - from + windows - 1) / windows
	out := cellPart{make([]uint64, n), make([]uint64, n)}
	for i := from; i < to; i++ {
		out.heavy[(i-from)/windows] += p.heavy[i]
		out.all[(i-from)/windows] += p.all[i]
	}
	return out
}

// jobLoad is busy for two fifths of each period. Either steps are late by up to a tenth of the
// period, or periods vary by as much. It also returns the mean period.
func jobLoad(windows int, period float64, wanders bool, rng *rand.Rand) (load []float64, mean float64) {
	load = make([]float64, windows)
	n, first, last := 0, 0.0, 0.0
	for at := rng.Float64() * period; at < float64(windows); n++ {
		from := at
		if n == 0 {
			first = at
		}
		last = at
		if wanders {
			at += period * (1 + 0.1*(2*rng.Float64()-1))
		} else {
			from += 0.1 * period * rng.Float64()
			at += period
		}
		to := from + 0.4*period
		for i := int(from); i <= int(to) && i < windows; i++ {
			load[i] += min(to, float64(i+1)) - max(from, float64(i))
		}
	}
	return load, (last - first) / float64(n-1)
}

// TestPeriodsOfLongCaptures checks that periods from 5 ms to 2 s are found within 1 % in a minute,
// and in 10 minutes with the whole time in steps of 10 and 100 ms.
func TestPeriodsOfLongCaptures(t *testing.T) {
	t.Parallel()
	worst := 0.0
	for _, test := range []struct {
		windows, step int
		periods       []float64
	}{
		{60 * seconds, 10, []float64{5, 7.3, 20, 61.7, 250, 700, 2000}},
		{600 * seconds, 100, []float64{5, 2000}},
	} {
		for i, period := range test.periods {
			for _, wanders := range []bool{false, true} {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(test.windows)))
				load, want := jobLoad(test.windows, period, wanders, rng)
				in, found := findAmong(scalesOf(load, test.step, rng), 0)
				if found == nil {
					t.Errorf("%g ms in %d s, wandering %t: nothing is found", period, test.windows/seconds, wanders)
					continue
				}
				got := float64(in.length(found.Period, in.steps)) / 1e6
				off := math.Abs(got/want - 1)
				if worst = max(worst, off); off > 0.01 || math.Abs(found.Duty-0.4) > 0.15 {
					t.Errorf("%g ms in %d s, wandering %t: %.3f ms in steps of %s, congested %.2f of the time, want %.3f ms", period, test.windows/seconds, wanders, got, in.step, found.Duty, want)
				}
			}
		}
	}
	t.Logf("off by %.2f %% at most", 100*worst)
}

// aperiodicLoads are traffic patterns without a period.
var aperiodicLoads = map[string]func(rng *rand.Rand) func() float64{
	"noise": func(rng *rand.Rand) func() float64 {
		return rng.ExpFloat64
	},
	"memory": func(rng *rand.Rand) func() float64 {
		v := 0.0
		return func() float64 { v = 0.995*v + 0.1*rng.NormFloat64(); return math.Abs(v) }
	},
	"on and off": onAndOff(func(rng *rand.Rand) float64 { return 15 * rng.ExpFloat64() }),
	"heavy-tailed": onAndOff(func(rng *rand.Rand) float64 {
		return 3 * math.Pow(1-rng.Float64(), -1/1.3)
	}),
}

func onAndOff(length func(*rand.Rand) float64) func(*rand.Rand) func() float64 {
	return func(rng *rand.Rand) func() float64 {
		on, left := 0.0, 0.0
		return func() float64 {
			for left <= 0 {
				on, left = 1-on, left+length(rng)
			}
			left--
			return on
		}
	}
}

// TestNoPeriodInLongCaptures checks that at most one of a hundred aperiodic seeds gets a period at
// any step length.
func TestNoPeriodInLongCaptures(t *testing.T) {
	t.Parallel()
	seeds := uint64(seedsOfKind)
	if os.Getenv(rhythmsEnv) != "" {
		seeds = aperiodics
	}
	for name, kind := range aperiodicLoads {
		found := 0
		for seed := range seeds {
			rng := rand.New(rand.NewPCG(seed, 9))
			next := kind(rng)
			load := make([]float64, 60*seconds)
			for i := range load {
				load[i] = next()
			}
			if in, r := findAmong(scalesOf(load, 10, rng), 0); r != nil {
				found++
				t.Logf("%s, seed %d: %+v in steps of %s", name, seed, *r, in.step)
			}
		}
		noteRhythms(t, fmt.Sprintf("periods of %s in a minute: %d of %d seeds\n", name, found, seeds))
		if found > 1 {
			t.Errorf("%s: %d of %d seeds have a period", name, found, seeds)
		}
	}
}
