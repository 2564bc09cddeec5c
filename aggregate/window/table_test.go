package window_test

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Two taps give the same table in either order, and merging the rows of two tables is the same as
// writing to one.
func TestTableOrder(t *testing.T) {
	a := randomObservations(rand.New(rand.NewPCG(1, 9)), 3000)
	b := randomObservations(rand.New(rand.NewPCG(2, 9)), 3000)
	summarize := func(taps ...[]decode.Observation) table.Rows {
		into := table.New(table.Bounds{Resolution: time.Minute, Rows: 1 << 20})
		for _, tap := range taps {
			run(t, newShard(t, window.Config{Tap: window.Tap{Tags: true, Reflections: true}}, into), tap, 256)
		}
		return into.Total()
	}
	ab, ba := summarize(a, b), summarize(b, a)
	merged := table.Merge([]*table.Window{{Rows: summarize(b)}, {Rows: summarize(a)}})
	empty := true
	for sig := range csig.Signal(csig.NumKnown) {
		want := ab.Cells(sig, nil)
		empty = empty && len(want) == 0
		if !reflect.DeepEqual(want, ba.Cells(sig, nil)) || !reflect.DeepEqual(want, merged.Cells(sig, nil)) {
			t.Errorf("cells of %s depend on the order of the taps", sig)
		}
	}
	if empty {
		t.Error("no cells to compare")
	}
}

func TestTableOverflow(t *testing.T) {
	s := table.New(table.Bounds{Resolution: time.Second, Rows: 5})
	c := run(t, newShard(t, window.Config{Tap: window.Tap{Tags: true}}, s), randomObservations(rand.New(rand.NewPCG(1, 9)), 3000), 256)
	var total uint64
	for sig := range csig.Signal(csig.NumSignals) {
		for _, cell := range s.Total().Cells(sig, nil) {
			total += cell.Observations
		}
	}
	if total != c.Stored {
		t.Errorf("%d observations in the table, %d stored", total, c.Stored)
	}
}
