package store

import (
	"context"
	"fmt"
	"maps"
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

// openMinutes returns the minutes in a range, ascending, in which a process has seconds, with rows of a condition, after
// its last minute: a minute closes after its last second, and never if the process is killed. all reports a process
// that seems to close none, so that all its minutes may be open.
//
// Reading all seconds of a long range would take longer than the answer. It reads those in the 5 min (unclosed) before
// the end of the range and before the last stored second, and after the last minute of each open process or, without
// one, after the start of the range and of the process. So it misses two open minutes: of a process killed just after
// an hour of silence, and of one ring if another ring of the tap closed this minute.
func (s *Store) openMinutes(ctx context.Context, from, to time.Time, condition string) (open []time.Time, all bool, err error) {
	began, err := s.openProcesses(ctx, from, to)
	if err != nil || len(began) == 0 {
		return nil, false, err
	}
	minutes, seconds := resolutionTableAt(minuteTable), resolutionTableAt(secondTable)
	last := fmt.Sprintf("SELECT producer, incarnation, max(window_start) AS last FROM %s.%s WHERE %s AND %s GROUP BY producer, incarnation",
		s.database, minutes.table(), condition, minutes.during(from, to))
	closed, err := s.closedUntil(ctx, last)
	if err != nil {
		return nil, false, err
	}
	stored, err := s.span(ctx, secondTable)
	if err != nil {
		return nil, false, err
	}
	starts := []time.Time{to.Add(-unclosed), stored.last.Add(-unclosed)}
	for p, t := range began {
		if end, known := closed[p]; known {
			starts = append(starts, end)
		} else {
			starts = append(starts, from, t)
		}
	}
	var during []string
	for _, at := range spansAfter(starts, from, to) {
		during = append(during, seconds.during(at.From, at.To))
	}
	if len(during) == 0 {
		return nil, false, nil
	}
	return s.minutesAfter(ctx, began, last, fmt.Sprintf("%s.%s WHERE %s AND (%s)", s.database, seconds.table(), condition, strings.Join(during, " OR ")))
}

// closedUntil returns the end of the last minute of each process, by a query for these minutes. There may be more
// processes than fit into a query.
func (s *Store) closedUntil(ctx context.Context, last string) (map[process]time.Time, error) {
	closed := map[process]time.Time{}
	err := s.query(ctx, s.reader, "find last minutes", last, func(rows driver.Rows) error {
		var p process
		var minute time.Time
		err := rows.Scan(&p.producer, &p.incarnation, &minute)
		closed[p] = minute.Add(time.Minute)
		return err
	})
	return closed, err
}

// minutesAfter returns the minutes of some seconds of the processes after their last minute. Of a process it reads at
// most six, which is more than one may leave open.
func (s *Store) minutesAfter(ctx context.Context, of map[process]time.Time, last, seconds string) (open []time.Time, all bool, err error) {
	query := fmt.Sprintf(`SELECT s.producer, s.incarnation, arraySort(groupUniqArray(6)(s.minute)) FROM
(SELECT producer, incarnation, toStartOfMinute(window_start) AS minute FROM %s GROUP BY producer, incarnation, minute) AS s
LEFT JOIN (%s) AS m ON s.producer = m.producer AND s.incarnation = m.incarnation
WHERE ifNull(m.last, toDateTime64(0, 9, 'UTC')) < s.minute
GROUP BY s.producer, s.incarnation`, seconds, last)
	found := map[time.Time]bool{}
	err = s.query(ctx, s.reader, "find open minutes", query, func(rows driver.Rows) error {
		var p process
		var list []time.Time
		if err := rows.Scan(&p.producer, &p.incarnation, &list); err != nil {
			return err
		}
		if _, open := of[p]; open {
			all = all || list[len(list)-1].Sub(list[0]) >= unclosed-time.Minute
			for _, minute := range list {
				found[minute] = true
			}
		}
		return nil
	})
	return slices.SortedFunc(maps.Keys(found), time.Time.Compare), all, err
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
