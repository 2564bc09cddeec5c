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

// MigrationStatus is the state of one migration.
type MigrationStatus struct {
	Version uint32 // 0: the views
	Name    string
	Applied time.Time // zero while it is pending
	Current bool      // the database has it with its present text
}

// versionsTable records the migrations that were applied. Databases from before version 1
// have earlierTable in its place, with other migrations of the same numbers.
const (
	versionsTable = "schema_versions"
	earlierTable  = "schema_migrations"
)

// bookkeeping are the statements that make the table of versions.
func bookkeeping(database string) []string {
	return []string{
		"CREATE DATABASE IF NOT EXISTS " + database,
		"CREATE TABLE IF NOT EXISTS " + database + "." + versionsTable + `
(
    version UInt32 COMMENT '0: the views',
    name String,
    checksum UInt64 COMMENT 'of the statements',
    at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree(at)
ORDER BY version`,
	}
}

// checksum tells whether a migration's text has changed since it was applied. Every
// statement can run again, so a changed migration is applied again: that replaces views,
// and leaves tables as they are, which change by further migrations only. Views are applied
// again with every further migration too, since they keep the columns that they began with.
func (m migration) checksum() uint64 {
	return xxhash.Sum64String(strings.Join(m.Statements, ";\n")) + uint64(m.tables)
}

// Migrate brings the database to the schema of this program, creating it if it does
// not exist. It changes nothing in a database that is current, and refuses one that a
// newer program has migrated (ErrNewerSchema) or that is from before version 1
// (ErrEarlierSchema). Two programs may run it at once, and one that was killed is resumed
// by the next: every statement can run again. Rows that earlier stores left in the outbox
// are sent from then on.
//
// A schema that is current takes no right but to read it: a writer (AccessWriter) may not
// create what is there already.
func (s *Store) Migrate(ctx context.Context) error {
	status, err := s.Status(ctx)
	if errors.Is(err, ErrNoSchema) {
		for _, statement := range bookkeeping(s.database) {
			if err := s.migrator.Exec(ctx, statement); err != nil {
				return s.describe("create schema", err)
			}
		}
		status, err = s.Status(ctx)
	}
	if err != nil {
		return err
	}
	applied := false
	for i, m := range s.schema {
		if status[i].Current {
			continue
		}
		if err := s.apply(ctx, m); err != nil {
			return err
		}
		applied = true
	}
	if applied {
		rows, err := s.Retention(ctx)
		if err == nil {
			err = s.keepNames(ctx, rows)
		}
		if err != nil {
			return err
		}
	}
	for _, d := range s.deliveries {
		d.start()
	}
	return nil
}

func (s *Store) apply(ctx context.Context, m migration) error {
	what := fmt.Sprintf("apply migration %d, %s", m.Version, m.Name)
	for _, statement := range m.Statements {
		if err := s.migrator.Exec(ctx, statement); err != nil {
			return s.describe(what, err)
		}
	}
	batch, err := s.migrator.PrepareBatch(ctx, "INSERT INTO "+s.database+"."+versionsTable+" (version, name, checksum)")
	if err != nil {
		return s.describe(what, err)
	}
	defer batch.Close()
	if err := batch.Append(m.Version, m.Name, m.checksum()); err != nil {
		return s.describe(what, err)
	}
	return s.describe(what, batch.Send())
}

// Status lists the migrations that this program knows, in the order in which Migrate
// applies them: tables by their numbers, then the views. It fails with ErrNoSchema where
// Migrate has never run, and otherwise where Migrate refuses the database.
func (s *Store) Status(ctx context.Context) ([]MigrationStatus, error) {
	if err := s.refuseEarlier(ctx); err != nil {
		return nil, err
	}
	applied, err := s.applied(ctx)
	if err != nil {
		return nil, err
	}
	newest := uint32(0)
	status := make([]MigrationStatus, len(s.schema))
	for i, m := range s.schema {
		newest = max(newest, m.Version)
		status[i] = MigrationStatus{Version: m.Version, Name: m.Name}
		at := slices.IndexFunc(applied, func(a appliedMigration) bool { return a.version == m.Version })
		if at >= 0 {
			status[i].Applied = applied[at].at
			status[i].Current = applied[at].checksum == m.checksum()
		}
	}
	for _, a := range applied {
		if a.version > newest {
			return nil, fmt.Errorf("read schema of database %s at %s: migration %d: %w", s.database, s.host, a.version, ErrNewerSchema)
		}
	}
	return status, nil
}

// refuseEarlier fails with ErrEarlierSchema for a database from before version 1.
func (s *Store) refuseEarlier(ctx context.Context) error {
	query := fmt.Sprintf("SELECT name FROM system.tables WHERE database = '%s' AND name = '%s' LIMIT 1", s.database, earlierTable)
	return s.ask(ctx, s.migrator, "read schema", query, func(driver.Rows) error {
		return fmt.Errorf("database %s: %w", s.database, ErrEarlierSchema)
	})
}

type appliedMigration struct {
	version  uint32
	checksum uint64
	at       time.Time
}

// maxMigrations bounds what is read of a table that anyone may have written to.
const maxMigrations = 10000

func (s *Store) applied(ctx context.Context) ([]appliedMigration, error) {
	query := fmt.Sprintf("SELECT version, checksum, at FROM %s.%s FINAL ORDER BY version LIMIT %d", s.database, versionsTable, maxMigrations)
	var list []appliedMigration
	err := s.ask(ctx, s.migrator, "read schema", query, func(rows driver.Rows) error {
		var a appliedMigration
		if err := rows.Scan(&a.version, &a.checksum, &a.at); err != nil {
			return err
		}
		list = append(list, a)
		return nil
	})
	return list, err
}
