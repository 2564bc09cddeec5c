package table_test

import (
	"math"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// codesBlock returns a 1 s window in which a cell measured two codes.
func codesBlock(second int64, src uint64, codes ...uint16) *aggregate.Block {
	b := &aggregate.Block{
		Resolution: int64(time.Second), WindowStart: second * int64(time.Second),
		Signal: []uint8{uint8(csig.MaxDelay)}, Kind: []uint8{uint8(decode.Tag)}, Encoding: []uint8{1}, SrcGroup: []uint64{src}, DstGroup: []uint64{2},
		DistEnd: []uint32{uint32(len(codes))},
	}
	for _, c := range codes {
		b.DistCode, b.DistCount = append(b.DistCode, c), append(b.DistCount, 5)
	}
	return b
}

// TestDistributions: for any bounds, all codes are counted, in few enough steps.
func TestDistributions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		steps, codes int
		full         bool
		step         time.Duration
	}{
		"room enough":   {100, 1000, false, time.Second},
		"too many":      {4, 1000, false, 10 * time.Second},
		"no room":       {100, 12, true, 20 * time.Second},
		"for no window": {100, 3, true, 100 * time.Second},
	} {
		c := table.NewDistributions(time.Second, test.steps, test.codes)
		want := uint64(0)
		for second := range int64(40) {
			b := codesBlock(second, uint64(second%3), 7, 9)
			minute := *b
			minute.Resolution *= 60 // of another resolution
			for _, b := range []*aggregate.Block{b, &minute} {
				if err := c.WriteBlock(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			want += 10
		}
		got, starts, entries, step := uint64(0), map[int64]bool{}, 0, c.Step()
		c.Each(csig.MaxDelay, func(_ aggregate.CellID, n table.CodeCount) {
			got, entries = got+n.N, entries+1
			starts[n.Start] = true
			if n.Encoding != 1 || n.Code != 7 && n.Code != 9 || n.Start%int64(step) != 0 {
				t.Errorf("%s: %+v in steps of %s", name, n, step)
			}
		})
		// Codes of the overflow group are counted separately.
		if got != want || len(starts) > test.steps || entries > test.codes+2 || c.Full() != test.full || step != test.step {
			t.Errorf("%s: %d of %d codes in %d steps of %s and %d entries, full %t", name, got, want, len(starts), step, entries, c.Full())
		}
		c.Each(csig.MinABW, func(aggregate.CellID, table.CodeCount) { t.Errorf("%s: another signal has codes", name) })
	}
}

func suffering(host byte, kind decode.Kind, heavy, location uint64) aggregate.FlowRow {
	return aggregate.FlowRow{
		Flow: flow.Flow{Src: [16]byte{15: host}, Dst: [16]byte{15: 9}, SrcPort: 1, DstPort: 2, Proto: 6}, Signal: uint8(csig.MaxDelay), Kind: uint8(kind), SrcGroup: 3, DstGroup: 4,
		Observations: heavy, Bytes: 100 * heavy, Measured: heavy, Sum: 10 * heavy, Min: 5, Max: 20, Heavy: heavy, HeavySum: 10 * heavy, Location: location, LocationHeavy: heavy,
	}
}

// TestFlowTotals: flows add up over windows, tags have priority over reflections of the same flow,
// and the location is the one that most of them name.
func TestFlowTotals(t *testing.T) {
	t.Parallel()
	totals := table.NewFlowTotals(time.Minute, 4)
	write := func(resolution time.Duration, rows ...aggregate.FlowRow) {
		t.Helper()
		rows = append(rows, aggregate.FlowRow{Signal: uint8(csig.MaxDelay), Kind: uint8(decode.Tag), SrcGroup: 3, DstGroup: 4, Heavy: 1000}) // the rest
		if err := totals.WriteBlock(t.Context(), &aggregate.Block{Resolution: int64(resolution), Flows: rows}); err != nil {
			t.Fatal(err)
		}
	}
	write(time.Second, suffering(1, decode.Tag, 50, 7))
	write(time.Minute, suffering(1, decode.Tag, 4, 7), suffering(2, decode.Tag, 9, 8), suffering(1, decode.Reflection, 30, 7))
	write(time.Minute, suffering(1, decode.Tag, 5, 8), suffering(3, decode.Reflection, 9, 8))
	write(time.Minute, suffering(1, decode.Tag, 3, 7))
	if totals.Full() {
		t.Error("full, with room for 4 flows")
	}
	got := totals.Flows(csig.MaxDelay)
	if len(got) != 3 || len(totals.Flows(csig.MinABW)) != 0 {
		t.Fatalf("flows are %+v", got)
	}
	want := suffering(1, decode.Tag, 12, 7)
	want.LocationHeavy = 7
	for i, w := range []aggregate.FlowRow{want, suffering(2, decode.Tag, 9, 8), suffering(3, decode.Reflection, 9, 8)} {
		if got[i] != w {
			t.Errorf("flow %d is\n%+v, want\n%+v", i, got[i], w)
		}
	}
	write(time.Minute, suffering(4, decode.Tag, 99, 1))
	if !totals.Full() || len(totals.Flows(csig.MaxDelay)) != 3 {
		t.Errorf("%d flows where there is room for 4, full %t", len(totals.Flows(csig.MaxDelay)), totals.Full())
	}
}

// heavyBlock returns a 1 s block of min_abw_ratio tags, with a row of ten observations for each
// location and its number of heavy ones.
func heavyBlock(second int64, heavy map[uint64]uint64) *aggregate.Block {
	b := &aggregate.Block{Resolution: int64(time.Second), WindowStart: second * int64(time.Second)}
	for location, n := range heavy {
		b.Signal = append(b.Signal, uint8(csig.MinABWRatio))
		b.Kind = append(b.Kind, uint8(decode.Tag))
		b.Location = append(b.Location, location)
		b.Observations = append(b.Observations, 10)
		b.Heavy = append(b.Heavy, n)
		b.Seq += location<<8 + n // a different one for different rows
	}
	return b
}

func TestTopBottlenecks(t *testing.T) {
	w := table.NewTopBottlenecks(time.Second, time.Minute, 400)
	write := func(b *aggregate.Block) {
		t.Helper()
		if err := w.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	write(heavyBlock(1000, map[uint64]uint64{501: 2, 502: 5, 503: 0, 0: 4}))
	write(heavyBlock(1015, map[uint64]uint64{501: 4, 504: 5}))
	minute := heavyBlock(1000, map[uint64]uint64{501: 9})
	minute.Resolution = int64(time.Minute)
	write(minute)
	reflected := heavyBlock(1015, map[uint64]uint64{501: 1})
	reflected.Kind[0] = uint8(decode.Reflection)
	write(reflected)
	write(reflected) // a retry counts once

	want := []table.SignalBottlenecks{
		{
			Signal: csig.MinABWRatio, Kind: decode.Tag, Observations: 60, Heavy: 20,
			Locations: []table.HeavyLocation{{501, 6}, {502, 5}},
		},
		{
			Signal: csig.MinABWRatio, Kind: decode.Reflection, Observations: 10, Heavy: 1,
			Locations: []table.HeavyLocation{{501, 1}},
		},
	}
	if got := w.Top(1020*int64(time.Second), 2); !reflect.DeepEqual(got, want) {
		t.Errorf("after 20 s: got %+v, want %+v", got, want)
	}
	got := w.Top(1065*int64(time.Second), 2)
	if len(got) != 2 || got[0].Heavy != 9 || got[0].Locations[0] != (table.HeavyLocation{504, 5}) {
		t.Errorf("after 65 s the first windows are still there: %+v", got)
	}
	if got := w.Top(1100*int64(time.Second), 2); len(got) != 0 {
		t.Errorf("long after the last window: %+v", got)
	}
	write(heavyBlock(1075, map[uint64]uint64{505: 1}))
	write(heavyBlock(1015, map[uint64]uint64{501: 1}))
	if got := w.Top(1076*int64(time.Second), 2); len(got) != 1 || got[0].Locations[0].Location != 505 {
		t.Errorf("a window from before the range counts: %+v", got)
	}
}

// TestTopBottlenecksBounded: locations past the bound become one, and the total stays complete.
func TestTopBottlenecksBounded(t *testing.T) {
	w := table.NewTopBottlenecks(time.Second, time.Minute, 32)
	heavy := make(map[uint64]uint64)
	for i := range uint64(1000) {
		heavy[2+i] = 1
	}
	_ = w.WriteBlock(t.Context(), heavyBlock(1000, heavy))
	got := w.Top(1000*int64(time.Second), math.MaxInt)
	if len(got) != 1 || len(got[0].Locations) != 9 || got[0].Heavy != 1000 {
		t.Fatalf("got %+v", got)
	}
	if first := got[0].Locations[0]; first != (table.HeavyLocation{aggregate.OverflowLocation, 992}) {
		t.Errorf("overflow has %+v", first)
	}
}

// TestTopBottlenecksConcurrent is for the race detector.
func TestTopBottlenecksConcurrent(t *testing.T) {
	w := table.NewTopBottlenecks(time.Second, time.Minute, 400)
	var group sync.WaitGroup
	for g := range uint64(4) {
		group.Go(func() {
			for i := range int64(200) {
				_ = w.WriteBlock(t.Context(), heavyBlock(1000+i, map[uint64]uint64{500 + g: 1}))
				w.Top((1000+i)*int64(time.Second), 3)
			}
		})
	}
	group.Wait()
	if got := w.Top(1199*int64(time.Second), 9); len(got) != 1 || got[0].Heavy == 0 || len(got[0].Locations) != 4 {
		t.Errorf("got %+v", got)
	}
}
