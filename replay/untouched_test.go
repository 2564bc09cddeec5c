package replay_test

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// If the first hop replaces the initial value even by an equal one (IBCS draft, section 6.1), a
// replay with the matching configuration names the port; no other numbers change.
func TestLocateUntouched(t *testing.T) {
	t.Parallel()
	rec := record(t, func(s *scenario.Scenario) { classic(s); s.ReplaceInitial = true })
	var untouched, heavy, located [2]uint64
	for i, locate := range []bool{false, true} {
		sink := &blocks{}
		cfg := rec.config(sink)
		cfg.LocateUntouched = locate
		replayed(t, cfg)
		for _, b := range sink.list {
			if b.Resolution != int64(time.Second) {
				continue
			}
			for row := range b.Untouched {
				untouched[i] += b.Untouched[row]
				heavy[i] += b.Heavy[row]
				if aggregate.LocationID(b.Location[row]) != aggregate.NoLocation {
					located[i] += b.Untouched[row]
				}
			}
		}
	}
	if untouched[0] == 0 || untouched[0] != untouched[1] || heavy[0] != heavy[1] {
		t.Errorf("untouched %v, heavy %v: expected the same with and without locations", untouched, heavy)
	}
	if located[0] != 0 || located[1] == 0 {
		t.Errorf("%v untouched observations have a location: expected some of them when configured, and none otherwise", located)
	}
}
