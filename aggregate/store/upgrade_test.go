package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/go-cmp/cmp"
)

// schemaOf returns all properties in which schemas can differ, without the database's name.
func schemaOf(t testing.TB, s *Store) map[string]string {
	t.Helper()
	objects := map[string]string{}
	add := func(query string) {
		for _, line := range readStrings(t, s, fmt.Sprintf(query, s.database)) {
			name, text, _ := strings.Cut(line, "\t")
			objects[name] = strings.ReplaceAll(text, s.database+".", "DB.")
		}
	}
	add("SELECT concat(name, '\t', create_table_query) FROM system.tables WHERE database = '%s'")
	add(`SELECT concat(table, '.', name, '\t', toString((position, type, default_kind, default_expression, comment, compression_codec,
is_in_partition_key, is_in_sorting_key, is_in_primary_key))) FROM system.columns WHERE database = '%s'`)
	return objects
}

// rowsOf are the rows of all tables except the record of versions, with the named columns.
func rowsOf(t testing.TB, s *Store, columns map[string][]string) map[string][]string {
	t.Helper()
	rows := map[string][]string{}
	for table, names := range columns {
		rows[table] = readStrings(t, s, fmt.Sprintf("SELECT formatRow('JSONEachRow', %s) AS row FROM %s.%s ORDER BY row", strings.Join(names, ", "), s.database, table))
	}
	return rows
}

func columnsOf(t testing.TB, s *Store) map[string][]string {
	t.Helper()
	columns := map[string][]string{}
	for _, table := range tablesLike(t, s, "%MergeTree") {
		if table != versionsTable {
			columns[table] = storedColumns(t, s, table)
		}
	}
	return columns
}

// addVersion gives the store the schema of a later program: one more migration, with every kind
// of statement that a migration of tables may have, and a view that reads its columns.
func addVersion(s *Store) {
	tables, views := s.schema[:len(s.schema)-1], s.schema[len(s.schema)-1]
	in := func(statement string) string { return strings.ReplaceAll(statement, "DB.", s.database+".") }
	later := migration{Version: s.newest() + 1, Name: "later", Statements: []string{
		in("CREATE TABLE IF NOT EXISTS DB.later (n UInt64)\nENGINE = ReplacingMergeTree\nORDER BY n"),
		in("ALTER TABLE DB.taps ADD COLUMN IF NOT EXISTS later UInt64 DEFAULT 7 COMMENT 'of a later version' CODEC(T64, LZ4) AFTER lost"),
		in("ALTER TABLE DB.partials_1s MODIFY COLUMN dist CODEC(ZSTD(3))"),
		in("ALTER TABLE DB.flows MODIFY SETTING non_replicated_deduplication_window = 100"),
	}}
	views.Statements = append(slices.Clone(views.Statements), in("CREATE OR REPLACE VIEW DB.later_taps AS SELECT name, later FROM DB.taps FINAL"))
	s.schema = append(slices.Clone(tables), later, views)
}

// programs are this one and a later one, whose migrations start from the dumps too.
var programs = map[string]func(*Store){"this": func(*Store) {}, "later": addVersion}

// freshSchemas are the schemas of new databases, by program. Each is made once.
var freshSchemas = map[string]map[string]string{}

// upgradeTest is a database to be migrated, with the schema of a new one for comparison.
type upgradeTest struct {
	old  *Store
	want map[string]string
}

func newUpgradeTest(t *testing.T, program string) upgradeTest {
	t.Helper()
	o := engineOptions(t)
	old := open(t, o)
	programs[program](old)
	if freshSchemas[program] == nil {
		o.Database = "fresh"
		fresh := open(t, o)
		programs[program](fresh)
		if err := fresh.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		freshSchemas[program] = schemaOf(t, fresh)
	}
	return upgradeTest{old, freshSchemas[program]}
}

func (u *upgradeTest) compare(t *testing.T) {
	t.Helper()
	if diff := cmp.Diff(u.want, schemaOf(t, u.old)); diff != "" {
		t.Errorf("schema (-new +migrated):\n%s\nEvery change of a table is a migration of its own: those in place are not edited.", diff)
	}
	status, err := u.old.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range status {
		if !m.Current {
			t.Errorf("migration %d is not current", m.Version)
		}
	}
}

