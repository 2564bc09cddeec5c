package store

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestRetention(t *testing.T) {
	sequential(t)
	s := openStore(t)
	want := func(when string, want Retention) {
		t.Helper()
		if got, err := s.Retention(t.Context()); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", when, got, err, want)
		}
	}
	const day = 24 * time.Hour
	want("from the start", Retention{6 * time.Hour, 14 * day, 400 * day})
	for range 2 {
		if err := s.SetRetention(t.Context(), Retention{90 * time.Minute, 30 * day, 0}); err != nil {
			t.Fatal(err)
		}
		want("set", Retention{90 * time.Minute, 30 * day, 400 * day})
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.SetRetention(t.Context(), Retention{3601 * time.Second}); err != nil {
		t.Fatal(err)
	}
	want("after a migration", Retention{3601 * time.Second, 30 * day, 400 * day})
	for _, d := range []time.Duration{-time.Hour, time.Hour - 1, time.Hour + time.Millisecond, MaxRetention + time.Second} {
		if err := s.SetRetention(t.Context(), Retention{0, d}); !errors.Is(err, ErrRetention) {
			t.Errorf("%s: %v, want ErrRetention", d, err)
		}
	}
	alive := s.migrator
	s.migrator = &mortal{alive, 0}
	if err := s.SetRetention(t.Context(), Retention{0, 30 * day, 400 * day}); err != nil {
		t.Errorf("set to what holds: %v, want no statement", err)
	}
}

func TestTrim(t *testing.T) {
	s := verified(t, 4)
	c, err := s.Contents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if dropped, err := s.Trim(t.Context(), c.Bytes+1<<20); err != nil || len(dropped) != 0 {
		t.Errorf("within the budget: %v, %v", dropped, err)
	}
	held := readStrings(t, s, "SELECT toString((count(), sum(observations))) FROM csigscope.partials_1s FINAL")
	dropped, err := s.Trim(t.Context(), c.Bytes-1)
	if err != nil || len(dropped) != 1 || dropped[0].Table != "partials_fine" || dropped[0].Rows == 0 {
		t.Fatalf("a byte above: %+v, %v", dropped, err)
	}
	rest, err := s.Trim(t.Context(), 0)
	if !errors.Is(err, ErrDisk) {
		t.Errorf("no room at all: %v, want ErrDisk", err)
	}
	tables := make([]string, 0, len(rest))
	for _, d := range rest {
		tables = append(tables, d.Table+" "+d.Partition)
	}
	if !slices.Equal(tables, []string{"partials_1s 20240229", "partials_1s 20240301"}) {
		t.Errorf("then %q, want the seconds of both days", tables)
	}
	gaps := readStrings(t, s, "SELECT toString((sum(rows), sum(observations))) FROM csigscope.gaps FINAL WHERE reason = 'trimmed' AND resolution_ns = 1000000000 AND window_to > window_from")
	if !slices.Equal(gaps, held) {
		t.Errorf("gaps of %s rows and observations, want %s", gaps, held)
	}
	if n := readStrings(t, s, "SELECT toString(count()) FROM csigscope.gaps FINAL"); n[0] != "6" {
		t.Errorf("%s gaps, want one for each of 2 producers in 3 partitions", n)
	}
	c, err = s.Contents(t.Context())
	if err != nil || c.Tables[0].Rows != 0 || c.Tables[1].Rows != 0 || c.Tables[2].Rows == 0 {
		t.Errorf("left %+v, %v, want 1 min rows alone", c.Tables, err)
	}
}
