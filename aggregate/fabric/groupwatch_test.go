package fabric

import (
	"testing"
	"time"
)

// TestGroupWatch: the first warning comes at once, later ones once a minute, with the sums since
// the last one.
func TestGroupWatch(t *testing.T) {
	type word struct {
		unknown, forgotten uint64
		ok                 bool
	}
	a, b := new(Fabric), new(Fabric)
	var w groupWatch
	for i, look := range []struct {
		at                 time.Duration
		of                 *Fabric
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
		got.unknown, got.forgotten, got.ok = w.sinceReport(time.Unix(1000, 0).Add(look.at), look.of, Counts{GroupFallbacks: look.unknown, GroupsForgotten: look.forgotten})
		if got != look.want {
			t.Errorf("look %d: %+v, want %+v", i, got, look.want)
		}
	}
}
