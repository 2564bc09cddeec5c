package clock

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// truth is two clocks and the paths between their taps.
type truth struct {
	start            int64 // Unix ns, of A's clock
	offset           int64 // ns, at start
	drift            float64
	error            int64 // ns, of both timestamps together
	forward, back    int64 // least delays, ns
	queue            float64
	empty            float64 // share of packets without queueing
	length           time.Duration
	forwards, backws int
}

func (c *truth) offsetAt(a int64) float64 {
	return float64(c.offset) + c.drift*float64(a-c.start)/1e9
}

// offsetAt is B's clock minus A's at an instant on A's clock, in ns.
func (r *Relation) offsetAt(a int64) float64 { return r.Offset + r.Drift*seconds(a, r.At) }

// pairs returns packets of one direction, not in order.
func (c *truth) pairs(rng *rand.Rand, n int, least int64, side direction) []Pair {
	list := make([]Pair, n)
	for i := range list {
		a := c.start + rng.Int64N(c.length.Nanoseconds())
		way := float64(least)
		if rng.Float64() >= c.empty {
			way += rng.ExpFloat64() * c.queue
		}
		noise := 0.0
		if c.error > 0 {
			half := c.error / 2 // of either tap
			noise = float64(rng.Int64N(2*half+1) - half + rng.Int64N(2*half+1) - half)
		}
		list[i] = Pair{A: a, B: a + int64(math.Round(c.offsetAt(a)+float64(side)*way+noise))}
	}
	return list
}

func (c *truth) measure(rng *rand.Rand) (forwards, backwards []Pair) {
	return c.pairs(rng, c.forwards, c.forward, forward), c.pairs(rng, c.backws, c.back, backward)
}

// example returns the case with the required accuracy: 1 ms off, 20 ppm, 5 us of jitter at each
// tap, 10,000 packets in both directions together.
func example() truth {
	return truth{
		start: 1_767_225_600_000_000_000, offset: 1_000_000, drift: 20_000, error: 10_000, forward: 4_000, back: 4_000,
		queue: 50_000, empty: 0.3, length: 2 * time.Second, forwards: 5000, backws: 5000,
	}
}

// TestAccuracy: within 2 us and 1 ppm of the truth, also at both ends of the time.
func TestAccuracy(t *testing.T) {
	var worstOffset, worstDrift float64
	for seed := range uint64(200) {
		c := example()
		forwards, backwards := c.measure(rand.New(rand.NewPCG(seed, 1)))
		r, err := Between(forwards, backwards, Options{Error: time.Duration(c.error)})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []int64{c.start, r.At, c.start + c.length.Nanoseconds()} {
			worstOffset = max(worstOffset, math.Abs(r.offsetAt(a)-c.offsetAt(a)))
		}
		worstDrift = max(worstDrift, math.Abs(r.Drift-c.drift))
	}
	t.Logf("of 200: offset within %.0f ns, drift within %.0f ppb", worstOffset, worstDrift)
	if worstOffset > 2000 || worstDrift > 1000 {
		t.Errorf("off by %.0f ns, %.0f ppb", worstOffset, worstDrift)
	}
}

// random returns any clocks and paths.
func random(rng *rand.Rand) truth {
	return truth{
		start: rng.Int64N(1 << 61), offset: rng.Int64N(2e9) - 1e9, drift: rng.Float64()*2e5 - 1e5, error: rng.Int64N(20_000),
		forward: rng.Int64N(50_000), back: rng.Int64N(50_000), queue: rng.Float64() * 1e6, empty: rng.Float64(),
		length: time.Duration(1e6 + rng.Int64N(1e11)), forwards: 3 + rng.IntN(500), backws: 3 + rng.IntN(500),
	}
}

