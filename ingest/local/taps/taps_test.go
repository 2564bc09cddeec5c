package taps

import (
	"maps"
	"slices"
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
			if reopen, err := next.takeOver(last, nil); err != nil || reopen != (how == i) {
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

// TestRenamed: a tap replaces the one at its place, whatever the names of both, unless that one stays there.
func TestRenamed(t *testing.T) {
	for name, test := range map[string]struct{ before, after, want map[string]string }{
		"the same":      {map[string]string{"a": "eth0"}, map[string]string{"a": "eth0"}, nil},
		"renamed":       {map[string]string{"a": "eth0", "b": "eth1"}, map[string]string{"c": "eth0", "b": "eth1"}, map[string]string{"c": "a"}},
		"exchanged":     {map[string]string{"a": "eth0", "b": "eth1"}, map[string]string{"a": "eth1", "b": "eth0"}, map[string]string{"a": "b", "b": "a"}},
		"one more":      {map[string]string{"a": "eth0"}, map[string]string{"a": "eth0", "b": "eth0"}, nil},
		"another place": {map[string]string{"a": "eth0"}, map[string]string{"a": "eth1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			before, got := make(Set), make(map[string]string)
			for _, name := range slices.Sorted(maps.Keys(test.before)) {
				before[name] = &Tap{name: name, from: test.before[name]}
			}
			for name, from := range test.after {
				if old := before.renamed(&Tap{name: name, from: from}, test.after); old != nil {
					got[name] = old.name
				}
			}
			if !maps.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}
