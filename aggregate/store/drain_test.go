package store

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/csigscope/csigscope/aggregate"
)

// TestDrain brings rows into a database that never had them, and into one that lost them; and
// discards them on request.
func TestDrain(t *testing.T) {
	o := engineOptions(t)
	dir := t.TempDir()
	o.Outbox = &Outbox{Dir: dir}
	g := traffic{resolution: time.Second, windows: 20, groups: 5, locations: 12, signals: allSignals}
	rows := g.rows(rand.New(rand.NewPCG(8, 8)), aggregate.Source{Producer: 7, Incarnation: 2})
	// leave closes a store before its server takes a row.
	leave := func() {
		t.Helper()
		away := o
		away.Writer = &clickhouse.Options{Addr: []string{"127.0.0.1:1"}, DialTimeout: time.Second}
		s, err := Open(t.Context(), away)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks(rows) {
			if err := s.WriteBlock(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	opened := func(first, use func(*Store)) {
		t.Helper()
		s, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		first(s)
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		use(s)
	}
	settle := func(s *Store, when string, check func(Drained) bool) {
		t.Helper()
		got, err := s.Drain(t.Context())
		if err != nil || !check(got) {
			t.Errorf("%s: %+v, %v", when, got, err)
		}
	}
	n := uint64(len(rows))
	leave()
	opened(func(*Store) {}, func(s *Store) {
		settle(s, "rows that waited", func(d Drained) bool { return d.Sent == n && d.Resent == 0 && d.Unnamed == 1 })
		if got := rawRows(t, s, "partials_1s"); got != n {
			t.Errorf("%d rows stored, want %d", got, n)
		}
		truncate(t, s, "partials_1s")
	})
	opened(func(*Store) {}, func(s *Store) {
		settle(s, "rows that were lost", func(d Drained) bool { return d.Sent == 0 && d.Resent > 0 && d.Unnamed == 1 })
		if got := rawRows(t, s, "partials_1s"); got != n {
			t.Errorf("%d rows stored, want %d", got, n)
		}
		settle(s, "again", func(d Drained) bool { return d.Sent == 0 })
		truncate(t, s, "partials_1s")
	})
	leave()
	opened(func(s *Store) {
		if lost, err := s.DiscardOutbox(); err != nil || lost != n {
			t.Errorf("discarded %d rows that waited, %v, want %d", lost, err, n)
		}
	}, func(s *Store) {
		if _, err := s.DiscardOutbox(); err == nil {
			t.Error("what is being sent was discarded")
		}
		settle(s, "nothing left", func(d Drained) bool { return d == Drained{} })
		if got := rawRows(t, s, "partials_1s"); got != 0 {
			t.Errorf("%d rows came back", got)
		}
	})
}
