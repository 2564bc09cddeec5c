package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Producer is a live tap, or a stream of an exporter, that wrote into the store.
type Producer struct {
	ID        uint64
	Name      string    // of the tap, or EXPORTER/STREAM
	Last      time.Time // start of its last minute with rows; zero for none in the time that was read
	Forgotten bool      // see Forget: it has neither started nor written since
}

// ExpectFor is how long a producer is expected after its last rows.
const ExpectFor = 24 * time.Hour

// MaxProducers bounds the producers that a store lists.
const MaxProducers = 1 << 12

// ErrNoProducer is wrapped by the error of Forget for an unknown name.
var ErrNoProducer = errors.New("no live producer has this name (to dismiss one that never started, remove it from the fabric file, the token file or the configuration)")

// Producers returns the live producers that wrote since a time, and the forgotten ones, the
// latest first. A start of its tap counts as writing. It reads three columns of the rows of 1 min since
// then, and of those of 1 s of the last minutes.
func (s *Store) Producers(ctx context.Context, since time.Time) ([]Producer, error) {
	query := fmt.Sprintf(`SELECT producer, name, seen, greatest(began, seen) AS last, forgotten >= greatest(began, written) AS dismissed FROM
(SELECT producer, argMax(name, at) AS name, maxIf(at, state = 'started') AS began FROM %[1]s.runs WHERE mode = 'live' GROUP BY producer) AS r
LEFT JOIN (%[4]s) AS p USING producer
LEFT JOIN (SELECT producer, max(at) AS forgotten FROM %[1]s.forgotten GROUP BY producer) AS f USING producer
WHERE last >= '%[2]s' OR dismissed
ORDER BY last DESC, producer LIMIT %[3]d`, s.database, stamp(since), MaxProducers, s.lastMinutes(since))
	return queryRows(ctx, s, "read producers", query, func(rows driver.Rows) (p Producer, err error) {
		var last time.Time
		var forgotten uint8
		err = rows.Scan(&p.ID, &p.Name, &p.Last, &last, &forgotten)
		p.Last, p.Forgotten = orZero(p.Last), forgotten != 0
		return p, err
	})
}

// lastMinutes is the query for the last minute since a time in which each producer has rows, and the
// last one in which it wrote, as in lastWindows.
func (s *Store) lastMinutes(since time.Time) string {
	_, end := Everything()
	return fmt.Sprintf("SELECT producer, max(toStartOfInterval(p.last, INTERVAL 1 MINUTE)) AS seen, max(toStartOfInterval(p.written, INTERVAL 1 MINUTE)) AS written FROM (%s UNION ALL %s) AS p GROUP BY producer",
		s.lastWindows(minuteTable, "producer", since, end), s.lastWindows(secondTable, "producer", later(since, time.Now().Add(-unclosed)), end))
}

// orZero maps the server's time for none to Go's.
func orZero(t time.Time) time.Time {
	if t.Unix() <= 0 {
		return time.Time{}
	}
	return t
}

// ProducerCounts are the producers of a range. Present producers have rows of its minutes, live
// or replayed: of captures, their taps with stored observations, each once even if it is in several
// files. Expected producers are the present ones, and the live ones that wrote in the ExpectFor
// before its end and were not forgotten since.
type ProducerCounts struct{ Expected, Present uint64 }

