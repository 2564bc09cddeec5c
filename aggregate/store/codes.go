package store

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
)

// CodeRow says how often a code of a tag layout was measured.
type CodeRow struct {
	Window       time.Time // start
	Cell         Cell
	Encoding     aggregate.Encoding
	Code         uint16 // csig.DistIndex
	Observations uint64
}

// Codes has one row for each code over the range and all cells that the question chooses,
// ordered by layout and code; it has no Window and no Cell. A cell is made of its tags where
// it has any in the range.
func (s *Store) Codes(ctx context.Context, q Question) ([]CodeRow, error) {
	if err := s.resolve(ctx, &q, false); err != nil {
		return nil, fmt.Errorf("read codes: %w", err)
	}
	q.Step = max(q.To.Sub(q.From).Truncate(q.Resolution), q.Resolution)
	query := fmt.Sprintf("SELECT encoding, code, %s FROM %s AS c WHERE %s GROUP BY encoding, code ORDER BY encoding, code LIMIT %d",
		saturated("sum(c.observations)"), q.codes(s.database), q.cells(), s.maxRows+1)
	var list []CodeRow
	err := s.query(ctx, s.reader, "read codes", query, func(rows driver.Rows) error {
		var r CodeRow
		var encoding uint8
		err := rows.Scan(&encoding, &r.Code, &r.Observations)
		r.Encoding = aggregate.Encoding(encoding)
		list = append(list, r)
		return err
	})
	return list, err
}

// CodeWindows has one row for each window of Step, cell, layout and code, in that order.
func (s *Store) CodeWindows(ctx context.Context, q Question) ([]CodeRow, error) {
	if err := s.resolve(ctx, &q, true); err != nil {
		return nil, fmt.Errorf("read code windows: %w", err)
	}
	query := fmt.Sprintf("SELECT window_start, src_group, dst_group, encoding, code, %s FROM %s WHERE %s ORDER BY window_start, src_group, dst_group, encoding, code LIMIT %d",
		saturated("observations"), q.codes(s.database), q.cells(), s.maxRows+1)
	var list []CodeRow
	err := s.query(ctx, s.reader, "read code windows", query, func(rows driver.Rows) error {
		var r CodeRow
		var src, dst uint64
		var encoding uint8
		err := rows.Scan(&r.Window, &src, &dst, &encoding, &r.Code, &r.Observations)
		r.Cell, r.Encoding = Cell{aggregate.GroupID(src), aggregate.GroupID(dst)}, aggregate.Encoding(encoding)
		list = append(list, r)
		return err
	})
	return list, err
}

func (q *Question) codes(database string) string {
	return q.call(database, "code_windows", q.signalArgs(), q.spanArgs(), q.stepArgs())
}
