package table_test

import (
	"context"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
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

func summaryOf(t *testing.T, rows []heavyRow) *table.Summary {
	t.Helper()
	s := table.NewSummary(time.Second, 1000)
	for _, r := range rows {
		b := &aggregate.Block{
			Resolution: int64(time.Second), Signal: []uint8{uint8(r.signal)}, Kind: []uint8{uint8(r.kind)}, Encoding: []uint8{1},
			SrcGroup: []uint64{7}, DstGroup: []uint64{8}, Location: []uint64{uint64(r.location)},
			Observations: []uint64{r.observations}, Bytes: []uint64{1}, Sum: []uint64{r.heavSum}, Min: []uint64{1}, Max: []uint64{9},
			Untouched: []uint64{0}, Trimmed: []uint64{0}, Heavy: []uint64{r.heavy}, HeavySum: []uint64{r.heavSum},
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
	return s
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
			cells := summaryOf(t, test.rows).Cells(test.rows[0].signal, test.level)
			if len(cells) != 1 {
				t.Fatalf("%d cells, expected 1", len(cells))
			}
			c := cells[0]
			if c.Kind != test.kind || c.Mode != test.mode || c.RunnerUp != test.second || c.ModeCount != test.count || c.State != test.state {
				t.Errorf("kind %s, mode %d (%d), runner-up %d, state %s, expected %s, %d (%d), %d, %s",
					c.Kind, c.Mode, c.ModeCount, c.RunnerUp, c.State, test.kind, test.mode, test.count, test.second, test.state)
			}
		})
	}
}

func TestSummaryOfNothing(t *testing.T) {
	s := table.NewSummary(time.Second, 10)
	if cells := s.Cells(csig.MinABW, nil); len(cells) != 0 {
		t.Errorf("cells %v of nothing", cells)
	}
	var c aggregate.CellStats
	if c.State != aggregate.NoData || !math.IsNaN(c.Mean()) || !math.IsNaN(c.HeavyShare()) {
		t.Errorf("state %s, mean %v of a cell without observations", c.State, c.Mean())
	}
}

func TestLocations(t *testing.T) {
	s := summaryOf(t, []heavyRow{
		{csig.MinABW, decode.Tag, 501, 9, 2, 9}, {csig.MinABW, decode.Tag, 502, 9, 3, 9}, {csig.MinABW, decode.Tag, 0, 5, 0, 0},
	})
	want := []aggregate.LocationStats{
		{Location: 502, Observations: 9, Heavy: 3, HeavySum: 9, Cells: 1},
		{Location: 501, Observations: 9, Heavy: 2, HeavySum: 9, Cells: 1},
		{Location: 0, Observations: 5},
	}
	if got := s.Locations(csig.MinABW, nil); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, expected %+v", got, want)
	}
}
