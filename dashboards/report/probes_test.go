package report

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// probing describes when the pairs of hosts in a cell are observed.
type probing struct {
	name   string
	pairs  int
	every  float64 // ms between observations of a pair
	jitter float64 // relative variation of every
	turns  bool    // pairs take turns, evenly spaced; otherwise each pair has a random phase
	behind float64 // share of the pairs that cross the bottleneck
}

// observe returns the observations of a cell whose bottleneck is congested at the given times, in
// ms, and the rate of a pair's heavy observations.
func (p *probing) observe(windows int, congested func(at float64) bool, rng *rand.Rand) (cellPart, float64) {
	out := cellPart{make([]uint64, windows), make([]uint64, windows)}
	heavy := 0
	for pair := range p.pairs {
		at := p.every * rng.Float64()
		if p.turns {
			at = p.every * float64(pair) / float64(p.pairs)
		}
		behind := float64(pair) < p.behind*float64(p.pairs)
		for ; at < float64(windows); at += p.every * (1 + p.jitter*(2*rng.Float64()-1)) {
			out.all[int(at)]++
			if behind && congested(at) {
				out.heavy[int(at)]++
				heavy++
			}
		}
	}
	return out, float64(heavy) / max(1, p.behind*float64(p.pairs)) / (float64(windows) * 1e6)
}

// probings returns random schedules.
func probings(rng *rand.Rand) []probing {
	every := func(least, most float64) float64 { return least * math.Pow(most/least, rng.Float64()) }
	return []probing{
		{"one pair", 1, every(3, 300), 0, false, 1},
		{"timers", 2 + rng.IntN(30), every(5, 500), 0, false, 0.25},
		{"whole ms", 2 + rng.IntN(30), math.Round(every(5, 200)), 0, false, 0.5},
		{"turns", 4 + rng.IntN(60), every(20, 500), 0, true, 0.25},
		{"loose timers", 16, every(20, 200), 0.1, false, 0.25},
		{"irregular", 8, every(5, 200), 1, false, 0.5},
		{"mesh", 400, every(50, 500), 0, false, 0.25},
	}
}

// unsteady is congested at random for exponentially distributed times with the given mean in ms.
func unsteady(windows int, mean float64, rng *rand.Rand) func(at float64) bool {
	state := make([]bool, windows)
	on, left := false, 0.0
	for i := range state {
		for ; left <= 0; left += mean * rng.ExpFloat64() {
			on = !on
		}
		state[i], left = on, left-1
	}
	return func(at float64) bool { return state[int(at)] }
}

// TestProbesHaveNoPeriod checks that the schedule of observations is never reported as a period of
// congestion, whether the bottleneck is congested always, on some paths, or at random.
func TestProbesHaveNoPeriod(t *testing.T) {
	t.Parallel()
	seeds := uint64(seedsOfKind / 2)
	if os.Getenv(rhythmsEnv) != "" {
		seeds = aperiodics
	}
	const windows = 15 * seconds
	found := map[string]int{}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 21))
		for _, p := range probings(rng) {
			for name, congested := range map[string]func(at float64) bool{
				"steadily": func(float64) bool { return true },
				"partly":   func(at float64) bool { return at > windows/5 && at < windows*4/5 },
				"unsteady": unsteady(windows, 300, rand.New(rand.NewPCG(seed, 22))),
			} {
				all, rate := p.observe(windows, congested, rand.New(rand.NewPCG(seed, 23)))
				scales := scalesFrom(all, 1, rng)
				scales[0][0].pairRate = rate
				what := p.name + " " + name
				if in, r := findAmong(scales, 0); r != nil {
					found[what]++
					t.Logf("%s, seed %d: %+v in %d steps: %+v", what, seed, p, in.steps, *r)
				} else {
					found[what] += 0
				}
			}
		}
	}
	var text strings.Builder
	for _, what := range slices.Sorted(maps.Keys(found)) {
		n := found[what]
		fmt.Fprintf(&text, "periods of probes, %s: %d of %d seeds\n", what, n, seeds)
		if n > 1 {
			t.Errorf("%s: %d of %d seeds have a period", what, n, seeds)
		}
	}
	noteRhythms(t, text.String())
}

// noteRhythms logs lines and appends them to the file that make accuracy names, if any.
func noteRhythms(t *testing.T, lines string) {
	t.Helper()
	t.Log("\n" + lines)
	name := os.Getenv(rhythmsEnv)
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(lines)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestProbesShowPeriods checks that probes at fixed times show the period of congesting steps
// within 1 % if each pair is observed many times per period.
func TestProbesShowPeriods(t *testing.T) {
	t.Parallel()
	missed, asked, worst := 0, 0, 0.0
	for _, period := range []float64{100, 313, 1000, 2000} {
		for _, wanders := range []bool{false, true} {
			for seed := range uint64(3) {
				rng := rand.New(rand.NewPCG(seed, uint64(period)))
				load, want := jobLoad(max(60, int(period)/20)*seconds, period, wanders, rng)
				p := probing{"probes", 16, period / 40, 0, false, 1}
				all, rate := p.observe(len(load), func(at float64) bool { return load[int(at)] > 0.5 }, rng)
				scales := scalesFrom(all, 10, rng)
				for i := range scales {
					scales[i][0].pairRate = rate
				}
				asked++
				in, r := findAmong(scales, 0)
				if r == nil {
					missed++
					t.Logf("%g ms, wandering %t, seed %d: missed", period, wanders, seed)
					continue
				}
				off := math.Abs(float64(in.length(r.Period, in.steps))/1e6/want - 1)
				if worst = max(worst, off); off > 0.01 {
					t.Errorf("%g ms, wandering %t, seed %d: %+v, want %.2f ms", period, wanders, seed, *r, want)
				}
			}
		}
	}
	t.Logf("%d of %d are missed, off by %.2f %% at most", missed, asked, 100*worst)
	if missed > 0 {
		t.Errorf("%d of %d are missed", missed, asked)
	}
}
