package store

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
)

// share is a share returned by a view, with the two numbers behind it.
type share struct {
	of, whole uint64
	got       float64
}

func (s share) wrong() bool {
	want := 0.0
	if s.whole > 0 {
		want = float64(s.of) / float64(s.whole)
	}
	return !(math.Abs(s.got-want) <= 1e-12)
}

// TestShares: shares relate to the window or the range of a row, including observations without a
// location.
func TestShares(t *testing.T) {
	sequential(t)
	s := openStore(t)
	writeAncestry(t, s)
	rng := rand.New(rand.NewPCG(11, 11))
	g := traffic{resolution: time.Second, windows: 5, groups: 4, locations: 12, signals: allSignals}
	write(t, s, blocks(g.rows(rng, aggregate.Source{Producer: 1})))
	q := testQuestion()
	q.Level, q.Step = fabric.LevelSet, 2*time.Second
	for _, view := range []struct{ name, of, whole, got string }{
		{q.view(s.database, "location_windows", true), "heavy", "sum(heavy) OVER (PARTITION BY window_start)", "share"},
		{q.view(s.database, "top_locations", false), "heavy", "sum(heavy) OVER ()", "share"},
		{q.view(s.database, "cells", false, judgedBy(s.thresholds)), "heavy", "observations", "heavy_share"},
		{q.view(s.database, "cell_windows", true, judgedBy(s.thresholds)), "trimmed", "observations", "trimmed_share"},
	} {
		query := fmt.Sprintf("SELECT toUInt64(%s), toUInt64(%s), toFloat64(%s) FROM %s", view.of, view.whole, view.got, view.name)
		some := 0
		err := s.query(t.Context(), s.reader, "read shares", query, func(rows driver.Rows) error {
			var r share
			if err := rows.Scan(&r.of, &r.whole, &r.got); err != nil {
				return err
			}
			if r.wrong() {
				t.Errorf("%s: %d of %d is %g", view.name, r.of, r.whole, r.got)
			}
			if r.of > 0 {
				some++
			}
			return nil
		})
		if err != nil || some == 0 {
			t.Errorf("%s: %d shares, %v", view.name, some, err)
		}
	}
}
