package table_test

import (
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// heavyRow is a row of one cell with heavy observations at a location.
type heavyRow struct {
	signal         csig.Signal
	kind           decode.Kind
	location       aggregate.LocationID
	observations   uint64
	heavy, heavSum uint64
}

// evidenceAt returns the evidence of rows of a location.
func evidenceAt(l aggregate.LocationID) aggregate.Evidence { return 1 << (l % 3) }

func rowsOf(t *testing.T, rows []heavyRow) table.Rows {
	t.Helper()
	s := table.New(table.Bounds{Resolution: time.Second, Rows: 1000})
	for _, r := range rows {
		b := &aggregate.Block{
			Resolution: int64(time.Second), Signal: []uint8{uint8(r.signal)}, Kind: []uint8{uint8(r.kind)}, Encoding: []uint8{1},
			SrcGroup: []uint64{7}, DstGroup: []uint64{8}, Location: []uint64{uint64(r.location)},
			Observations: []uint64{r.observations}, Samples: []uint64{r.observations}, Unjudged: []uint64{0}, Bytes: []uint64{1}, Sum: []uint64{r.heavSum}, Min: []uint64{1}, Max: []uint64{9},
			Untouched: []uint64{0}, Trimmed: []uint64{0}, Heavy: []uint64{r.heavy}, HeavySum: []uint64{r.heavSum}, Evidence: []uint8{uint8(evidenceAt(r.location))},
			DistCode: []uint16{3}, DistCount: []uint64{r.observations}, DistEnd: []uint32{1},
		}
		if err := s.WriteBlock(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		b.Resolution = int64(time.Minute)
		if err := s.WriteBlock(context.Background(), b); err != nil {
			t.Fatal(err)
		}
	}
	return s.Total()
}

func TestMode(t *testing.T) {
	const abw, delay = csig.MinABWRatio, csig.MaxDelay
	const tag, refl = decode.Tag, decode.Reflection
	device := func(id aggregate.LocationID) aggregate.LocationID { return id / 100 * 100 }
	for _, test := range []struct {
		name         string
		rows         []heavyRow
		level        func(aggregate.LocationID) aggregate.LocationID
		kind         decode.Kind
		mode, second aggregate.LocationID
		count        uint64
		state        aggregate.State
	}{
		{"most heavy observations", []heavyRow{{abw, tag, 501, 50, 3, 30}, {abw, tag, 502, 5, 4, 400}}, nil, tag, 502, 501, 4, aggregate.Congested},
		{"tie on a min signal: lower mean", []heavyRow{{abw, tag, 501, 9, 3, 31}, {abw, tag, 502, 9, 3, 30}}, nil, tag, 502, 501, 3, aggregate.Congested},
		{"tie on a max signal: higher mean", []heavyRow{{delay, tag, 501, 9, 3, 30}, {delay, tag, 502, 9, 3, 31}}, nil, tag, 502, 501, 3, aggregate.Congested},
		{"tie on mean: lower location", []heavyRow{{abw, tag, 502, 9, 3, 30}, {abw, tag, 501, 9, 3, 30}}, nil, tag, 501, 502, 3, aggregate.Congested},
		{
			"means beyond 64 bits",
			[]heavyRow{{abw, tag, 501, 9, 1 << 40, math.MaxUint64}, {abw, tag, 502, 9, 1 << 40, math.MaxUint64 - 1}},
			nil, tag, 502, 501, 1 << 40, aggregate.Congested,
		},
		{
			"two ports of a device",
			[]heavyRow{{abw, tag, 501, 9, 3, 30}, {abw, tag, 502, 9, 3, 30}, {abw, tag, 601, 9, 5, 30}},
			device, tag, 500, 600, 6, aggregate.Congested,
		},
		{"tags before reflections", []heavyRow{{abw, refl, 501, 90, 30, 30}, {abw, tag, 502, 10, 1, 3}}, nil, tag, 502, 0, 1, aggregate.Congested},
		{"reflections alone", []heavyRow{{abw, refl, 501, 90, 30, 30}}, nil, refl, 501, 0, 30, aggregate.Congested},
		{"nothing heavy", []heavyRow{{abw, tag, 501, 10, 0, 0}}, nil, tag, 0, 0, 0, aggregate.Clear},
		{"too few", []heavyRow{{abw, tag, 501, 9, 9, 9}}, nil, tag, 501, 0, 9, aggregate.TooFew},
		{"windows add up", []heavyRow{{abw, tag, 501, 9, 2, 9}, {abw, tag, 502, 9, 3, 9}, {abw, tag, 501, 9, 2, 9}}, nil, tag, 501, 502, 4, aggregate.Congested},
	} {
		t.Run(test.name, func(t *testing.T) {
			cells := rowsOf(t, test.rows).Cells(test.rows[0].signal, test.level)
			if len(cells) != 1 {
				t.Fatalf("%d cells, expected 1", len(cells))
			}
			c := cells[0]
			if c.Kind != test.kind || c.Mode != test.mode || c.RunnerUp != test.second || c.ModeCount != test.count || c.State != test.state {
				t.Errorf("kind %s, mode %d (%d), runner-up %d, state %s, expected %s, %d (%d), %d, %s",
					c.Kind, c.Mode, c.ModeCount, c.RunnerUp, c.State, test.kind, test.mode, test.count, test.second, test.state)
			}
			evidence := map[aggregate.LocationID]aggregate.Evidence{}
			for _, r := range test.rows {
				at := r.location
				if test.level != nil {
					at = test.level(at)
				}
				evidence[at] |= evidenceAt(r.location)
			}
			if c.ModeEvidence != evidence[c.Mode] || c.RunnerUpEvidence != evidence[c.RunnerUp] {
				t.Errorf("evidence %d and %d, expected %d and %d", c.ModeEvidence, c.RunnerUpEvidence, evidence[c.Mode], evidence[c.RunnerUp])
			}
		})
	}
}

func TestTableOfNothing(t *testing.T) {
	s := table.New(table.Bounds{Resolution: time.Second, Rows: 10})
	if cells := s.Total().Cells(csig.MinABW, nil); len(cells) != 0 {
		t.Errorf("cells %v of nothing", cells)
	}
	var c aggregate.CellStats
	if c.State != aggregate.NoData || !math.IsNaN(c.Mean()) || !math.IsNaN(c.HeavyShare()) {
		t.Errorf("state %s, mean %v of a cell without observations", c.State, c.Mean())
	}
}

func TestLocations(t *testing.T) {
	s := rowsOf(t, []heavyRow{
		{csig.MinABW, decode.Tag, 501, 9, 2, 9}, {csig.MinABW, decode.Tag, 502, 9, 3, 9}, {csig.MinABW, decode.Tag, 0, 5, 0, 0},
	})
	want := []aggregate.LocationStats{
		{Location: 502, Observations: 9, Samples: 9, Heavy: 3, HeavySum: 9, Cells: 1},
		{Location: 501, Observations: 9, Samples: 9, Heavy: 2, HeavySum: 9, Cells: 1},
		{Location: 0, Observations: 5, Samples: 5},
	}
	if got := s.Locations(csig.MinABW, nil); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, expected %+v", got, want)
	}
}

// Steps add up to all blocks of a table, however far apart windows are.
func TestSteps(t *testing.T) {
	t.Parallel()
	second := int64(time.Second)
	for name, starts := range map[string][]int64{
		"one":          {5},
		"some":         {5, 6, 7, 8},
		"too many":     {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		"out of order": {500, 3, 77, 500, 4},
		"years apart":  {0, 2_000_000_000, 1_000_000_000},
		"few rows":     {5, 6, 7, 8},
		"one row":      {0, 9_000_000_000, 1, 7},
	} {
		keys := 100
		switch name {
		case "few rows":
			keys = 2
		case "one row":
			keys = 1
		}
		line := table.New(table.Bounds{Resolution: time.Second, Steps: 4, Rows: keys})
		for i, at := range starts {
			b := &aggregate.Block{
				Resolution: second, WindowStart: at * second,
				Signal: []uint8{uint8(csig.MinABW)}, Kind: []uint8{uint8(decode.Tag)}, Encoding: []uint8{0}, SrcGroup: []uint64{1}, DstGroup: []uint64{2}, Location: []uint64{uint64(i%2 + 3)},
				Observations: []uint64{10}, Samples: []uint64{10}, Unjudged: []uint64{0}, Bytes: []uint64{1}, Sum: []uint64{50}, Min: []uint64{5}, Max: []uint64{5},
				Untouched: []uint64{0}, Trimmed: []uint64{0}, Heavy: []uint64{2}, HeavySum: []uint64{10}, Evidence: []uint8{0},
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
		var at []int64
		var heavy uint64
		for _, s := range line.Steps() {
			at = append(at, s.Start)
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

// TestWidening: steps are the shortest whose number and rows are within the bounds, in whatever
// order blocks come, and nothing is lost. Rows that were handed out never change.
func TestWidening(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		bounds := table.Bounds{Resolution: time.Second, Steps: 2 + random.IntN(20), Rows: 40 + random.IntN(300)}
		var blocks []*aggregate.Block
		for range 1 + random.IntN(30) {
			b := tabletest.Block(random, 1, time.Unix(1e9+int64(random.IntN(200)), 0), 1+random.IntN(6), csig.MaxDelay)
			blocks = append(blocks, b)
		}
		want, rows := stepsOf(blocks, bounds)
		for range 3 {
			random.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
			one := table.New(bounds)
			write(t, one, blocks[0])
			early := one.Total()
			before := early.Cells(csig.MaxDelay, nil)
			write(t, one, blocks[1:]...)
			got := map[int64]uint64{}
			for _, s := range one.Steps() {
				s.Each(csig.MaxDelay, func(_ aggregate.CellID, l *aggregate.LocationStats) { got[s.Start] += l.Observations })
			}
			if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(early.Cells(csig.MaxDelay, nil), before) {
				t.Fatalf("%+v: steps of %s hold %v, want %v", bounds, one.Step(), got, want)
			}
			if one.Full() != (rows > bounds.Rows) {
				t.Fatalf("%+v: full %t with %d rows", bounds, one.Full(), rows)
			}
		}
	}
}

// stepsOf counts the observations of each step by brute force, and the rows that there would be if
// only the number of steps were bounded.
func stepsOf(blocks []*aggregate.Block, b table.Bounds) (map[int64]uint64, int) {
	first, last := blocks[0].WindowStart, blocks[0].WindowStart
	for _, b := range blocks {
		first, last = min(first, b.WindowStart), max(last, b.WindowStart)
	}
	type key struct {
		start, src, dst, location uint64
		kind                      uint8
	}
	unbounded := 0
	for _, factor := range []int64{1, 2, 10, 20, 100, 200, 1000, 2000, 10_000, 20_000, 100_000, 1 << 40} {
		width := factor * int64(b.Resolution)
		if factor == 1<<40 {
			width = math.MaxInt64
		}
		if last/width-first/width >= int64(b.Steps) {
			continue
		}
		sums, keys := map[int64]uint64{}, map[key]bool{}
		for _, b := range blocks {
			start := b.WindowStart - b.WindowStart%width
			for i, n := range b.Observations {
				sums[start] += n
				keys[key{uint64(start), b.SrcGroup[i], b.DstGroup[i], b.Location[i], b.Kind[i]}] = true
			}
		}
		if unbounded == 0 {
			unbounded = len(keys)
		}
		if len(keys) <= b.Rows || len(sums) == 1 {
			return sums, unbounded
		}
	}
	panic("no step is long enough") // the loop ends with one step for all blocks
}
