package local

import (
	"testing"
	"time"
)

// TestTagWatch: the absence of CSIG is logged once, after 30 s and 1000 packets of this
// process, and its arrival only after such a warning.
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
		"counted again":   {{0, 5000, 0, 0}, {29 * time.Second, 7, 0, 0}, {31 * time.Second, 5000, 0, 0}, {59 * time.Second, 5000, 0, tagsMissing}},
	} {
		w, begin := tagWatch{}, time.Unix(1e9, 0)
		for _, l := range looks {
			if got := w.evaluate(begin.Add(l.at), l.packets, l.observations); got != l.want {
				t.Errorf("%s: after %s word %d, want %d", name, l.at, got, l.want)
			}
		}
	}
}
