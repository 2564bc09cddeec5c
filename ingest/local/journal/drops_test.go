package journal

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/ingest/local"
)

// TestDropsCoverTheStall: a ring that hangs for a minute counts its drops at the end. The
// gap begins before the stall.
func TestDropsCoverTheStall(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	r := newRecording(t, start)
	for range 20 {
		r.second(10, 0)
		r.kernel.Dropped = 0
	}
	cut := r.at
	for range 60 {
		r.at = r.at.Add(time.Second)
		r.ring.Cut = cut // as the pipeline has it
		if _, err := r.Recorder.barrier(r.at, []local.Mark{{Name: "leaf"}}); err != nil {
			t.Fatal(err)
		}
	}
	r.gone = map[int64]store.Gap{}
	r.kernel.Dropped += 8500
	r.last = true
	r.barrier()
	for _, g := range r.gone {
		if g.Observations != 2*8500 || g.From.After(cut) || g.From.Before(cut.Add(-2*time.Second)) || g.To.Before(r.at) {
			t.Errorf("gap of %d from %s to %s after the last second that was read, want it from there to %s",
				g.Observations, g.From.Sub(cut), g.To.Sub(cut), r.at.Sub(cut))
		}
	}
	if len(r.gone) != 1 {
		t.Errorf("%d gaps, want one", len(r.gone))
	}
}
