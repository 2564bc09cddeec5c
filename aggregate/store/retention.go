package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Retention is how long rows of each table of partials are kept after they were written: fine
// windows, 1 s and 1 min.
type Retention [numResolutionTables]time.Duration

// ErrRetention is the error of retentions out of bounds.
var ErrRetention = errors.New("invalid retention")

// expiry matches the retention of a table as servers print it.
var expiry = regexp.MustCompile(`TTL stored_at \+ toInterval(Second|Minute|Hour|Day)\(([0-9]+)\)`)

var expiryUnits = map[string]time.Duration{"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour, "Day": 24 * time.Hour}

// forever is the retention of a table without one. Times of servers end in 2106: rows that would
// expire later expire at once.
const forever = 50 * 365 * 24 * time.Hour

// Retention returns the present retentions; on a cluster, the shortest of all shards.
func (s *Store) Retention(ctx context.Context) (Retention, error) {
	kept := Retention{forever, forever, forever}
	for _, sh := range s.shards(s.migrator) {
		of, err := s.retentionOf(ctx, sh.conn)
		if err != nil {
			return kept, err
		}
		for g := range kept {
			kept[g] = min(kept[g], of[g])
		}
	}
	return kept, nil
}

func (s *Store) retentionOf(ctx context.Context, conn driver.Conn) (Retention, error) {
	kept := Retention{forever, forever, forever}
	query := fmt.Sprintf("SELECT name, create_table_query FROM system.tables WHERE database = '%s' AND name LIKE 'partials%%' LIMIT 100", s.database)
	err := s.ask(ctx, conn, "read retention", query, func(rows driver.Rows) error {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return err
		}
		for g := range numResolutionTables {
			if found := expiry.FindStringSubmatch(text); found != nil && name == s.layout.local(resolutionTableAt(g).table()) {
				n, err := strconv.ParseInt(found[2], 10, 32)
				if err != nil {
					return fmt.Errorf("retention of %s: %w", name, err)
				}
				kept[g] = min(forever, time.Duration(n)*expiryUnits[found[1]])
			}
		}
		return nil
	})
	return kept, err
}

// Bounds of a retention. Servers look for expired parts once an hour.
const (
	MinRetention = time.Hour
	MaxRetention = forever
)

// CheckRetention returns an ErrRetention if a retention is out of bounds.
func CheckRetention(d time.Duration) error {
	if d < MinRetention || d > MaxRetention || d%time.Second != 0 {
		return fmt.Errorf("%w: expected whole seconds, at least %s and at most %dd", ErrRetention, MinRetention, MaxRetention/(24*time.Hour))
	}
	return nil
}

// check returns an error for the first retention out of bounds; 0 is valid.
func (keep Retention) check() error {
	for g, d := range keep {
		if err := CheckRetention(d); err != nil && d != 0 {
			return fmt.Errorf("keep %s for %s: %w", resolutionTableAt(g).table(), d, err)
		}
	}
	return nil
}

// SetRetention changes how long rows of each table of partials are kept after they were written,
// finest first; 0 leaves a table unchanged. The setting survives migrations. Setting the present
// retention again does nothing; the server deletes newly expired rows in its own time. Names are
// kept at least as long. A retention out of bounds is ErrRetention, and changes nothing.
func (s *Store) SetRetention(ctx context.Context, keep Retention) error {
	if err := keep.check(); err != nil || keep == (Retention{}) {
		return err
	}
	for _, sh := range s.shards(s.migrator) {
		if err := s.setRetention(ctx, sh.conn, keep); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) setRetention(ctx context.Context, conn driver.Conn, keep Retention) error {
	now, err := s.retentionOf(ctx, conn)
	if err != nil {
		return err
	}
	for g, d := range keep {
		if d == 0 || d == now[g] {
			continue
		}
		statement := fmt.Sprintf("ALTER TABLE %s.%s MODIFY TTL stored_at + %s", s.database, s.layout.local(resolutionTableAt(g).table()), interval(d))
		if err := conn.Exec(ctx, statement); err != nil {
			return s.describe("set retention", err)
		}
		s.logger.Info("retention changed", slog.String("table", resolutionTableAt(g).table()), slog.Duration("from", now[g]), slog.Duration("to", d))
		now[g] = d
	}
	return s.keepNames(ctx, conn, now)
}

const (
	recordRetention = 400 * 24 * time.Hour // of flows, taps, findings and gaps
	// flowRetention is that of flows of 1 s; those of 1 min are kept as long as other records.
	flowRetention = 14 * 24 * time.Hour
	// namesMargin is how much longer names are kept than the rows that use them: their last use
	// is recorded once a day, and an ancestor's use a day after its child's.
	namesMargin = 30 * 24 * time.Hour
)

// nameExpiry matches the retention of names as servers print it.
var nameExpiry = regexp.MustCompile(`TTL used \+ toIntervalDay\(([0-9]+)\)`)

// keepNames keeps names as long after their last use as any rows after they were written.
func (s *Store) keepNames(ctx context.Context, conn driver.Conn, rows Retention) error {
	days := int64((max(slices.Max(rows[:]), recordRetention) + namesMargin + 24*time.Hour - 1) / (24 * time.Hour))
	var differ []string
	query := fmt.Sprintf("SELECT name, create_table_query FROM system.tables WHERE database = '%s' AND name IN ('groups', 'locations') LIMIT 2", s.database)
	err := s.ask(ctx, conn, "read retention of names", query, func(rows driver.Rows) error {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return err
		}
		if found := nameExpiry.FindStringSubmatch(text); found == nil || found[1] != strconv.FormatInt(days, 10) {
			differ = append(differ, name)
		}
		return nil
	})
	for _, name := range differ {
		err = errors.Join(err, s.describe("set retention of names",
			conn.Exec(ctx, fmt.Sprintf("ALTER TABLE %s.%s MODIFY TTL used + toIntervalDay(%d)", s.database, name, days))))
	}
	return err
}

// keeps is how long the server keeps at least the rows of a class of partials or flows after they
// were written.
func (s *Store) keeps(ctx context.Context, class int) (time.Duration, error) {
	if class >= numResolutionTables {
		return flowRetention, nil
	}
	kept, err := s.Retention(ctx)
	return kept[class], err
}

// interval formats a duration in the largest unit that divides it.
func interval(d time.Duration) string {
	for _, unit := range []string{"Day", "Hour", "Minute"} {
		if length := expiryUnits[unit]; d%length == 0 {
			return fmt.Sprintf("toInterval%s(%d)", unit, d/length)
		}
	}
	return fmt.Sprintf("toIntervalSecond(%d)", d/time.Second)
}
