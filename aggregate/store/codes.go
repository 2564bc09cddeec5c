package store

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
)

// CodeRow is the number of measurements of one code of a tag layout.
type CodeRow struct {
	Window       time.Time // start
	Cell         Cell
	Encoding     aggregate.Encoding
	Code         uint16 // csig.DistIndex
	Observations uint64
}

// Codes returns one row for each layout and code, over the range and all selected cells, ordered
// by layout and code. Window and Cell are not set. A cell with tags in the range is made of its
// tags, any other of its reflections.
func (s *Store) Codes(ctx context.Context, q Question) ([]CodeRow, error) {
	if err := s.resolve(ctx, &q, false); err != nil {
		return nil, fmt.Errorf("read codes: %w", err)
	}
	q.Step = max(q.To.Sub(q.From).Truncate(q.Resolution), q.Resolution)
	query := fmt.Sprintf("SELECT encoding, code, %s FROM %s AS c WHERE %s GROUP BY encoding, code ORDER BY encoding, code LIMIT %d",
		saturated("sum(c.observations)"), q.codes(s.database), q.cells(), s.maxRows+1)
	return queryRows(ctx, s, "read codes", query, func(rows driver.Rows) (r CodeRow, err error) {
		var encoding uint8
		err = rows.Scan(&encoding, &r.Code, &r.Observations)
		r.Encoding = aggregate.Encoding(encoding)
		return r, err
	})
}

// CodeWindows returns one row for each window of Step, cell, layout and code, in that order.
func (s *Store) CodeWindows(ctx context.Context, q Question) ([]CodeRow, error) {
	if err := s.resolve(ctx, &q, true); err != nil {
		return nil, fmt.Errorf("read code windows: %w", err)
	}
	query := fmt.Sprintf("SELECT window_start, src_group, dst_group, encoding, code, %s FROM %s WHERE %s ORDER BY window_start, src_group, dst_group, encoding, code LIMIT %d",
		saturated("observations"), q.codes(s.database), q.cells(), s.maxRows+1)
	return queryRows(ctx, s, "read code windows", query, func(rows driver.Rows) (r CodeRow, err error) {
		var src, dst uint64
		var encoding uint8
		err = rows.Scan(&r.Window, &src, &dst, &encoding, &r.Code, &r.Observations)
		r.Cell, r.Encoding = Cell{aggregate.GroupID(src), aggregate.GroupID(dst)}, aggregate.Encoding(encoding)
		return r, err
	})
}

func (q *Question) codes(database string) string {
	return q.call(database, "code_windows", q.signalArgs(), q.spanArgs(), q.stepArgs())
}
