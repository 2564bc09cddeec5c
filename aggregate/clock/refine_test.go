package clock

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// loaded returns 10,000 packets of two lengths in one second, most of which are queued.
func loaded(seed uint64) (c truth, forwards, backwards []Pair) {
	c = example()
	c.length, c.empty = time.Second, 0.2
	rng := rand.New(rand.NewPCG(seed, 8))
	for i, more := range []int64{0, 32_000} { // additional transmission time of the longer ones
		c.forwards, c.backws = 500+4000*i, 500+4000*i
		f, b := c.pairs(rng, c.forwards, c.forward+more, forward), c.pairs(rng, c.backws, c.back+more, backward)
		for _, list := range [][]Pair{f, b} {
			for k := range list {
				list[k].Kind = uint32(i + 1)
			}
		}
		forwards, backwards = append(forwards, f...), append(backwards, b...)
	}
	return c, forwards, backwards
}

// misses returns the errors of drifts, in ppb, the smallest first, and the number of those within
// three times their stated error.
func misses(t *testing.T, seeds uint64, measure func(seed uint64) (drift float64, r *Relation)) (off []float64, sure int) {
	t.Helper()
	for seed := range seeds {
		drift, r := measure(seed)
		if drift < r.DriftLow || drift > r.DriftHigh || r.Drift < r.DriftLow || r.Drift > r.DriftHigh {
			t.Errorf("seed %d: %+v, drift %f", seed, r, drift)
		}
		miss := math.Abs(r.Drift - drift)
		if off = append(off, miss); miss <= 3*r.DriftError {
			sure++
		}
	}
	slices.Sort(off)
	return off, sure
}

// TestKinds: packets of one length determine the drift where queues hide the least delay, and the
// stated error is about right.
func TestKinds(t *testing.T) {
	const seeds = 40
	run := func(known bool) (off []float64, sure int) {
		return misses(t, seeds, func(seed uint64) (float64, *Relation) {
			c, forwards, backwards := loaded(seed)
			for _, list := range [][]Pair{forwards, backwards} {
				for i := range list {
					if !known {
						list[i].Kind = 0
					}
				}
			}
			r, err := Between(forwards, backwards, Options{Error: time.Duration(c.error)})
			if err != nil {
				t.Fatal(err)
			}
			if r.Queued && known {
				t.Errorf("seed %d: queues told the drift, off by %.0f ± %.0f ppb", seed, r.Drift-c.drift, r.DriftError)
			}
			return c.drift, r
		})
	}
	off, sure := run(true)
	mixed, _ := run(false)
	t.Logf("of %d: drift within %.0f ppb, median %.0f; %d within three standard errors; kinds not known: within %.0f, median %.0f",
		seeds, off[seeds-1], off[seeds/2], sure, mixed[seeds-1], mixed[seeds/2])
	if off[seeds-1] > 2000 || off[seeds/2] > 600 || sure < seeds*95/100 {
		t.Errorf("off by %.0f ppb, median %.0f; %d within three standard errors", off[seeds-1], off[seeds/2], sure)
	}
}

// TestFullQueues: queues that never empty determine the drift as long as they stay full, and the
// result reports them.
func TestFullQueues(t *testing.T) {
	const seeds = 20
	off, sure := misses(t, seeds, func(seed uint64) (float64, *Relation) {
		c := example()
		c.length, c.empty, c.queue, c.forward = time.Second, 0, 20_000, 2_000_000
		rng := rand.New(rand.NewPCG(seed, 9))
		forwards, backwards := c.measure(rng)
		for i := range forwards {
			if rng.Float64() < 0.9 { // full, except for those just before
				forwards[i].B += 200_000
			}
		}
		// Two packets were not queued, one of which came too early.
		forwards = append(forwards, Pair{A: c.start, B: c.start + c.offset - 9_000}, Pair{A: c.start + 1e8, B: c.start + 1e8 + c.offset + 2_000})
		r, err := Between(forwards, backwards[:50], Options{Error: time.Duration(c.error)})
		if err != nil {
			t.Fatal(err)
		}
		if !r.Queued {
			t.Errorf("seed %d: %+v", seed, r)
		}
		return c.drift, r
	})
	t.Logf("of %d: drift within %.0f ppb, median %.0f; %d within three standard errors", seeds, off[seeds-1], off[seeds/2], sure)
	if off[seeds-1] > 3000 || sure < seeds*9/10 {
		t.Errorf("off by %.0f ppb, %d within three standard errors", off[seeds-1], sure)
	}
}

// TestUnsure: if the packets are too few for an error of the drift, or their timestamps are stated
// to be exact, there is none.
func TestUnsure(t *testing.T) {
	c := example()
	forwards, backwards := c.measure(rand.New(rand.NewPCG(1, 10)))
	r, err := Between(forwards[:3], backwards[:3], Options{Error: time.Duration(c.error)})
	if err != nil || !math.IsInf(r.DriftError, 1) || r.Queued {
		t.Errorf("six packets: %+v, %v", r, err)
	}
	c.error = 0
	forwards, backwards = c.measure(rand.New(rand.NewPCG(1, 10)))
	r, err = Between(forwards, backwards, Options{Error: time.Nanosecond})
	if err != nil || math.Abs(r.Drift-c.drift) > 1 {
		t.Errorf("right timestamps: %+v, %v", r, err)
	}
	r, err = Between(forwards, backwards, Options{})
	if err == nil && !math.IsInf(r.DriftError, 1) {
		t.Errorf("timestamps that are said to be right: %+v", r)
	}
}
