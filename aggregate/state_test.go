package aggregate_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
)

// TestHistory: the latest deciding window counts, for at most Horizon windows.
func TestHistory(t *testing.T) {
	t.Parallel()
	const second = int64(1e9)
	type window struct{ at, observations, samples, heavy, unjudged uint64 }
	for _, tc := range []struct {
		name    string
		windows []window
		end     int64
		want    aggregate.State
		since   int64
	}{
		{"nothing", nil, 10, aggregate.NoData, 0},
		{"few", []window{{1, 9, 9, 9, 0}}, 2, aggregate.TooFew, 0},
		{"few of a weight", []window{{1, 900, 9, 900, 0}}, 2, aggregate.TooFew, 0},
		{"at the onset", []window{{1, 100, 100, 5, 0}}, 2, aggregate.Congested, 1},
		{"below the onset", []window{{1, 101, 101, 5, 0}}, 2, aggregate.Brief, 0},
		{"between after an onset", []window{{1, 100, 100, 5, 0}, {2, 100, 100, 2, 0}}, 3, aggregate.Congested, 1},
		{"below the clear share", []window{{1, 100, 100, 5, 0}, {2, 100, 100, 1, 0}}, 3, aggregate.Brief, 0},
		{"again", []window{{1, 10, 10, 5, 0}, {2, 10, 10, 0, 0}, {4, 10, 10, 5, 0}, {5, 10, 10, 9, 0}}, 6, aggregate.Congested, 4},
		{"few after an onset", []window{{1, 100, 100, 5, 0}, {2, 9, 9, 0, 0}}, 3, aggregate.Congested, 1},
		{"within the horizon", []window{{1, 100, 100, 5, 0}}, 301, aggregate.Congested, 1},
		{"past the horizon", []window{{1, 100, 100, 5, 0}}, 302, aggregate.NoData, 0},
		{"unjudged", []window{{1, 100, 100, 0, 100}}, 2, aggregate.NotJudged, 0},
		{"unjudged beside an onset", []window{{1, 100, 100, 5, 95}}, 2, aggregate.Congested, 1},
		{"unjudged after an onset", []window{{1, 100, 100, 5, 0}, {2, 100, 100, 0, 100}}, 3, aggregate.Congested, 1},
		{"hardly unjudged", []window{{1, 100, 100, 0, 1}}, 2, aggregate.Clear, 0},
	} {
		var h aggregate.History
		var sum window
		for _, w := range tc.windows {
			h.Set(int64(w.at), aggregate.DefaultThresholds().Judge(w.observations, w.samples, w.heavy, w.unjudged))
			sum = window{0, sum.observations + w.observations, sum.samples + w.samples, sum.heavy + w.heavy, sum.unjudged + w.unjudged}
		}
		v := h.Verdict(tc.end, second)
		state := aggregate.DefaultThresholds().State(v, sum.observations, sum.samples, sum.heavy, sum.unjudged)
		if state != tc.want || v.Since != tc.since*second || v.Sustained && v.Lasted != (tc.end-tc.since)*second {
			t.Errorf("%s: %s since %d s, for %d s; want %s since %d s", tc.name, state, v.Since/second, v.Lasted/second, tc.want, tc.since)
		}
	}
}

// TestHistoryForgets: a window that is set again counts once, the ring holds no stale windows, and verdicts are those of a
// search through all windows.
func TestHistoryForgets(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 2))
	var h aggregate.History
	kept := map[int64]aggregate.Judgement{}
	newest := int64(0)
	for range 5000 {
		at := max(newest+rng.Int64N(40)-30, 0)
		if rng.IntN(200) == 0 {
			at = newest + rng.Int64N(2*aggregate.Horizon)
		}
		j := aggregate.Judgement(rng.IntN(3))
		switch rng.IntN(400) { // some rings have nothing loaded
		case 0:
			j |= aggregate.Loaded
		case 1, 2:
			j = aggregate.Onset | aggregate.Loaded
		}
		if newest = max(newest, at); at > newest-aggregate.HistoryWindows {
			h.Set(at, j)
			kept[at] = j
		}
		n := newest - rng.Int64N(aggregate.HistoryWindows)
		if got := h.Get(n); got != kept[n] {
			t.Fatalf("window %d of %d is %d, want %d", n, newest, got, kept[n])
		}
		of := func(end int64) aggregate.Verdict {
			want, open := aggregate.Verdict{Silent: n+1 <= end-aggregate.Horizon}, true
			for i := n; i > max(newest-aggregate.HistoryWindows, end-1-aggregate.Horizon); i-- {
				is := kept[i] &^ aggregate.Loaded
				want.AnyLoaded, want.AnyJudged = want.AnyLoaded || kept[i] != is, want.AnyJudged || is != aggregate.Unjudged
				if open = open && is != aggregate.Below; open && is == aggregate.Onset {
					want.Sustained, want.Since, want.Lasted = true, i, end-i
				}
			}
			return want
		}
		if got, want := h.Verdict(n+1, 1), of(n+1); got != want {
			t.Fatalf("after window %d of %d: %+v, want %+v", n, newest, got, want)
		}
		end, s := n+1+rng.Int64N(aggregate.Horizon+2), h.Snapshot(n+1)
		if got, want := s.Verdict(end, 1), of(end); got != want {
			t.Fatalf("at %d, after window %d of %d: %+v, want %+v", end, n, newest, got, want)
		}
	}
}

// TestFewerTransitions: the heavy share of cells with ring and incast traffic varies, so their
// state by the last window alone changes often; the rule keeps it stable. Printed with -v.
func TestFewerTransitions(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(20, 1))
	const cells, minutes = 200, 10
	var before, after []float64
	for cell := range cells {
		var h aggregate.History
		var last, lastBefore aggregate.State
		n, nBefore := 0, 0
		share, phase := 0.03*rng.Float64(), rng.IntN(120)
		for second := range int64(minutes * 60) {
			p := share
			if (int(second)+phase)%120 < 30 && cell%2 == 0 { // an incast of half a minute
				p = 0.3
			}
			const observations = 60
			heavy := uint64(0)
			for range observations {
				if rng.Float64() < p {
					heavy++
				}
			}
			h.Set(second, aggregate.DefaultThresholds().Judge(observations, observations, heavy, 0))
			state := aggregate.DefaultThresholds().State(h.Verdict(second+1, 1), observations, observations, heavy, 0)
			stateBefore := aggregate.Clear
			if heavy > 0 {
				stateBefore = aggregate.Congested
			}
			if second > 0 && state != last {
				n++
			}
			if second > 0 && stateBefore != lastBefore {
				nBefore++
			}
			last, lastBefore = state, stateBefore
		}
		before, after = append(before, float64(nBefore)/minutes), append(after, float64(n)/minutes)
	}
	slices.Sort(before)
	slices.Sort(after)
	at := func(list []float64, share float64) float64 { return list[int(share*float64(len(list)-1))] }
	t.Logf("transitions per cell and minute, median and 95th percentile: %.1f and %.1f by single windows, %.1f and %.1f by the rule",
		at(before, 0.5), at(before, 0.95), at(after, 0.5), at(after, 0.95))
	if at(after, 0.5) > at(before, 0.5)/2 {
		t.Errorf("%.1f transitions a minute, half of %.1f at most", at(after, 0.5), at(before, 0.5))
	}
}