// each runs a test of every program with every file.
func each(t *testing.T, files []string, test func(t *testing.T, program, file string)) {
	for program := range programs {
		for _, file := range files {
			t.Run(program+" from "+file, func(t *testing.T) { test(t, program, file) })
		}
	}
}

// TestMigrateDumps migrates the database of every version from 1 on, with rows in it, to the
// schema of this program and of a later one: the schema equals a new one's, and every row is
// unchanged. This program refuses the later one's database.
func TestMigrateDumps(t *testing.T) {
	sequential(t)
	each(t, dumps(t), func(t *testing.T, program, file string) {
		u := newUpgradeTest(t, program)
		this := u.old.schema
		if program != "this" {
			this = append(slices.Clone(this[:len(this)-2]), this[len(this)-1])
		}
		restore(t, u.old, file)
		columns := columnsOf(t, u.old)
		before := rowsOf(t, u.old, columns)
		for table, rows := range before {
			if len(rows) == 0 {
				t.Errorf("table %s of the dump has no rows: nothing is shown of it", table)
			}
		}
		for range 2 {
			if err := u.old.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		u.compare(t)
		if diff := cmp.Diff(before, rowsOf(t, u.old, columns)); diff != "" {
			t.Errorf("rows (-dumped +migrated):\n%s", diff)
		}
		u.old.schema = this
		if err := u.old.Migrate(t.Context()); errors.Is(err, ErrNewerSchema) != (program != "this") {
			t.Errorf("migrated by this program after the %s: %v", program, err)
		}
	})
}

var errKilled = errors.New("killed")

// mortal is a connection that fails after some statements.
type mortal struct {
	driver.Conn
	left int
}

func (m *mortal) spend() error {
	if m.left == 0 {
		return errKilled
	}
	m.left--
	return nil
}

func (m *mortal) Exec(ctx context.Context, query string, args ...any) error {
	if err := m.spend(); err != nil {
		return err
	}
	return m.Conn.Exec(ctx, query, args...)
}

func (m *mortal) PrepareBatch(ctx context.Context, query string, o ...driver.PrepareBatchOption) (driver.Batch, error) {
	if err := m.spend(); err != nil {
		return nil, err
	}
	return m.Conn.PrepareBatch(ctx, query, o...)
}

// TestMigrateResumes migrates from nothing and from every dump, killed after each statement: each
// attempt gets one statement further than the one before. From a dump it is killed only until the next
// version, since the dump of that has more rows.
func TestMigrateResumes(t *testing.T) {
	sequential(t)
	all := dumps(t)
	for _, file := range append([]string{""}, all...) {
		t.Run("from "+file, func(t *testing.T) {
			u := newUpgradeTest(t, "later")
			if file != "" {
				restore(t, u.old, file)
			}
			kills, first := 0, applied(u.old)
			last := first
			for after := 0; file == "" || file == all[len(all)-1] || last == first; after++ {
				if migrateKilled(t, u.old, after) {
					break
				}
				kills++
				if done := applied(u.old); done > last {
					last, after = done, len(u.old.layout.bookkeeping())-1
				}
			}
			if err := u.old.Migrate(t.Context()); err != nil || kills == 0 {
				t.Fatalf("killed %d times, then: %v", kills, err)
			}
			t.Logf("killed %d times", kills)
			u.compare(t)
		})
	}
}

// applied is the number of recorded migrations.
func applied(s *Store) int {
	list, err := s.applied(context.Background(), s.migrator)
	if err != nil {
		return 0
	}
	return len(list)
}

// migrateKilled reports whether the migration finished within a number of statements.
func migrateKilled(t *testing.T, s *Store, after int) (whole bool) {
	t.Helper()
	alive := s.migrator
	s.migrator = &mortal{alive, after}
	defer func() { s.migrator = alive }()
	err := s.Migrate(t.Context())
	if err != nil && !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	return err == nil
}
