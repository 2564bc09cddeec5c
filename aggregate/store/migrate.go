package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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

// versionsTable records the applied migrations. Databases from before version 1 have earlierTable
// instead, with other migrations of the same numbers.
const (
	versionsTable = "schema_versions"
	earlierTable  = "schema_migrations"
)

// checksum changes with a migration's text, and a changed migration is applied again, since every
// statement can run again. That replaces views, and leaves tables unchanged: only further
// migrations change those. Views are also applied again after each further migration, since they
// keep the columns that they were created with.
func (m migration) checksum() uint64 {
	return xxhash.Sum64String(strings.Join(m.Statements, ";\n")) + uint64(m.tables)
}

// Migrate brings the database to the schema of this program, creating it if it does not exist. It
// changes nothing in a current database, and refuses one migrated by a newer program
// (ErrNewerSchema) or created before version 1 (ErrEarlierSchema). Two programs may run it at
// once, and the next run resumes a killed one: every statement can run again. Afterwards rows
// that earlier stores left in the outbox are sent.
//
// For a current schema it needs only the right to read: a writer (AccessWriter) may not create
// existing objects.
//
// On a cluster it migrates each server, and skips unreachable servers as long as one server of
// their shard answers: the next Migrate brings them up to date.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.onServers(ctx, func(conn driver.Conn) error { return s.migrateOn(ctx, conn) }); err != nil {
		return err
	}
	for _, d := range s.deliveries {
		d.start()
	}
	return nil
}

// migrateOn migrates one server.
func (s *Store) migrateOn(ctx context.Context, conn driver.Conn) error {
	status, err := s.statusOf(ctx, conn)
	if errors.Is(err, ErrNoSchema) {
		for _, statement := range s.layout.bookkeeping() {
			if err := conn.Exec(ctx, statement); err != nil {
				return s.describe("create schema", err)
			}
		}
		status, err = s.statusOf(ctx, conn)
	}
	if err != nil {
		return err
	}
	pending := slices.IndexFunc(status, func(m MigrationStatus) bool { return !m.Current })
	if pending < 0 {
		return nil
	}
	if err := s.copyTables(ctx, conn); err != nil {
		return err
	}
	for i, m := range s.schema[pending:] {
		if status[pending+i].Current {
			continue
		}
		if err := s.apply(ctx, conn, m); err != nil {
			return err
		}
	}
	rows, err := s.retentionOf(ctx, conn)
	if err != nil {
		return err
	}
	return s.keepNames(ctx, conn, rows)
}

// copyTables creates the tables of another server of the cluster with their present definition: a
// new replica must have the columns and the retention that the others have by then.
func (s *Store) copyTables(ctx context.Context, conn driver.Conn) error {
	if !s.layout.clustered() {
		return nil
	}
	statements := make(map[string]string) // by table
	query := fmt.Sprintf("SELECT name, create_table_query FROM system.tables WHERE database = '%s' AND engine LIKE '%%MergeTree' AND name NOT IN ('%s', '%s') LIMIT %d",
		s.database, versionsTable, shardsTable, maxObjects)
	err := s.onServers(ctx, func(other driver.Conn) error {
		if other == conn {
			return nil
		}
		return s.ask(ctx, other, "read tables", query, func(rows driver.Rows) error {
			var name, statement string
			err := rows.Scan(&name, &statement)
			statements[name] = "CREATE TABLE IF NOT EXISTS " + strings.TrimPrefix(statement, "CREATE TABLE ")
			return err
		})
	})
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(statements)) {
		if err := conn.Exec(ctx, statements[name]); err != nil {
			return s.describe("create "+name, err)
		}
	}
	return nil
}

