package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/go-cmp/cmp"
)

// schemaOf is everything that tells two schemas apart, with the database's name taken
// out of it.
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

// rowsOf are the rows of all tables but schema_migrations, column by column as named.
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
		if table != "schema_migrations" {
			columns[table] = storedColumns(t, s, table)
		}
	}
	return columns
}

// upgradeTest is a database to be migrated beside a new one to compare with.
type upgradeTest struct {
	old  *Store
	want map[string]string // schema of the new one
}

func newUpgradeTest(t *testing.T) upgradeTest {
	t.Helper()
	o := engineOptions(t)
	old := open(t, o)
	o.Database = "fresh"
	fresh := open(t, o)
	if err := fresh.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return upgradeTest{old, schemaOf(t, fresh)}
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

// TestMigrateDumps brings the database of every older version, with rows in it, to
// this schema: it ends the same as a new one, and every row is what it was.
func TestMigrateDumps(t *testing.T) {
	sequential(t)
	for _, file := range dumps(t) {
		t.Run(file, func(t *testing.T) {
			u := newUpgradeTest(t)
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
		})
	}
}

var errKilled = errors.New("killed")

// mortal is a connection that ends after some statements.
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

// TestMigrateResumes migrates from nothing and from every dump, killed after each
// statement: each attempt gets one statement further than the one before.
func TestMigrateResumes(t *testing.T) {
	sequential(t)
	for _, file := range append([]string{""}, dumps(t)...) {
		t.Run("from "+file, func(t *testing.T) {
			u := newUpgradeTest(t)
			if file != "" {
				restore(t, u.old, file)
			}
			kills, last := 0, 0
			for after := 0; !migrateKilled(t, u.old, after); after++ {
				kills++
				if done := applied(u.old); done > last {
					last, after = done, len(bookkeeping(u.old.database))-1
				}
			}
			t.Logf("killed %d times", kills)
			u.compare(t)
		})
	}
}

// applied is how many migrations are recorded.
func applied(s *Store) int {
	list, err := s.applied(context.Background())
	if err != nil {
		return 0
	}
	return len(list)
}

// migrateKilled tells whether the migration came to its end within so many statements.
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

// TestViewsComeLast keeps an edited view behind the tables that it may read.
func TestViewsComeLast(t *testing.T) {
	view, table := []string{"CREATE OR REPLACE VIEW a.b AS SELECT 1"}, []string{"CREATE TABLE IF NOT EXISTS a.c (x UInt8)"}
	list := []migration{{1, "t", table}, {2, "v", view}, {3, "both", append(view[:1:1], table...)}, {4, "v", view}}
	if diff := cmp.Diff([]int{0, 2, 1, 3}, inOrder(list)); diff != "" {
		t.Error(diff)
	}
}
