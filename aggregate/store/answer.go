package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// saturated selects 128-bit sums, which the views return, as 64-bit integers capped at 2^64-1.
// The columns are separated by commas.
func saturated(columns string) string {
	list := strings.Split(columns, ", ")
	for i, c := range list {
		list[i] = fmt.Sprintf("toUInt64(least(%s, toUInt128(18446744073709551615)))", c)
	}
	return strings.Join(list, ", ")
}

// saturatedMap is saturated for the values of a map.
func saturatedMap(column string) string {
	return fmt.Sprintf("mapApply((k, v) -> (k, %s), %s)", saturated("v"), column)
}

// scaled selects parts of the 128-bit sum and count of values as 64-bit integers. It divides all
// of them by the smallest number that makes both fit. The columns are separated by commas.
func scaled(columns string) string {
	list := strings.Split(columns, ", ")
	for i, c := range list {
		list[i] = fmt.Sprintf("toUInt64(intDiv(%s, intDiv(greatest(sum, measured), toUInt128('18446744073709551616')) + 1))", c)
	}
	return strings.Join(list, ", ")
}

func cellColumns(windowed, modes bool) string {
	list := "src_group, dst_group, source_kind, " + saturated("observations, samples, bytes") + ", " + scaled("sum, measured") +
		", min, max, " + saturated("untouched, trimmed, unjudged, heavy, heavy_sum") + ", sustained, any_judged, any_loaded, silent"
	if !windowed {
		list += ", toUnixTimestamp64Nano(since), toUInt64(judged_windows), toUInt64(congested_windows), " + scaled("later_sum, later_measured")
	}
	if modes {
		list += ", mode_location, " + saturated("mode_count, mode_sum") + ", mode_evidence, runner_up, " + saturated("runner_up_count") + ", runner_up_evidence, votes.1, votes.2"
	}
	return list
}

// cellScanner holds the variables for one row: the client scans no named types.
type cellScanner struct {
	kind, evidence, otherEvidence uint8
	src, dst, location, secondary uint64
	voted, votes                  []uint64 // locations and heavy observations
	sustained, judged, loaded     bool
	silent                        bool
	thresholds                    aggregate.Thresholds
	end                           int64 // of the last window, Unix ns
}

// targets are in the order of cellColumns.
func (c *cellScanner) targets(r *aggregate.CellStats, windowed, modes bool) []any {
	list := []any{
		&c.src, &c.dst, &c.kind, &r.Observations, &r.Samples, &r.Bytes, &r.Sum, &r.Measured,
		&r.Min, &r.Max, &r.Untouched, &r.Trimmed, &r.Unjudged, &r.Heavy, &r.HeavySum,
		&c.sustained, &c.judged, &c.loaded, &c.silent,
	}
	if !windowed {
		list = append(list, &r.Since, &r.JudgedWindows, &r.CongestedWindows, &r.LaterSum, &r.LaterMeasured)
	}
	if modes {
		list = append(list, &c.location, &r.ModeCount, &r.ModeSum, &c.evidence, &c.secondary, &r.RunnerUpCount, &c.otherEvidence, &c.voted, &c.votes)
	}
	return list
}

func (c *cellScanner) finish(r *aggregate.CellStats) {
	r.Src, r.Dst, r.Kind = aggregate.GroupID(c.src), aggregate.GroupID(c.dst), decode.Kind(c.kind)
	r.Mode, r.RunnerUp = aggregate.LocationID(c.location), aggregate.LocationID(c.secondary)
	r.ModeEvidence, r.RunnerUpEvidence = aggregate.Evidence(c.evidence), aggregate.Evidence(c.otherEvidence)
	r.Votes = nil
	if len(c.voted) > 0 {
		r.Votes = make([]aggregate.Vote, len(c.voted))
		for i, location := range c.voted {
			r.Votes[i] = aggregate.Vote{Location: aggregate.LocationID(location), Heavy: c.votes[i]}
		}
	}
	r.Sustained, r.AnyJudged, r.AnyLoaded, r.Silent = c.sustained, c.judged, c.loaded, c.silent
	if r.Lasted = 0; r.Sustained { // windows have neither
		r.Lasted = c.end - r.Since
	}
	r.Judge(c.thresholds)
}