// TestBound: the truth and the estimate are always within the bound, and knowledge of the paths
// makes the bound tighter and never wrong.
func TestBound(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 2))
		c := random(rng)
		forwards, backwards := c.measure(rng)
		o := Options{Error: time.Duration(c.error + 1)} // plus rounding
		r, err := Between(forwards, backwards, o)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		o.Forward, o.Backward = time.Duration(c.forward), time.Duration(c.back)
		known, err := Between(forwards, backwards, o)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, a := range []int64{c.start - 1e9, c.start, r.At, c.start + c.length.Nanoseconds()} {
			low, high := r.Bound(a)
			if v := c.offsetAt(a); v < low-1 || v > high+1 {
				t.Errorf("seed %d: offset %.0f is not in %.0f to %.0f", seed, v, low, high)
			}
			knownLow, knownHigh := known.Bound(a)
			if v := c.offsetAt(a); v < knownLow-1 || v > knownHigh+1 || knownLow < low-1 || knownHigh > high+1 {
				t.Errorf("seed %d: offset %.0f, known ways give %.0f to %.0f, unknown ones %.0f to %.0f", seed, v, knownLow, knownHigh, low, high)
			}
		}
		if low, high := r.Bound(r.At); r.Offset < low-1 || r.Offset > high+1 {
			t.Errorf("seed %d: estimate %.0f is not in %.0f to %.0f", seed, r.Offset, low, high)
		}
		const rounding = 1e-3
		if c.drift < r.DriftLow-rounding || c.drift > r.DriftHigh+rounding {
			t.Errorf("seed %d: drift %.0f is not in %.0f to %.0f", seed, c.drift, r.DriftLow, r.DriftHigh)
		}
	}
}

// TestHalfRoundTrip: without timestamp errors the offset is within half of the least round trip,
// however uneven the paths are.
func TestHalfRoundTrip(t *testing.T) {
	c := example()
	c.error, c.drift, c.empty, c.back = 0, 0, 1, 40_000
	forwards, backwards := c.measure(rand.New(rand.NewPCG(1, 3)))
	r, err := Between(forwards, backwards, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.RoundTrip != 44_000 || r.Offset != 1_000_000-18_000 {
		t.Errorf("round trip %.0f, offset %.0f", r.RoundTrip, r.Offset)
	}
	low, high := r.Bound(r.At)
	if math.Abs(low-(1_000_000-40_000)) > 1 || math.Abs(high-(1_000_000+4_000)) > 1 {
		t.Errorf("bound %.0f to %.0f", low, high)
	}
	r, err = Between(forwards, backwards, Options{Forward: 4 * time.Microsecond, Backward: 40 * time.Microsecond})
	if err != nil || math.Abs(r.Offset-1_000_000) > 1e-3 || r.RoundTrip != 44_000 {
		t.Errorf("known ways: %+v, %v", r, err)
	}
}

// TestReflections: the backward packets are reflections, which receivers hold for a while. The
// bound holds, and uses the least holding time.
func TestReflections(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 7))
		c := example()
		const held = 20_000
		forwards, backwards := c.measure(rng)
		for i := range backwards {
			backwards[i].A += held + int64(rng.ExpFloat64()*100_000)
		}
		r, err := Between(forwards, backwards, Options{Error: time.Duration(c.error)})
		if err != nil {
			t.Fatal(err)
		}
		low, high := r.Bound(r.At)
		if v := c.offsetAt(r.At); v < low || v > high || high-low < held {
			t.Errorf("seed %d: offset %.0f, bound %.0f to %.0f", seed, v, low, high)
		}
		known, err := Between(forwards, backwards, Options{
			Error: time.Duration(c.error), Forward: time.Duration(c.forward), Backward: time.Duration(c.back + held),
		})
		if err != nil {
			t.Fatal(err)
		}
		// Few have the least holding time: the envelope is less sharp on that side.
		if math.Abs(known.Offset-c.offsetAt(known.At)) > float64(c.error)/2 || math.Abs(known.Drift-c.drift) > 1000 {
			t.Errorf("seed %d: off by %.0f ns, %.0f ppb", seed, known.Offset-c.offsetAt(known.At), known.Drift-c.drift)
		}
	}
}

// TestOneWay: one direction bounds the offset on one side, and estimates the drift.
func TestOneWay(t *testing.T) {
	for seed := range uint64(50) {
		c := example()
		forwards, backwards := c.measure(rand.New(rand.NewPCG(seed, 4)))
		o := Options{Error: time.Duration(c.error + 1), Forward: time.Duration(c.forward), Backward: time.Duration(c.back), MaxDrift: 50_000}
		for _, side := range []direction{forward, backward} {
			var r *Relation
			var err error
			if side == forward {
				r, err = Between(forwards, nil, o)
			} else {
				r, err = Between(nil, backwards, o)
			}
			if err != nil || !r.OneWay {
				t.Fatalf("%+v, %v", r, err)
			}
			// The envelope comes from the most favorable timestamps.
			if math.Abs(r.Drift-c.drift) > 1000 || math.Abs(r.Offset-c.offsetAt(r.At)) > float64(c.error)+1000 {
				t.Errorf("seed %d: off by %.0f ns, %.0f ppb", seed, r.Offset-c.offsetAt(r.At), r.Drift-c.drift)
			}
			for _, a := range []int64{c.start - 1e9, r.At, c.start + 5e9} {
				low, high := r.Bound(a)
				if v := c.offsetAt(a); v < low || v > high || math.IsInf(low, -1) != (side == forward) || math.IsInf(high, 1) != (side == backward) {
					t.Errorf("seed %d: offset %.0f, bound %.0f to %.0f", seed, v, low, high)
				}
			}
		}
	}
}

