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

// Two taps give the same summary in either order, and merging summaries is the same
// as writing to one.
func TestSummaryOrder(t *testing.T) {
	a := randomObservations(rand.New(rand.NewPCG(1, 9)), 3000)
	b := randomObservations(rand.New(rand.NewPCG(2, 9)), 3000)
	summarize := func(into *table.Summary, taps ...[]decode.Observation) *table.Summary {
		for _, tap := range taps {
			run(t, newShard(t, window.Config{Tap: window.Tap{Tags: true, Reflections: true}}, into), tap, 256)
		}
		return into
	}
	fresh := func() *table.Summary { return table.NewSummary(time.Minute, 1<<20) }
	ab, ba := summarize(fresh(), a, b), summarize(fresh(), b, a)
	merged := summarize(fresh(), b)
	merged.Merge(summarize(fresh(), a))
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

func TestSummaryOverflow(t *testing.T) {
	s := table.NewSummary(time.Second, 5)
	c := run(t, newShard(t, window.Config{Tap: window.Tap{Tags: true}}, s), randomObservations(rand.New(rand.NewPCG(1, 9)), 3000), 256)
	var total uint64
	for sig := range csig.Signal(csig.NumSignals) {
		for _, cell := range s.Cells(sig, nil) {
			total += cell.Observations
		}
	}
	if total != c.Stored {
		t.Errorf("%d observations in the summary, %d stored", total, c.Stored)
	}
}