// Cells returns one row for each cell with observations, over the whole range, ordered by source
// and destination. A cell with tags in the range is made of its tags, any other of its
// reflections. As in all answers of a Store, counts and sums are capped at 2^64-1.
func (s *Store) Cells(ctx context.Context, q Question) ([]aggregate.CellStats, error) {
	if err := s.resolve(ctx, &q, false); err != nil {
		return nil, fmt.Errorf("read cells: %w", err)
	}
	query := fmt.Sprintf("SELECT %s FROM %s WHERE %s ORDER BY src_group, dst_group LIMIT %d",
		cellColumns(false, !q.NoModes), q.view(s.database, "cells", false, judgedBy(s.thresholds)), q.cells(), s.maxRows+1)
	r := aggregate.CellStats{Signal: q.Signal}
	length := int64(q.Resolution)
	c := cellScanner{thresholds: s.thresholds, end: (q.To.UnixNano() + length - 1) / length * length}
	targets := c.targets(&r, false, !q.NoModes)
	return queryRows(ctx, s, "read cells", query, func(rows driver.Rows) (aggregate.CellStats, error) {
		if err := rows.Scan(targets...); err != nil {
			return r, err
		}
		c.finish(&r)
		return r, nil
	})
}

// CellWindows returns one row for each cell and window of Step with observations, ordered by
// window, source and destination. The windows of a cell add up to its row in Cells.
func (s *Store) CellWindows(ctx context.Context, q Question) ([]aggregate.CellWindow, error) {
	var list []aggregate.CellWindow
	err := s.eachCellWindow(ctx, q, s.maxRows+1, func(r *aggregate.CellWindow) error {
		list = append(list, *r)
		return nil
	})
	return list, err
}

// EachCellWindow calls f with the first n rows of CellWindows as they arrive, and reports whether
// there are more. f may use a row until it returns; its first error ends the call.
func (s *Store) EachCellWindow(ctx context.Context, q Question, n int, f func(*aggregate.CellWindow) error) (more bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n = min(n, s.maxRows-1)
	found, stopped := 0, error(nil)
	err = s.eachCellWindow(ctx, q, n+1, func(r *aggregate.CellWindow) error {
		if found++; found > n {
			more = true
			return nil
		}
		if stopped = f(r); stopped != nil {
			cancel() // do not wait for the rest
		}
		return stopped
	})
	if stopped != nil {
		return more, stopped // f's error, not the server's
	}
	return more, err
}

func (s *Store) eachCellWindow(ctx context.Context, q Question, limit int, f func(*aggregate.CellWindow) error) error {
	if err := s.resolve(ctx, &q, true); err != nil {
		return fmt.Errorf("read cell windows: %w", err)
	}
	query := fmt.Sprintf("SELECT window_start, %s FROM %s WHERE %s ORDER BY window_start, src_group, dst_group LIMIT %d",
		cellColumns(true, true), q.view(s.database, "cell_windows", true, judgedBy(s.thresholds)), q.cells(), limit)
	r := aggregate.CellWindow{CellStats: aggregate.CellStats{Signal: q.Signal}}
	var start time.Time
	c := cellScanner{thresholds: s.thresholds}
	targets := append([]any{&start}, c.targets(&r.CellStats, true, true)...)
	return s.query(ctx, s.reader, "read cell windows", query, func(rows driver.Rows) error {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		r.Start = start.UnixNano()
		c.finish(&r.CellStats)
		return f(&r)
	})
}

