package table_test

import (
	"math"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// worstBlock is a 1 s block of min_abw_ratio tags, a row for each location with its
// heavy observations, of ten each.
func worstBlock(second int64, heavy map[uint64]uint64) *aggregate.Block {
	b := &aggregate.Block{Resolution: int64(time.Second), WindowStart: second * int64(time.Second)}
	for location, n := range heavy {
		b.Signal = append(b.Signal, uint8(csig.MinABWRatio))
		b.Kind = append(b.Kind, uint8(decode.Tag))
		b.Location = append(b.Location, location)
		b.Observations = append(b.Observations, 10)
		b.Heavy = append(b.Heavy, n)
	}
	return b
}

func TestWorst(t *testing.T) {
	w := table.NewWorst(time.Second, time.Minute, 100)
	write := func(b *aggregate.Block) {
		t.Helper()
		if err := w.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	write(worstBlock(1000, map[uint64]uint64{501: 2, 502: 5, 503: 0, 0: 4}))
	write(worstBlock(1015, map[uint64]uint64{501: 4, 504: 5}))
	minute := worstBlock(1000, map[uint64]uint64{501: 9})
	minute.Resolution = int64(time.Minute)
	write(minute)
	reflected := worstBlock(1015, map[uint64]uint64{501: 1})
	reflected.Kind[0] = uint8(decode.Reflection)
	write(reflected)

	want := []table.WorstSignal{
		{
			Signal: csig.MinABWRatio, Kind: decode.Tag, Observations: 60, Heavy: 20,
			Locations: []table.WorstLocation{{501, 6}, {502, 5}},
		},
		{
			Signal: csig.MinABWRatio, Kind: decode.Reflection, Observations: 10, Heavy: 1,
			Locations: []table.WorstLocation{{501, 1}},
		},
	}
	if got := w.Top(1020*int64(time.Second), 2); !reflect.DeepEqual(got, want) {
		t.Errorf("after 20 s: got %+v, want %+v", got, want)
	}
	got := w.Top(1065*int64(time.Second), 2)
	if len(got) != 2 || got[0].Heavy != 9 || got[0].Locations[0] != (table.WorstLocation{504, 5}) {
		t.Errorf("after 65 s the first windows are still there: %+v", got)
	}
	if got := w.Top(1100*int64(time.Second), 2); len(got) != 0 {
		t.Errorf("long after the last window: %+v", got)
	}
	write(worstBlock(1075, map[uint64]uint64{505: 1}))
	write(worstBlock(1015, map[uint64]uint64{501: 1}))
	if got := w.Top(1076*int64(time.Second), 2); len(got) != 1 || got[0].Locations[0].Location != 505 {
		t.Errorf("a window from before the range counts: %+v", got)
	}
}

// TestWorstBounded: locations past the bound are one, and nothing of the total is lost.
func TestWorstBounded(t *testing.T) {
	w := table.NewWorst(time.Second, time.Minute, 8)
	heavy := make(map[uint64]uint64)
	for i := range uint64(1000) {
		heavy[2+i] = 1
	}
	_ = w.WriteBlock(t.Context(), worstBlock(1000, heavy))
	got := w.Top(1000*int64(time.Second), math.MaxInt)
	if len(got) != 1 || len(got[0].Locations) != 9 || got[0].Heavy != 1000 {
		t.Fatalf("got %+v", got)
	}
	if first := got[0].Locations[0]; first != (table.WorstLocation{aggregate.OverflowLocation, 992}) {
		t.Errorf("overflow has %+v", first)
	}
}

// TestWorstConcurrent is for the race detector.
func TestWorstConcurrent(t *testing.T) {
	w := table.NewWorst(time.Second, time.Minute, 100)
	var group sync.WaitGroup
	for g := range uint64(4) {
		group.Go(func() {
			for i := range int64(200) {
				_ = w.WriteBlock(t.Context(), worstBlock(1000+i, map[uint64]uint64{500 + g: 1}))
				w.Top((1000+i)*int64(time.Second), 3)
			}
		})
	}
	group.Wait()
	if got := w.Top(1199*int64(time.Second), 9); len(got) != 1 || got[0].Heavy == 0 || len(got[0].Locations) != 4 {
		t.Errorf("got %+v", got)
	}
}
