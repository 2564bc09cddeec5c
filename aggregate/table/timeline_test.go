package table_test

import (
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// A timeline's steps add up to all that it was given, however far apart windows are.
func TestTimeline(t *testing.T) {
	t.Parallel()
	second := int64(time.Second)
	for name, starts := range map[string][]int64{
		"one":          {5},
		"some":         {5, 6, 7, 8},
		"too many":     {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		"out of order": {500, 3, 77, 500, 4},
		"years apart":  {0, 2_000_000_000, 1_000_000_000},
		"few rows":     {5, 6, 7, 8},
	} {
		keys := 100
		if name == "few rows" {
			keys = 2
		}
		line := table.NewTimeline(time.Second, 4, keys)
		for i, at := range starts {
			b := &aggregate.Block{
				Resolution: second, WindowStart: at * second,
				Signal: []uint8{uint8(csig.MinABW)}, Kind: []uint8{uint8(decode.Tag)}, Encoding: []uint8{0}, SrcGroup: []uint64{1}, DstGroup: []uint64{2}, Location: []uint64{uint64(i%2 + 3)},
				Observations: []uint64{10}, Bytes: []uint64{1}, Sum: []uint64{50}, Min: []uint64{5}, Max: []uint64{5},
				Untouched: []uint64{0}, Trimmed: []uint64{0}, Heavy: []uint64{2}, HeavySum: []uint64{10},
				DistCode: []uint16{1}, DistCount: []uint64{10}, DistEnd: []uint32{1},
			}
			if err := line.WriteBlock(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			b.Resolution *= 60
			if err := line.WriteBlock(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		at, steps := line.Steps()
		var heavy uint64
		for _, s := range steps {
			for _, l := range s.Locations(csig.MinABW, nil) {
				heavy += l.Heavy
			}
		}
		step := int64(line.Step())
		if len(at) == 0 || (at[len(at)-1]-at[0])/step >= 4 || !slices.IsSorted(at) || heavy != uint64(2*len(starts)) || name == "few rows" && len(at) > 2 {
			t.Errorf("%s: steps of %s at %v hold %d heavy observations of %d", name, line.Step(), at, heavy, 2*len(starts))
		}
	}
}
