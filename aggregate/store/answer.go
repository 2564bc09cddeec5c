package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
)

// saturated reads 128-bit sums, which views add up, as 64 bits: those beyond are held at
// 2^64-1. The columns are separated by commas.
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

// scaled reads the 128-bit sum of values and their number as 64 bits: both divided by the
// smallest number that makes the sum fit.
const scaled = "toUInt64(intDiv(sum, intDiv(greatest(sum, measured), toUInt128('18446744073709551616')) + 1)), " +
	"toUInt64(intDiv(measured, intDiv(greatest(sum, measured), toUInt128('18446744073709551616')) + 1))"

func cellColumns() string {
	return "src_group, dst_group, source_kind, " + saturated("observations, bytes") + ", " + scaled +
		", min, max, " + saturated("untouched, trimmed, heavy, heavy_sum") +
		", mode_location, " + saturated("mode_count, mode_sum") + ", runner_up, " + saturated("runner_up_count")
}

// cellScanner holds what the client scans into: it takes no named types.
type cellScanner struct {
	kind                          uint8
	src, dst, location, secondary uint64
}

// targets are in the order of cellColumns.
func (c *cellScanner) targets(r *aggregate.CellStats) []any {
	return []any{
		&c.src, &c.dst, &c.kind, &r.Observations, &r.Bytes, &r.Sum, &r.Measured,
		&r.Min, &r.Max, &r.Untouched, &r.Trimmed, &r.Heavy, &r.HeavySum,
		&c.location, &r.ModeCount, &r.ModeSum, &c.secondary, &r.RunnerUpCount,
	}
}

func (c *cellScanner) finish(r *aggregate.CellStats) {
	r.Src, r.Dst, r.Kind = aggregate.GroupID(c.src), aggregate.GroupID(c.dst), decode.Kind(c.kind)
	r.Mode, r.RunnerUp = aggregate.LocationID(c.location), aggregate.LocationID(c.secondary)
	r.SetState()
}

// Cells has one row for each cell with observations, over the whole range, ordered by
// source and destination: from its tags or, where it has none in the range, from its
// reflections. As in all answers of a Store, counts and sums beyond 2^64-1 stay at that.
func (s *Store) Cells(ctx context.Context, q Question) ([]aggregate.CellStats, error) {
	if err := s.resolve(ctx, &q, false); err != nil {
		return nil, fmt.Errorf("read cells: %w", err)
	}
	query := fmt.Sprintf("SELECT %s FROM %s WHERE %s ORDER BY src_group, dst_group LIMIT %d",
		cellColumns(), q.view(s.database, "cells", false), q.cells(), s.maxRows+1)
	var list []aggregate.CellStats
	r := aggregate.CellStats{Signal: q.Signal}
	var c cellScanner
	targets := c.targets(&r)
	err := s.query(ctx, s.reader, "read cells", query, func(rows driver.Rows) error {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		c.finish(&r)
		list = append(list, r)
		return nil
	})
	return list, err
}

// CellWindows has one row for each cell and window of Step with observations, ordered
// by window, source and destination. The windows of a cell add up to its row in Cells.
func (s *Store) CellWindows(ctx context.Context, q Question) ([]aggregate.CellWindow, error) {
	var list []aggregate.CellWindow
	err := s.eachCellWindow(ctx, q, s.maxRows+1, func(r *aggregate.CellWindow) error {
		list = append(list, *r)
		return nil
	})
	return list, err
}

// EachCellWindow calls f with the first n rows of CellWindows as they come, and tells
// whether there are more. A row is f's until it returns; an error of f ends it.
func (s *Store) EachCellWindow(ctx context.Context, q Question, n int, f func(*aggregate.CellWindow) error) (more bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n = min(n, s.maxRows-1)
	told, stopped := 0, error(nil)
	err = s.eachCellWindow(ctx, q, n+1, func(r *aggregate.CellWindow) error {
		if told++; told > n {
			more = true
			return nil
		}
		if stopped = f(r); stopped != nil {
			cancel() // what is on its way still is not waited for
		}
		return stopped
	})
	if stopped != nil {
		return more, stopped // which is not the server's
	}
	return more, err
}

func (s *Store) eachCellWindow(ctx context.Context, q Question, limit int, f func(*aggregate.CellWindow) error) error {
	if err := s.resolve(ctx, &q, true); err != nil {
		return fmt.Errorf("read cell windows: %w", err)
	}
	query := fmt.Sprintf("SELECT window_start, %s FROM %s WHERE %s ORDER BY window_start, src_group, dst_group LIMIT %d",
		cellColumns(), q.view(s.database, "cell_windows", true), q.cells(), limit)
	r := aggregate.CellWindow{CellStats: aggregate.CellStats{Signal: q.Signal}}
	var start time.Time
	var c cellScanner
	targets := append([]any{&start}, c.targets(&r.CellStats)...)
	return s.query(ctx, s.reader, "read cell windows", query, func(rows driver.Rows) error {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		r.Start = start.UnixNano()
		c.finish(&r.CellStats)
		return f(&r)
	})
}

// LocationWindows has one row for each location and window of Step, ordered by both.
// Src and Dst of the question are not considered.
func (s *Store) LocationWindows(ctx context.Context, q Question) ([]aggregate.LocationWindow, error) {
	if err := s.resolve(ctx, &q, true); err != nil {
		return nil, fmt.Errorf("read location windows: %w", err)
	}
	query := fmt.Sprintf("SELECT window_start, location, %s FROM %s ORDER BY window_start, location LIMIT %d",
		saturated("observations, heavy, heavy_sum"), q.view(s.database, "location_windows", true), s.maxRows+1)
	var list []aggregate.LocationWindow
	err := s.query(ctx, s.reader, "read location windows", query, func(rows driver.Rows) error {
		var r aggregate.LocationWindow
		var start time.Time
		var location uint64
		if err := rows.Scan(&start, &location, &r.Observations, &r.Heavy, &r.HeavySum); err != nil {
			return err
		}
		r.Start, r.Location = start.UnixNano(), aggregate.LocationID(location)
		list = append(list, r)
		return nil
	})
	return list, err
}

// TopLocations has the n locations with the most heavy observations, the most first.
// Src and Dst of the question are not considered.
func (s *Store) TopLocations(ctx context.Context, q Question, n int) ([]aggregate.LocationStats, error) {
	if err := s.resolve(ctx, &q, false); err != nil {
		return nil, fmt.Errorf("read top locations: %w", err)
	}
	if n < 1 || n > s.maxRows {
		return nil, fmt.Errorf("read top locations: %w: %d locations: expected 1 to %d", ErrQuestion, n, s.maxRows)
	}
	query := fmt.Sprintf("SELECT location, %s, cells FROM %s ORDER BY heavy DESC, location LIMIT %d",
		saturated("observations, heavy, heavy_sum"), q.view(s.database, "top_locations", false), n)
	var list []aggregate.LocationStats
	err := s.query(ctx, s.reader, "read top locations", query, func(rows driver.Rows) error {
		var r aggregate.LocationStats
		var location, cells uint64
		if err := rows.Scan(&location, &r.Observations, &r.Heavy, &r.HeavySum, &cells); err != nil {
			return err
		}
		r.Location, r.Cells = aggregate.LocationID(location), int(cells)
		list = append(list, r)
		return nil
	})
	return list, err
}