func (s *Store) apply(ctx context.Context, conn driver.Conn, m migration) error {
	what := fmt.Sprintf("apply migration %d, %s", m.Version, m.Name)
	for _, statement := range m.Statements {
		if err := s.alter(ctx, conn, statement); err != nil {
			return s.describe(what, err)
		}
	}
	batch, err := conn.PrepareBatch(ctx, "INSERT INTO "+s.database+"."+versionsTable+" (version, name, checksum)")
	if err != nil {
		return s.describe(what, err)
	}
	defer batch.Close()
	if err := batch.Append(m.Version, m.Name, m.checksum()); err != nil {
		return s.describe(what, err)
	}
	return s.describe(what, batch.Send())
}

// alter runs a statement of a migration. It retries while a replica has not yet received an
// earlier change by another one.
func (s *Store) alter(ctx context.Context, conn driver.Conn, statement string) error {
	for backoff := newBackoff(); ; {
		err := conn.Exec(ctx, statement)
		if exceptionCode(err) != codeAlterConflict || !backoff.Wait(ctx) {
			return err
		}
	}
}

// Status lists the migrations of this program, in the order of Migrate: tables by their numbers,
// then the views. It fails with ErrNoSchema if Migrate has never run, and with Migrate's error if
// Migrate refuses the database. A cluster has a migration when all servers that answer have it.
func (s *Store) Status(ctx context.Context) (status []MigrationStatus, err error) {
	var without error
	err = s.onServers(ctx, func(conn driver.Conn) error {
		of, err := s.statusOf(ctx, conn)
		switch {
		case errors.Is(err, ErrNoSchema):
			without = err
			return nil
		case status == nil:
			status = of
		}
		for i := range of {
			if !of[i].Current {
				status[i] = of[i]
			}
		}
		return err
	})
	if err != nil || status == nil {
		return nil, cmp.Or(err, without)
	}
	for i := range status {
		if without != nil {
			status[i].Current, status[i].Applied = false, time.Time{}
		}
	}
	return status, nil
}

// statusOf is the Status of one server.
func (s *Store) statusOf(ctx context.Context, conn driver.Conn) ([]MigrationStatus, error) {
	if err := s.refuseOthers(ctx, conn); err != nil {
		return nil, err
	}
	applied, err := s.applied(ctx, conn)
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

// refuseOthers fails with ErrEarlierSchema for a database from before version 1, and with
// ErrCluster for one of a cluster where none is configured, or the reverse.
func (s *Store) refuseOthers(ctx context.Context, conn driver.Conn) error {
	seconds := resolutionTableAt(secondTable).table()
	query := fmt.Sprintf("SELECT name, engine FROM system.tables WHERE database = '%s' AND name IN ('%s', '%s') ORDER BY name = '%[2]s' DESC LIMIT 2",
		s.database, earlierTable, seconds)
	return s.ask(ctx, conn, "read schema", query, func(rows driver.Rows) error {
		var name, engine string
		if err := rows.Scan(&name, &engine); err != nil {
			return err
		}
		switch distributed := engine == "Distributed"; {
		case name == earlierTable:
			return fmt.Errorf("database %s: %w", s.database, ErrEarlierSchema)
		case distributed && !s.layout.clustered():
			return fmt.Errorf("database %s: %w: its tables are those of a cluster: name it in the configuration (store.cluster)", s.database, ErrCluster)
		case !distributed && s.layout.clustered():
			return fmt.Errorf("database %s: %w: its tables are those of one server: leave out store.cluster, or name a new database", s.database, ErrCluster)
		}
		return nil
	})
}

type appliedMigration struct {
	version  uint32
	checksum uint64
	at       time.Time
}

// maxMigrations bounds the rows read from a table that anyone may have written to.
const maxMigrations = 10000

func (s *Store) applied(ctx context.Context, conn driver.Conn) ([]appliedMigration, error) {
	query := fmt.Sprintf("SELECT version, checksum, at FROM %s.%s FINAL ORDER BY version LIMIT %d", s.database, versionsTable, maxMigrations)
	var list []appliedMigration
	err := s.ask(ctx, conn, "read schema", query, func(rows driver.Rows) error {
		var a appliedMigration
		if err := rows.Scan(&a.version, &a.checksum, &a.at); err != nil {
			return err
		}
		list = append(list, a)
		return nil
	})
	return list, err
}
