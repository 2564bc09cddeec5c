package aggregate_test

import (
	"math"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestTrend: the later half of the range minus the earlier one, of cells and of cells' locations.
func TestTrend(t *testing.T) {
	const most = math.MaxUint64
	for name, c := range map[string]struct {
		sum, measured, laterSum, laterMeasured uint64
		want                                   float64 // in stored integers
	}{
		"rises":               {sum: 1000, measured: 10, laterSum: 900, laterMeasured: 6, want: 125},
		"falls":               {sum: 1000, measured: 10, laterSum: 100, laterMeasured: 5, want: -160},
		"stays":               {sum: 1000, measured: 10, laterSum: 300, laterMeasured: 3, want: 0},
		"nothing earlier":     {sum: 1000, measured: 10, laterSum: 1000, laterMeasured: 10, want: math.NaN()},
		"nothing later":       {sum: 1000, measured: 10, want: math.NaN()},
		"nothing":             {want: math.NaN()},
		"values of 0":         {measured: 10, laterMeasured: 5, want: 0},
		"sums beyond 64 bits": {sum: most, measured: 2, laterSum: most, laterMeasured: 1, want: most},
		"counts beyond them":  {sum: most, measured: most, laterSum: most, laterMeasured: most, want: math.NaN()},
	} {
		t.Run(name, func(t *testing.T) {
			cell := aggregate.CellStats{Signal: csig.MinABW, Sum: c.sum, Measured: c.measured, LaterSum: c.laterSum, LaterMeasured: c.laterMeasured}
			if got, want := cell.TrendValue(), c.want*csig.BitPerSecond.PerStored(); !same(got, want) {
				t.Errorf("cell: %g bit/s, want %g", got, want)
			}
			link := aggregate.CellLocation{Sums: aggregate.Sums{Sum: c.sum, Measured: c.measured}, LaterSum: c.laterSum, LaterMeasured: c.laterMeasured}
			if got := link.Trend(); !same(got, c.want) {
				t.Errorf("link: %g, want %g", got, c.want)
			}
		})
	}
}

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }
