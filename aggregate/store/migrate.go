package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/cespare/xxhash/v2"
)

// MigrationStatus is the state of one numbered step of the schema.
type MigrationStatus struct {
	Version uint32
	Name    string
	Applied time.Time // zero while it is pending
	Current bool      // the database has it with its present text
}

// bookkeeping is where applied migrations are remembered.
func bookkeeping(database string) []string {
	return []string{
		"CREATE DATABASE IF NOT EXISTS " + database,
		"CREATE TABLE IF NOT EXISTS " + database + `.schema_migrations
(
    version UInt32,
    name String,
    checksum UInt64 COMMENT 'of the statements',
    at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree(at)
ORDER BY version`,
	}
}

// checksum tells whether a migration's text has changed since it was applied. Every
// statement can run again, so one that has is applied again: that replaces views, and
// leaves tables as they are, which change by further migrations only.
func (m migration) checksum() uint64 { return xxhash.Sum64String(strings.Join(m.Statements, ";\n")) }

// views tells a migration of views alone. Its file may be edited: it is applied again.
// What tables are stored as changes by further migrations only, since those that were
// applied are not.
func (m migration) views() bool {
	return !slices.ContainsFunc(m.Statements, func(s string) bool { return !strings.HasPrefix(s, "CREATE OR REPLACE VIEW ") })
}

// inOrder are the positions of migrations as they are applied: views after the tables
// of later numbers, which an edited view may read.
func inOrder(list []migration) []int {
	var tables, views []int
	for i, m := range list {
		if m.views() {
			views = append(views, i)
		} else {
			tables = append(tables, i)
		}
	}
	return append(tables, views...)
}

// Migrate brings the database to the schema of this program, creating it if it does
// not exist. It changes nothing in a database that is current, and refuses one that a
// newer program has migrated (ErrNewerSchema). Two programs may run it at once, and one
// that was killed is resumed by the next: every statement can run again. What earlier
// stores left in the outbox is sent from then on.
//
// A schema that is current takes no right but to read it: a writer (AccessWriter) may not
// create what is there already.
func (s *Store) Migrate(ctx context.Context) error {
	list, status, err := s.status(ctx)
	if errors.Is(err, ErrNoSchema) {
		for _, statement := range bookkeeping(s.database) {
			if err := s.migrator.Exec(ctx, statement); err != nil {
				return s.describe("create schema", err)
			}
		}
		list, status, err = s.status(ctx)
	}
	if err != nil {
		return err
	}
	for _, i := range inOrder(list) {
		if status[i].Current {
			continue
		}
		if err := s.apply(ctx, list[i]); err != nil {
			return err
		}
	}
	for _, d := range s.deliveries {
		d.start()
	}
	return nil
}

func (s *Store) apply(ctx context.Context, m migration) error {
	what := fmt.Sprintf("apply migration %04d %s", m.Version, m.Name)
	for _, statement := range m.Statements {
		if err := s.migrator.Exec(ctx, statement); err != nil {
			return s.describe(what, err)
		}
	}
	batch, err := s.migrator.PrepareBatch(ctx, "INSERT INTO "+s.database+".schema_migrations (version, name, checksum)")
	if err != nil {
		return s.describe(what, err)
	}
	defer batch.Close()
	if err := batch.Append(m.Version, m.Name, m.checksum()); err != nil {
		return s.describe(what, err)
	}
	return s.describe(what, batch.Send())
}

// Status lists the migrations that this program knows, in order. It fails with
// ErrNoSchema where Migrate has never run.
func (s *Store) Status(ctx context.Context) ([]MigrationStatus, error) {
	_, status, err := s.status(ctx)
	return status, err
}

func (s *Store) status(ctx context.Context) ([]migration, []MigrationStatus, error) {
	list, err := migrations(s.database, s.version)
	if err != nil {
		return nil, nil, err
	}
	applied, err := s.applied(ctx)
	if err != nil {
		return nil, nil, err
	}
	status := make([]MigrationStatus, len(list))
	for i, m := range list {
		status[i] = MigrationStatus{Version: m.Version, Name: m.Name}
		at := slices.IndexFunc(applied, func(a appliedMigration) bool { return a.version == m.Version })
		if at >= 0 {
			status[i].Applied = applied[at].at
			status[i].Current = applied[at].checksum == m.checksum()
		}
	}
	newest := list[len(list)-1].Version
	for _, a := range applied {
		if a.version > newest {
			return nil, nil, fmt.Errorf("read schema of database %s at %s: migration %04d: %w", s.database, s.host, a.version, ErrNewerSchema)
		}
	}
	return list, status, nil
}

type appliedMigration struct {
	version  uint32
	checksum uint64
	at       time.Time
}

// maxMigrations bounds what is read of a table that anyone may have written to.
const maxMigrations = 10000

func (s *Store) applied(ctx context.Context) ([]appliedMigration, error) {
	query := fmt.Sprintf("SELECT version, checksum, at FROM %s.schema_migrations FINAL ORDER BY version LIMIT %d", s.database, maxMigrations)
	var list []appliedMigration
	err := s.query(ctx, s.migrator, "read schema", query, func(rows driver.Rows) error {
		var a appliedMigration
		if err := rows.Scan(&a.version, &a.checksum, &a.at); err != nil {
			return err
		}
		list = append(list, a)
		return nil
	})
	return list, err
}