// LocationWindows returns one row for each location and window of Step, ordered by location and
// window. It ignores Src and Dst of the question.
func (s *Store) LocationWindows(ctx context.Context, q Question) ([]aggregate.LocationWindow, error) {
	if err := s.resolve(ctx, &q, true); err != nil {
		return nil, fmt.Errorf("read location windows: %w", err)
	}
	query := fmt.Sprintf("SELECT window_start, location, %s FROM %s ORDER BY window_start, location LIMIT %d",
		saturated("observations, samples, unjudged, heavy, heavy_sum"), q.view(s.database, "location_windows", true), s.maxRows+1)
	return queryRows(ctx, s, "read location windows", query, func(rows driver.Rows) (r aggregate.LocationWindow, err error) {
		var start time.Time
		var location uint64
		err = rows.Scan(&start, &location, &r.Observations, &r.Samples, &r.Unjudged, &r.Heavy, &r.HeavySum)
		r.Start, r.Location = start.UnixNano(), aggregate.LocationID(location)
		return r, err
	})
}

// TopLocations returns the n locations with the most heavy observations, in the order of
// aggregate.CompareBottlenecks. It ignores Src and Dst of the question.
func (s *Store) TopLocations(ctx context.Context, q Question, n int) ([]aggregate.LocationStats, error) {
	if err := s.resolve(ctx, &q, false); err != nil {
		return nil, fmt.Errorf("read top locations: %w", err)
	}
	if n < 1 || n > s.maxRows {
		return nil, fmt.Errorf("read top locations: %w: %d locations: expected 1 to %d", ErrQuestion, n, s.maxRows)
	}
	severity := "ASC" // of the mean, where equally many are heavy
	if q.Signal.Direction() == csig.Max {
		severity = "DESC"
	}
	query := fmt.Sprintf("SELECT location, %s, cells FROM %s ORDER BY heavy DESC, heavy_sum %s, location LIMIT %d",
		saturated("observations, heavy, heavy_sum"), q.view(s.database, "top_locations", false), severity, n)
	return queryRows(ctx, s, "read top locations", query, func(rows driver.Rows) (r aggregate.LocationStats, err error) {
		var location, cells uint64
		err = rows.Scan(&location, &r.Observations, &r.Heavy, &r.HeavySum, &cells)
		r.Location, r.Cells = aggregate.LocationID(location), int(cells)
		return r, err
	})
}

// CellLocations returns one row for each cell and each location named by its observations, over
// the whole range, ordered by source, destination and location. It ignores the question's level.
func (s *Store) CellLocations(ctx context.Context, q Question) ([]aggregate.CellLocation, error) {
	if err := s.resolve(ctx, &q, false); err != nil {
		return nil, fmt.Errorf("read cell locations: %w", err)
	}
	where := q.cells()
	if q.HeavyOnly {
		where += " AND heavy > 0"
	}
	query := fmt.Sprintf("SELECT src_group, dst_group, source_kind, location, %s, min, max, %s, evidence, last, %s FROM %s WHERE %s ORDER BY src_group, dst_group, location LIMIT %d",
		saturated("observations, samples, bytes, measured, sum"), saturated("untouched, trimmed, unjudged, heavy, heavy_sum"),
		saturated("last_measured, last_sum, later_measured, later_sum"),
		q.call(s.database, "cell_locations", q.signalArgs(), q.spanArgs()), where, s.maxRows+1)
	return queryRows(ctx, s, "read cell locations", query, func(rows driver.Rows) (c aggregate.CellLocation, err error) {
		var src, dst, location uint64
		var kind, evidence uint8
		var last time.Time
		err = rows.Scan(&src, &dst, &kind, &location, &c.Observations, &c.Samples, &c.Bytes, &c.Measured, &c.Sum, &c.Min, &c.Max,
			&c.Untouched, &c.Trimmed, &c.Unjudged, &c.Heavy, &c.HeavySum, &evidence, &last, &c.LastMeasured, &c.LastSum, &c.LaterMeasured, &c.LaterSum)
		c.CellID = aggregate.CellID{Src: aggregate.GroupID(src), Dst: aggregate.GroupID(dst), Kind: decode.Kind(kind)}
		c.Location, c.Evidence = aggregate.LocationID(location), aggregate.Evidence(evidence)
		if c.LastMeasured > 0 {
			c.Last = last.UnixNano()
		}
		return c, err
	})
}
