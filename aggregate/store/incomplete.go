package store

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
)

// PartialRun is a replay that answers show although it is not done: it is under way, or
// was interrupted. Rows of it may be missing.
type PartialRun struct {
	aggregate.Source
	Name    string
	Started time.Time
}

// maxPartialRuns bounds what is said of replays that are not done.
const maxPartialRuns = 1000

// partialRuns are replays without an end that no other pass of their capture hides.
func (s *Store) partialRuns() string {
	return fmt.Sprintf(`SELECT producer, incarnation, epoch, any(name) AS name, maxIf(at, state = 'started') AS started FROM %[1]s.runs
WHERE mode = 'replay' AND (producer, incarnation, epoch) NOT IN (SELECT producer, incarnation, epoch FROM %[1]s.superseded)
GROUP BY producer, incarnation, epoch HAVING countIf(state = 'done') = 0`, s.database)
}

// PartialRuns are the first 1000 replays by name whose numbers are shown in part. A
// capture that was replayed to its end before is none of them: that pass stays visible.
func (s *Store) PartialRuns(ctx context.Context) ([]PartialRun, error) {
	query := fmt.Sprintf("%s ORDER BY name, producer, incarnation, epoch LIMIT %d", s.partialRuns(), maxPartialRuns)
	var list []PartialRun
	err := s.query(ctx, s.reader, "read runs", query, func(rows driver.Rows) error {
		var r PartialRun
		if err := rows.Scan(&r.Producer, &r.Incarnation, &r.Epoch, &r.Name, &r.Started); err != nil {
			return err
		}
		list = append(list, r)
		return nil
	})
	return list, err
}

// partial tells of replays that may still be under way. Those that cannot are faults.
func (v *verifier) partial(ctx context.Context) error {
	return v.report(ctx, Finding{Check: "run under way or interrupted", Table: "runs", Info: true}, fmt.Sprintf(
		"SELECT count(), any(concat('producer ', toString(producer), ', ', name)) FROM (%s) WHERE started >= '%s'",
		v.partialRuns(), stamp(v.options.Now.Add(-v.options.Grace))))
}
