package taps

import (
	"testing"

	"github.com/csigscope/csigscope/capture"
)

// TestCountersOfReplaced: the totals of a name have all counts of taps that a reload replaces, also those after it opens the next
// one.
func TestCountersOfReplaced(t *testing.T) {
	var counts [4]capture.TapCounters
	var last *Tap
	want := uint64(0)
	add := func(i int) {
		counts[i].Dropped++
		want++
	}
	for i := range counts {
		how := i - i%2 // every second one continues
		next := &Tap{how: how, open: func() error { return nil }, count: func() capture.TapCounters { return counts[how] }}
		if last != nil {
			add(how)
			if reopen, err := next.takeOver(last); err != nil || reopen != (how == i) {
				t.Fatalf("tap %d: reopen %t, %v", i, reopen, err)
			}
			add(last.how.(int))
			add(how)
		}
		if got := next.Counters().Dropped; got != want {
			t.Errorf("tap %d: %d dropped, want %d", i, got, want)
		}
		last = next
	}
}