// CountProducers counts the producers of a range. It reads five columns of the rows of 1 min, and
// those of 1 s at the end of the range, and the taps of captures.
func (s *Store) CountProducers(ctx context.Context, from, to time.Time) (c ProducerCounts, err error) {
	if err := checkRange(from, to); err != nil {
		return c, fmt.Errorf("count producers: %w", err)
	}
	from = from.UTC().Truncate(time.Minute)
	expected := later(time.Unix(0, 0), to.Add(-ExpectFor))
	since := from
	if expected.Before(since) {
		since = expected
	}
	query := fmt.Sprintf(`SELECT countIf(empty(taps)) + uniqExactArray(taps), countIf(present AND empty(taps)) + uniqExactArray(taps) FROM
(SELECT producer, max(w.last) AS seen, max(w.written) AS written, seen >= '%[2]s' AS present FROM (%[3]s UNION ALL %[4]s) AS w
 WHERE (producer, incarnation, config_epoch) NOT IN (SELECT producer, incarnation, epoch FROM %[1]s.superseded) GROUP BY producer) AS p
LEFT JOIN (SELECT producer, max(at) AS forgotten FROM %[1]s.forgotten GROUP BY producer) AS f USING producer
LEFT JOIN (SELECT producer, groupUniqArray(tap) AS taps FROM
 (SELECT DISTINCT producer, incarnation, epoch, (name, place, interface) AS tap FROM %[1]s.taps WHERE stored > 0 AND time_from < '%[6]s' AND time_to >= '%[2]s') AS r
 WHERE producer IN (SELECT producer FROM %[1]s.runs WHERE mode = 'replay') AND (producer, incarnation, epoch) NOT IN (SELECT producer, incarnation, epoch FROM %[1]s.superseded) GROUP BY producer) AS t USING producer
WHERE present OR seen >= '%[5]s' AND forgotten < written AND producer IN (SELECT producer FROM %[1]s.runs WHERE mode = 'live')`,
		s.database, stamp(from), s.lastWindows(minuteTable, ofRuns, since, to), s.lastWindows(secondTable, ofRuns, later(from, to.Add(-unclosed)), to), stamp(expected), stamp(to))
	err = s.query(ctx, s.reader, "count producers", query, func(rows driver.Rows) error { return rows.Scan(&c.Expected, &c.Present) })
	return c, err
}

// ofRuns are the columns that tell runs apart.
const ofRuns = "producer, incarnation, config_epoch"

// lastWindows is the query for the last window in a range, for each value of some columns, and for the
// time of the last writing. This is the start of a window; if the tap's clock was ahead, it is the
// time at which the window was stored.
func (s *Store) lastWindows(g int, columns string, from, to time.Time) string {
	at := resolutionTableAt(g)
	return fmt.Sprintf(`SELECT %[4]s, max(window_start) AS last, max(least(window_start, toDateTime64(stored_at, 9, 'UTC'))) AS written FROM %[1]s.%[2]s
WHERE %[3]s GROUP BY %[4]s`, s.database, at.table(), at.during(from, to), columns)
}

// Forget tells collectors not to expect a producer until it starts or writes again, in a minute that
// begins later by the server's clock: the tap's may be ahead. The name is a Producer's, or its ID in
// hexadecimal. If producers of several hosts share a name, it forgets and returns all of them.
func (s *Store) Forget(ctx context.Context, name string) (list []Producer, err error) {
	if s.writer == nil {
		return nil, ErrReadOnly
	}
	which := fmt.Sprintf("name = unhex('%x')", name)
	if id, err := strconv.ParseUint(name, 16, 64); err == nil {
		which = fmt.Sprintf("(%s OR producer = %d)", which, id)
	}
	query := fmt.Sprintf(`SELECT producer, title, seen FROM
(SELECT producer, any(name) AS title FROM %s.runs WHERE mode = 'live' AND %s GROUP BY producer) AS r
LEFT JOIN (%s) AS p USING producer ORDER BY producer LIMIT %d`, s.database, which, s.lastMinutes(time.Now().Add(-ExpectFor)), MaxProducers)
	var values []string
	err = s.query(ctx, s.reader, "read producers", query, func(rows driver.Rows) error {
		p := Producer{Forgotten: true}
		err := rows.Scan(&p.ID, &p.Name, &p.Last)
		p.Last = orZero(p.Last)
		list, values = append(list, p), append(values, fmt.Sprintf("(%d)", p.ID))
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("forget %q: %w", name, ErrNoProducer)
	}
	statement := fmt.Sprintf("INSERT INTO %s.forgotten (producer) VALUES %s", s.database, strings.Join(values, ", "))
	return list, s.describe("forget "+name, s.names.Exec(ctx, statement))
}