// TestInvariances: order, repetition and queues change nothing; exchanging the taps changes the
// sign.
func TestInvariances(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 5))
		c := random(rng)
		forwards, backwards := c.measure(rng)
		o := Options{Error: time.Duration(c.error + 1)}
		want, err := Between(forwards, backwards, o)
		if err != nil {
			t.Fatal(err)
		}
		more := slices.Clone(forwards)
		for range 100 {
			p := forwards[rng.IntN(len(forwards))]
			more = append(more, p, Pair{A: p.A, B: p.B + rng.Int64N(1e6)})
		}
		rng.Shuffle(len(more), func(i, j int) { more[i], more[j] = more[j], more[i] })
		got, err := Between(more, backwards, o)
		if err != nil {
			t.Fatal(err)
		}
		low, high := want.Bound(want.At)
		if l, h := got.Bound(want.At); math.Abs(l-low) > 1 || math.Abs(h-high) > 1 {
			t.Errorf("seed %d: bound %.1f to %.1f, was %.1f to %.1f", seed, l, h, low, high)
		}
		swap := func(list []Pair) (out []Pair) {
			for _, p := range list {
				out = append(out, Pair{A: p.B, B: p.A})
			}
			return out
		}
		back, err := Between(swap(backwards), swap(forwards), o)
		if err != nil {
			t.Fatal(err)
		}
		// The bound holds on either clock; they drift against each other by 100 ppm at most.
		l, h := back.Bound(want.At + int64(math.Round(want.Offset)))
		if slack := 1 + 2e-4*(high-low); math.Abs(-h-low) > slack || math.Abs(-l-high) > slack {
			t.Errorf("seed %d: exchanged %.1f to %.1f, want %.1f to %.1f", seed, -h, -l, low, high)
		}
	}
}

// TestClocks: ToA inverts the offset.
func TestClocks(t *testing.T) {
	r := Relation{At: 1_767_225_600_000_000_000, Offset: -1_000_000, Drift: -20_000}
	for _, a := range []int64{r.At, r.At - 3600e9, r.At + 3600e9} {
		if got := r.ToA(a + int64(math.Round(r.offsetAt(a)))); got != a {
			t.Errorf("%d, want %d", got, a)
		}
	}
}

func TestErrors(t *testing.T) {
	c := example()
	forwards, backwards := c.measure(rand.New(rand.NewPCG(1, 6)))
	stepped := slices.Clone(forwards)
	for i := range stepped {
		if stepped[i].A > c.start+c.length.Nanoseconds()/2 {
			stepped[i].B -= 200_000
		}
	}
	same := []Pair{{A: 5, B: 6}, {A: 5, B: 6}, {A: 5, B: 7}, {A: 5, B: 8}}
	for name, one := range map[string]struct {
		forwards, backwards []Pair
		o                   Options
		want                error
	}{
		"nothing":                             {nil, nil, Options{}, ErrTooFew},
		"two packets":                         {forwards[:2], backwards[:2], Options{}, ErrTooFew},
		"one instant":                         {same, nil, Options{}, ErrTooFew},
		"a clock that was set":                {stepped, backwards, Options{Error: 10 * time.Microsecond}, ErrInconsistent},
		"timestamps that are worse than said": {forwards, backwards, Options{}, nil},
		"ways that are too long":              {forwards, backwards, Options{Error: 10 * time.Microsecond, Forward: time.Millisecond}, ErrInconsistent},
		"an error below 0":                    {forwards, backwards, Options{Error: -1}, nil},
	} {
		r, err := Between(one.forwards, one.backwards, one.o)
		if one.want != nil && !errors.Is(err, one.want) || err == nil {
			t.Errorf("%s: %+v, %v, want %v", name, r, err, one.want)
		}
	}
}
