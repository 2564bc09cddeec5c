package store

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/csigscope/csigscope/aggregate"
)

// TestGather: rows that arrive every second go to the server every interval, those of one
// partition together; a caller that waits for them does not wait for the interval.
func TestGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		s := storeBefore(t, f, &Outbox{Dir: t.TempDir(), Interval: 10 * time.Second})
		for seq := range uint64(60) {
			put(t, s, 1, seq, time.Second, 10)
			put(t, s, 1, seq, 10*time.Millisecond, 10)
			if seq%20 == 0 {
				put(t, s, 1, seq, time.Minute, 10)
			}
			time.Sleep(time.Second)
		}
		got := s.WriterStats()
		if got.Batches < 10 || got.Batches > 24 || got.Rows < 900 {
			t.Errorf("after a minute %d rows in %d batches, want nearly all in about 6 of each table", got.Rows, got.Batches)
		}
		before := time.Now()
		if err := s.Flush(t.Context()); err != nil || time.Since(before) > time.Second {
			t.Errorf("flush took %s: %v", time.Since(before), err)
		}
		if f.raw != 1230 {
			t.Errorf("%d rows are stored, want 1230", f.raw)
		}
		closeStore(t, s)
	})
}

// TestGatherFlows: flows go to the server together with those of the same day, and no others.
func TestGatherFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		s := storeBefore(t, f, &Outbox{Dir: t.TempDir(), Interval: time.Hour})
		for i := range 6 {
			b := withFlows(uint64(i))
			b.WindowStart += int64(i/2) * int64(24*time.Hour)
			if err := errors.Join(s.WriteBlock(t.Context(), b), s.writer.flush(t.Context(), nil)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		slices.Sort(f.order) // which table is first depends on which waits when the caller hurries
		if want := []string{"flows", "flows", "flows", "rows", "rows", "rows"}; !slices.Equal(f.order, want) || f.records["flows"] != 12 {
			t.Errorf("came %q with %d flows, want %q with 12", f.order, f.records["flows"], want)
		}
		closeStore(t, s)
	})
}

// TestManyMonths: no insert has too many partitions, neither of rows that come together nor of
// one record.
func TestManyMonths(t *testing.T) {
	s := openWithOutbox(t)
	s.deliveries[0].interval = time.Hour
	var taps []TapRow
	for i := range 120 {
		b := withFlows(uint64(i + 1))
		b.WindowStart += int64(i) * int64(24*time.Hour)
		if err := s.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		taps = append(taps, aTap(b.Source, b.Seq, testStart.AddDate(0, i, 0)))
	}
	if err := errors.Join(s.WriteTaps(t.Context(), taps), s.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	if flows, taps := rawRows(t, s, "flows"), rawRows(t, s, "taps"); flows != 240 || taps != 120 {
		t.Errorf("%d flows and %d taps are stored, want 240 and 120", flows, taps)
	}
}

// TestGatherRefused: after a joint refusal, only the rows that are refused alone are lost.
func TestGatherRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		f.refuse = 7
		s := storeBefore(t, f, &Outbox{Dir: t.TempDir(), Interval: time.Minute})
		for seq := range uint64(9) {
			put(t, s, 1, seq, time.Second, 10)
			if seq == 4 {
				put(t, s, 7, seq, time.Second, 10)
			}
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f.observations() != 90 || s.lostOf(aggregate.Source{Producer: 7}) != 10 || s.lostOf(aggregate.Source{Producer: 1}) != 0 {
			t.Errorf("%d observations are stored, %d and %d rows lost", f.observations(), s.lostOf(aggregate.Source{Producer: 7}), s.lostOf(aggregate.Source{Producer: 1}))
		}
		closeStore(t, s)
	})
}

// TestThrottled: a server with too many parts is left alone for a while, and that is counted.
func TestThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		f.setErr(&clickhouse.Exception{Code: codeTooManyParts})
		s := storeBefore(t, f, &Outbox{Dir: t.TempDir()})
		put(t, s, 1, 1, time.Second, 10)
		time.AfterFunc(time.Minute, func() { f.setErr(nil) })
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.WriterStats(); got.Throttled < 5 || got.Throttled > 13 || got.Retries != got.Throttled {
			t.Errorf("%+v: want an attempt every 5 s", got)
		}
		if err := errors.Join(s.Close()); err != nil {
			t.Fatal(err)
		}
	})
}
