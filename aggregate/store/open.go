package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// unclosed is how long after the start of a minute its rows may still be missing: those of its
// seconds come first.
const unclosed = 5 * time.Minute

// process is one life of a producer, under any configuration.
type process struct{ producer, incarnation uint64 }

// ahead reports whether the range has seconds of a process, with rows of a condition, after its last minute:
// a minute closes after its last second, and never if the process is killed. It reads minutes only if there
// are open processes, and seconds only where one may have some: at the end of the range or of all seconds,
// and while a minute is unclosed after its last minute or, without one, after the start of the range and its own.
// Reading all seconds of a long range would take longer than the answer. So it misses two open minutes: of a process
// killed just after an hour of silence, and of one ring if another ring of the tap closed this minute.
func (s *Store) ahead(ctx context.Context, q *Question, condition string) (ahead bool, err error) {
	began, err := s.openProcesses(ctx, q.From, q.To)
	if err != nil || len(began) == 0 {
		return false, err
	}
	minutes, seconds := resolutionTableAt(minuteTable), resolutionTableAt(secondTable)
	closed := map[process]time.Time{} // end of the last minute
	err = s.lastOf(ctx, began, minutes, condition+" AND "+minutes.during(q.From, q.To), func(p process, last time.Time) { closed[p] = last.Add(time.Minute) })
	if err != nil {
		return false, err
	}
	stored, err := s.span(ctx, secondTable)
	if err != nil {
		return false, err
	}
	starts := []time.Time{q.To.Add(-unclosed), stored.last.Add(-unclosed)}
	for p, t := range began {
		if end, known := closed[p]; known {
			starts = append(starts, end)
		} else {
			starts = append(starts, q.From, t)
		}
	}
	var during []string
	for _, at := range spansAfter(starts, q.From, q.To) {
		during = append(during, seconds.during(at.From, at.To))
	}
	if len(during) == 0 {
		return false, nil
	}
	err = s.lastOf(ctx, began, seconds, condition+" AND ("+strings.Join(during, " OR ")+")", func(p process, last time.Time) { ahead = ahead || !last.Before(closed[p]) })
	return ahead, err
}

// openProcesses returns the processes that have not ended and have no row in the last minute of a range,
// and the time at which each began. It leaves out live ones that began after the range.
func (s *Store) openProcesses(ctx context.Context, from, to time.Time) (map[process]time.Time, error) {
	minutes := resolutionTableAt(minuteTable)
	// The incarnation of a live tap is the Unix time of its start in ns; its first row may have waited for
	// the collector.
	query := fmt.Sprintf(`SELECT producer, incarnation, began FROM
(SELECT producer, incarnation, epoch, min(least(at, fromUnixTimestamp64Nano(toInt64(incarnation), 'UTC'))) AS began FROM %[1]s.runs
 GROUP BY producer, incarnation, epoch HAVING countIf(state = 'done') = 0 AND (began < '%[4]s' OR any(mode) = 'replay'))
WHERE (producer, incarnation, epoch) NOT IN (SELECT producer, incarnation, epoch FROM %[1]s.superseded)
  AND (producer, incarnation) NOT IN (SELECT producer, incarnation FROM %[1]s.%[2]s WHERE %[3]s)`,
		s.database, minutes.table(), minutes.during(later(from, to.Add(-time.Minute)), to), stamp(to))
	began := map[process]time.Time{}
	err := s.query(ctx, s.reader, "find open processes", query, func(rows driver.Rows) error {
		var p process
		var t time.Time
		err := rows.Scan(&p.producer, &p.incarnation, &t)
		if first, known := began[p]; !known || t.Before(first) {
			began[p] = t
		}
		return err
	})
	return began, err
}

// lastOf calls take with the start of the last window of each process that has one under a condition. There
// may be more processes than fit into a query.
func (s *Store) lastOf(ctx context.Context, of map[process]time.Time, at resolutionTable, condition string, take func(process, time.Time)) error {
	query := fmt.Sprintf("SELECT producer, incarnation, max(window_start) FROM %s.%s WHERE %s GROUP BY producer, incarnation", s.database, at.table(), condition)
	return s.query(ctx, s.reader, "find open minutes", query, func(rows driver.Rows) error {
		var p process
		var last time.Time
		err := rows.Scan(&p.producer, &p.incarnation, &last)
		if _, open := of[p]; open {
			take(p, last)
		}
		return err
	})
}

// spansAfter returns the parts of a range in which a minute may be unclosed after one of the times. Parts
// that are less than an hour apart are joined, so that there are few.
func spansAfter(times []time.Time, from, to time.Time) (list []Span) {
	slices.SortFunc(times, time.Time.Compare)
	for _, t := range times {
		end := t.Add(unclosed)
		if !end.After(from) || !t.Before(to) {
			continue
		}
		if n := len(list); n > 0 && t.Before(list[n-1].To.Add(time.Hour)) {
			list[n-1].To = end
		} else {
			list = append(list, Span{later(t, from), end})
		}
	}
	if n := len(list); n > 0 && list[n-1].To.After(to) {
		list[n-1].To = to
	}
	return list
}
