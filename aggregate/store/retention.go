package store

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// expiry is how a server prints the retention of a table.
var expiry = regexp.MustCompile(`TTL stored_at \+ toInterval(Second|Minute|Hour|Day)\(([0-9]+)\)`)

var expiryUnits = map[string]time.Duration{"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour, "Day": 24 * time.Hour}

// forever is the retention of a table without one.
const forever = 100 * 365 * 24 * time.Hour

// Retention tells how long rows of each table of partials are kept after they were
// written, finest first.
func (s *Store) Retention(ctx context.Context) ([numGrains]time.Duration, error) {
	kept := [numGrains]time.Duration{forever, forever, forever}
	query := fmt.Sprintf("SELECT name, create_table_query FROM system.tables WHERE database = '%s' AND name LIKE 'partials%%' LIMIT 100", s.database)
	err := s.query(ctx, s.migrator, "read retention", query, func(rows driver.Rows) error {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return err
		}
		for g := range numGrains {
			if found := expiry.FindStringSubmatch(text); found != nil && name == grainAt(g).table() {
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
