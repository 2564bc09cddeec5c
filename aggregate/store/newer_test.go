package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// TestNewerIsHeld: records that this version cannot read hold up no others, of their class or
// another. They wait up to a bound; beyond it they become a gap with their number.
func TestNewerIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), &Outbox{Dir: t.TempDir(), MaxBytes: 256 << 10}
		s := storeBefore(t, f, o)
		log := s.deliveries[0].log
		newer := make([]byte, 1000)
		newer[0] = batchFormat + 1
		const records, rows = 60, 7
		for i := range int64(records) {
			at := outbox.Extent{From: testStart.UnixNano() + i, To: testStart.UnixNano() + i + 1}
			if err := log.Append(outbox.Record{Class: secondTable, Weight: rows, Extent: at, Payload: newer}); err != nil {
				t.Fatal(err)
			}
		}
		put(t, s, 1, 1, time.Second, 10)
		put(t, s, 1, 2, time.Minute, 10)
		for range 2 {
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		gaps := uint64(0)
		for g := range f.gaps {
			if g.Reason != string(lostNewer) || g.From < testStart.UnixNano() {
				t.Errorf("gap %+v", g)
			}
			gaps += g.Rows
		}
		held := log.Stats().Held
		if _, bytes := log.Held(); len(f.rows) != 20 || gaps == 0 || held.Weight+gaps != records*rows || bytes > o.MaxBytes/16 {
			t.Errorf("%d rows stored, %d held in %d bytes, %d in gaps, want 20 and %d together", len(f.rows), held.Weight, bytes, gaps, records*rows)
		}
		closeStore(t, s)
		s = storeBefore(t, f, o)
		if err := s.Flush(t.Context()); err != nil || s.deliveries[0].log.Stats().Held != held {
			t.Errorf("%v, %+v held by the next process, want %+v", err, s.deliveries[0].log.Stats().Held, held)
		}
		closeStore(t, s)
	})
}
