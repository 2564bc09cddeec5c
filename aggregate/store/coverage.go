package store

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
)

// Coverage sums up the observations and gaps of a window, over all signals.
type Coverage struct {
	Window                       time.Time
	Observations                 uint64
	Tags, Reflections            uint64
	Untouched, Trimmed, Overflow uint64
	Producers                    uint64  // taps and captures with observations
	Lost                         uint64  // observations missing in gaps
	GapNS                        int64   // time in which rows of at least one producer are missing
	GapShare                     float64 // GapNS as a share of the window's part in the range
}

// CoverageWindows returns one row for each window of Step with observations or gaps, in order. It
// uses From, To, Resolution and Step of the question.
func (s *Store) CoverageWindows(ctx context.Context, q Question) ([]Coverage, error) {
	if err := s.resolve(ctx, &q, true); err != nil {
		return nil, fmt.Errorf("read coverage: %w", err)
	}
	query := fmt.Sprintf(`SELECT window_start, %s, producers, %s, gap_ns, gap_share
FROM %s ORDER BY window_start LIMIT %d`, saturated("observations, tags, reflections, untouched, trimmed, overflow"), saturated("lost"), q.call(s.database, "coverage_windows", q.spanArgs(), q.stepArgs()), s.maxRows+1)
	return queryRows(ctx, s, "read coverage", query, func(rows driver.Rows) (c Coverage, err error) {
		err = rows.Scan(&c.Window, &c.Observations, &c.Tags, &c.Reflections, &c.Untouched, &c.Trimmed, &c.Overflow, &c.Producers, &c.Lost, &c.GapNS, &c.GapShare)
		return c, err
	})
}

// CellCoverage sums up the observations of a cell and signal over a range.
type CellCoverage struct {
	Src, Dst                     aggregate.GroupID
	Observations                 uint64
	Tags, Reflections            uint64
	Untouched, Trimmed, Overflow uint64
	Producers                    uint64
	Covered                      float64 // share of the range's windows with observations
}

// CoverageCells returns one row for each cell with observations, the least covered first.
func (s *Store) CoverageCells(ctx context.Context, q Question) ([]CellCoverage, error) {
	if err := s.resolve(ctx, &q, false); err != nil {
		return nil, fmt.Errorf("read coverage: %w", err)
	}
	if q.Resolution == time.Second { // a share of the seconds
		q.either = nil
	}
	query := fmt.Sprintf("SELECT src_group, dst_group, %s, producers, covered FROM %s WHERE %s ORDER BY covered, src_group, dst_group LIMIT %d",
		saturated("observations, tags, reflections, untouched, trimmed, overflow"), q.call(s.database, "coverage_cells", q.signalArgs(), q.spanArgs()), q.cells(), s.maxRows+1)
	return queryRows(ctx, s, "read coverage", query, func(rows driver.Rows) (c CellCoverage, err error) {
		var src, dst uint64
		err = rows.Scan(&src, &dst, &c.Observations, &c.Tags, &c.Reflections, &c.Untouched, &c.Trimmed, &c.Overflow, &c.Producers, &c.Covered)
		c.Src, c.Dst = aggregate.GroupID(src), aggregate.GroupID(dst)
		return c, err
	})
}
