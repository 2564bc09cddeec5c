package simulation

import (
	"math"
	"slices"
	"testing"

	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// Drawn sizes must follow the cumulative distribution: the largest distance between it and a
// sample's distribution stays below the value that 1 in 1000 samples of this size exceed
// (Kolmogorov-Smirnov).
func TestSizesFollowTheirDistribution(t *testing.T) {
	const n = 200_000
	pareto := func(low, high float64) func(x float64) float64 {
		return func(x float64) float64 { return (1 - low/x) / (1 - low/high) }
	}
	line := func(points []scenario.SizePoint) func(x float64) float64 {
		return func(x float64) float64 {
			i := 1
			for i < len(points)-1 && float64(points[i].Bytes) < x {
				i++
			}
			a, b := points[i-1], points[i]
			part := (x - float64(a.Bytes)) / float64(b.Bytes-a.Bytes)
			return (float64(a.Share) + part*float64(b.Share-a.Share)) / scenario.SizeScale
		}
	}
	table := []scenario.SizePoint{{Bytes: 100}, {Bytes: 1000, Share: 900_000}, {Bytes: 1_000_000, Share: 1_000_000}}
	tests := []struct {
		name  string
		sizes scenario.Sizes
		cdf   func(float64) float64
		mean  float64 // 0: not checked, since the tail decides it
	}{
		{"pareto", scenario.Sizes{Distribution: scenario.Pareto, MinBytes: 4096, MaxBytes: 16 << 20}, pareto(4096, 16<<20), 4096 * 4096. / 4095 * math.Log(4096)},
		{"narrow pareto", scenario.Sizes{Distribution: scenario.Pareto, MinBytes: 1_000_000, MaxBytes: 2_000_000}, pareto(1e6, 2e6), 2e6 * math.Ln2},
		{"websearch", scenario.Sizes{Distribution: scenario.WebSearch}, line(webSearch), 0},
		{"table", scenario.Sizes{Distribution: scenario.TableSizes, Points: table}, line(table), 0.9*550 + 0.1*500_500},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSizes(&tt.sizes)
			rng := exact.Derive(1, 2, 3)
			drawn, sum := make([]float64, n), 0.0
			for i := range drawn {
				drawn[i] = float64(s.draw(&rng))
				sum += drawn[i]
			}
			slices.Sort(drawn)
			worst := 0.0
			for i, x := range drawn {
				// Sizes are rounded down to whole bytes.
				low, high := tt.cdf(x), tt.cdf(x+1)
				worst = max(worst, float64(i)/n-high, low-float64(i+1)/n)
			}
			if limit := 1.95 / math.Sqrt(n); worst > limit {
				t.Errorf("distance %.5f, want at most %.5f", worst, limit)
			}
			if mean := sum / n; tt.mean > 0 && math.Abs(mean/tt.mean-1) > 0.06 {
				t.Errorf("mean %.0f, want %.0f", mean, tt.mean)
			}
		})
	}
}

func TestSizesStayInTheirRange(t *testing.T) {
	s := sizes{low: 1, high: 1 << 40}
	for _, u := range []uint64{0, 1, 1 << 31, 1<<32 - 1} {
		if x := s.pareto(u); x < s.low || x > s.high {
			t.Errorf("pareto(%d) is %d", u, x)
		}
	}
	w := sizes{points: webSearch}
	if low, high := w.between(0), w.between(scenario.SizeScale-1); low != 1 || high > 30_000_000 || high < 29_000_000 {
		t.Errorf("websearch runs from %d to %d", low, high)
	}
}
