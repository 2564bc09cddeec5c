package main

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
)

// TestTagWatch: that there is no CSIG is told once, after 30 s and 1000 packets of this
// process, and that it came only where it was missed.
func TestTagWatch(t *testing.T) {
	t.Parallel()
	type look struct {
		at                    time.Duration
		packets, observations uint64
		want                  tagWord
	}
	for name, looks := range map[string][]look{
		"none, then some": {{0, 5000, 0, 0}, {29 * time.Second, 9000, 0, 0}, {30 * time.Second, 9000, 0, tagsMissing}, {time.Hour, 1 << 40, 0, 0}, {2 * time.Hour, 1 << 40, 1, tagsCame}, {3 * time.Hour, 1 << 41, 2, 0}},
		"few packets":     {{0, 5000, 0, 0}, {time.Hour, 5999, 0, 0}, {time.Hour, 6000, 0, tagsMissing}},
		"soon":            {{0, 0, 0, 0}, {time.Second, 9000, 3, 0}, {time.Hour, 1 << 40, 3, 0}},
		"counted anew":    {{0, 5000, 0, 0}, {29 * time.Second, 7, 0, 0}, {31 * time.Second, 5000, 0, 0}, {59 * time.Second, 5000, 0, tagsMissing}},
	} {
		w, begin := tagWatch{}, time.Unix(1e9, 0)
		for _, l := range looks {
			if got := w.look(begin.Add(l.at), l.packets, l.observations); got != l.want {
				t.Errorf("%s: after %s word %d, want %d", name, l.at, got, l.want)
			}
		}
	}
}

// TestPrefixWatch: the first time is said at once, then once a minute, with what was left out.
func TestPrefixWatch(t *testing.T) {
	type word struct {
		unknown, forgotten uint64
		ok                 bool
	}
	a, b := new(fabric.Fabric), new(fabric.Fabric)
	var w prefixWatch
	for i, look := range []struct {
		at                 time.Duration
		of                 *fabric.Fabric
		unknown, forgotten uint64
		want               word
	}{
		{0, a, 0, 0, word{}},
		{time.Second, a, 3, 0, word{3, 0, true}},
		{2 * time.Second, a, 10, 1, word{}},
		{61 * time.Second, a, 10, 4, word{7, 4, true}},
		{200 * time.Second, a, 10, 4, word{}},
		{201 * time.Second, b, 1, 0, word{1, 0, true}},
	} {
		var got word
		got.unknown, got.forgotten, got.ok = w.look(time.Unix(1000, 0).Add(look.at), look.of, fabric.Counts{GroupFallbacks: look.unknown, GroupsForgotten: look.forgotten})
		if got != look.want {
			t.Errorf("look %d: %+v, want %+v", i, got, look.want)
		}
	}
}
