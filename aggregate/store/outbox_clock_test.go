package store

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// TestClockJumps: rows are kept for the right time, no shorter and no longer, even if the next
// process has a very different clock; none is lost, and gaps carry that process's time. Only rows
// that are older than the retention by that clock, and that the server lacks, count as expired.
func TestClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{-200_000 * time.Hour, -26 * time.Hour, 26 * time.Hour, 200_000 * time.Hour} {
		synctest.Test(t, func(t *testing.T) { oneJump(t, jump) })
	}
}

func oneJump(t *testing.T, jump time.Duration) {
	f, o := newFakeServer(), smallOutbox(t)
	o.Keep = 10 * time.Minute
	next := func() *Store {
		s := storeBefore(t, f, o)
		s.deliveries[0].start()
		return s
	}
	s := next()
	put(t, s, 1, 1, time.Second, 10)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)

	o.Now = func() time.Time { return time.Now().Add(jump) }
	s = next()
	time.Sleep(5 * time.Minute)
	f.forget(1)
	f.setErr(errAway)
	put(t, s, 1, 2, time.Second, 10)
	time.Sleep(time.Minute)
	f.setErr(nil)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)
	want := uint64(20) // the expired ones return once the clock is set back
	if jump > 14*24*time.Hour {
		want = 10
	}
	if got := f.observations(); got != want {
		t.Errorf("clock set by %s: %d observations, want %d", jump, got, want)
	}
	closeStore(t, s)

	o.Now = func() time.Time { return time.Now().Add(-jump) }
	s = next()
	time.Sleep(30 * time.Minute)
	if left, err := filepath.Glob(filepath.Join(o.Dir, "1", "*.seg")); err != nil || len(left) > 0 {
		t.Errorf("clock set by %s: %s are kept for more than %s, %v", -2*jump, left, o.Keep, err)
	}

	f.setErr(errAway)
	s.deliveries[0].live.Store(true)
	for seq := range uint64(400) {
		put(t, s, 2, seq, 10*time.Millisecond, 40)
	}
	f.setErr(nil)
	for range 2 {
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	gaps := uint64(0)
	for g := range f.gaps {
		gaps += g.Rows
		if off := time.Unix(0, g.At).Sub(o.Now()); off.Abs() > time.Hour {
			t.Errorf("clock set by %s: gap at %s", jump, time.Unix(0, g.At))
		}
	}
	if lost := s.lostOf(aggregate.Source{Producer: 2}); gaps == 0 || gaps != lost || f.observations()+gaps != 20+400*40 {
		t.Errorf("clock set by %s: %d observations and %d in gaps, %d counted", jump, f.observations(), gaps, lost)
	}
	closeStore(t, s)
}
