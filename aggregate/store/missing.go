package store

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Span is a time range; To is exclusive.
type Span struct{ From, To time.Time }

// Missing has the parts of a range that windows of 1 s of at least one producer are missing
// of, ascending and apart: gaps of that resolution, those that WriteGap wrote, and those that
// nobody knows the producer of; but not those in which only packets were dropped. It says
// nothing of taps that were silent.
func (s *Store) Missing(ctx context.Context, from, to time.Time) ([]Span, error) {
	if err := checkRange(from, to); err != nil {
		return nil, fmt.Errorf("read gaps: %w", err)
	}
	query := fmt.Sprintf(`SELECT DISTINCT window_from, window_to FROM %[1]s.current_gaps
WHERE (resolution_ns = %[2]d OR resolution_ns = 0 AND (producer = 0 OR rows = 0))
  AND reason NOT IN ('%[6]s', '%[7]s')
  AND window_from < window_to AND window_from < '%[4]s' AND window_to > '%[3]s'
  AND (producer, incarnation, epoch) NOT IN (SELECT producer, incarnation, epoch FROM %[1]s.superseded)
ORDER BY window_from, window_to LIMIT %[5]d`, s.database, time.Second.Nanoseconds(), stamp(from), stamp(to), s.maxRows+1, GapDrops, GapMirror)
	var list []Span
	err := s.query(ctx, s.reader, "read gaps", query, func(rows driver.Rows) error {
		var g Span
		if err := rows.Scan(&g.From, &g.To); err != nil {
			return err
		}
		if g.From.Before(from) {
			g.From = from
		}
		if g.To.After(to) {
			g.To = to
		}
		if n := len(list); n > 0 && !g.From.After(list[n-1].To) {
			if g.To.After(list[n-1].To) {
				list[n-1].To = g.To
			}
			return nil
		}
		list = append(list, g)
		return nil
	})
	return list, err
}
