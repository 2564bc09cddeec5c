package store

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

func TestMigrate(t *testing.T) {
	s := open(t, engineOptions(t))
	if _, err := s.Cells(t.Context(), testQuestion()); !errors.Is(err, ErrNoSchema) {
		t.Errorf("question before migrating: %v, want ErrNoSchema", err)
	}
	for range 2 {
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	status, err := s.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range status {
		if number := (i + 1) % len(status); !m.Current || m.Applied.IsZero() || int(m.Version) != number {
			t.Errorf("migration %+v, want %d, applied and current", m, number)
		}
	}
	if len(status) < 2 || status[len(status)-1].Name != "views" {
		t.Errorf("migrations %+v, want tables and then the views", status)
	}
	if rows, err := s.Cells(t.Context(), testQuestion()); err != nil || len(rows) != 0 {
		t.Errorf("empty store: %d rows, %v", len(rows), err)
	}
}

func TestMigrateTogether(t *testing.T) {
	o := engineOptions(t)
	var programs errgroup.Group
	for range 3 {
		s := open(t, o)
		programs.Go(func() error { return s.Migrate(t.Context()) })
	}
	if err := programs.Wait(); err != nil {
		t.Error(err)
	}
}

// TestMigrateWithoutRights: a user who may not create anything can use a current schema, but not
// make one.
func TestMigrateWithoutRights(t *testing.T) {
	sequential(t)
	o := engineOptions(t)
	writer := o
	writer.Migrator = o.Reader
	if err := open(t, writer).Migrate(t.Context()); err == nil {
		t.Error("made a schema through a connection that only reads")
	}
	if err := open(t, o).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := open(t, writer).Migrate(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestMigrateChanged replaces a view whose text has changed, and refuses a database that a newer
// program has migrated.
func TestMigrateChanged(t *testing.T) {
	sequential(t)
	s := openStore(t)
	record := func(version uint32, name string) {
		t.Helper()
		if err := s.apply(t.Context(), s.migrator, migration{Version: version, Name: name, Statements: []string{"SELECT 1"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.migrator.Exec(t.Context(), "CREATE OR REPLACE VIEW csigscope.superseded AS SELECT 1 AS an_older_text"); err != nil {
		t.Fatal(err)
	}
	record(0, "views")
	status, err := s.Status(t.Context())
	if err != nil || status[len(status)-1].Current || !status[0].Current {
		t.Errorf("status %+v, %v, want the views changed", status, err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cells(t.Context(), testQuestion()); err != nil {
		t.Errorf("question after the view was replaced: %v", err)
	}
	record(9999, "from_the_future")
	if err := s.Migrate(t.Context()); !errors.Is(err, ErrNewerSchema) {
		t.Errorf("%v, want ErrNewerSchema", err)
	}
}

// earlierStore is the part of a database from before version 1 that this program knows: a table
// of the same name and a record of migrations of the same numbers.
var earlierStore = []string{
	"CREATE DATABASE csigscope",
	`CREATE TABLE csigscope.schema_migrations (version UInt32, name String, checksum UInt64, at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC'))
ENGINE = ReplacingMergeTree(at) ORDER BY version`,
	"INSERT INTO csigscope.schema_migrations (version, name, checksum) VALUES (1, 'partials', 5), (14, 'super_frames', 6)",
	"CREATE TABLE csigscope.partials_1m (window_start DateTime64(9, 'UTC'), observations UInt64) ENGINE = ReplacingMergeTree ORDER BY window_start",
	"INSERT INTO csigscope.partials_1m VALUES ('2024-02-29 23:58:00', 7)",
	"CREATE VIEW csigscope.superseded AS SELECT 1 AS producer",
}

// TestEarlierStore: every operation refuses a database from before version 1, except Drop, which
// deletes it.
func TestEarlierStore(t *testing.T) {
	sequential(t)
	o := engineOptions(t)
	before := open(t, o)
	for _, statement := range earlierStore {
		if err := before.migrator.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	refused := func(who string, err error) {
		t.Helper()
		if !errors.Is(err, ErrEarlierSchema) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "csigscope schema drop") {
			t.Errorf("%s: %v, want one line that tells how to drop it", who, err)
		}
	}
	_, err := Open(t.Context(), o)
	refused("a writer", err)
	reader := o
	reader.Writer = nil
	_, err = Open(t.Context(), reader)
	refused("a reader", err)
	o.ToDrop = true
	s := open(t, o)
	refused("migrations", s.Migrate(t.Context()))
	_, err = s.Status(t.Context())
	refused("status", err)
	if tables := tablesLike(t, s, "%"); len(tables) != 3 {
		t.Errorf("tables %v after the refusals", tables)
	}
	c, err := s.Contents(t.Context())
	if err != nil || len(c.Tables) != 1 || c.Tables[0].Rows != 1 || !c.First.Equal(testStart) {
		t.Errorf("contents %+v, %v", c, err)
	}
	if err := s.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.ToDrop = false
	if err := open(t, o).Migrate(t.Context()); err != nil {
		t.Errorf("and a new one: %v", err)
	}
}

func TestStatements(t *testing.T) {
	for _, name := range []string{"", "a b", "a;b", "a`b", "1a", strings.Repeat("a", 65)} {
		if _, err := Statements(name); err == nil {
			t.Errorf("database %q: accepted", name)
		}
	}
	statements, err := Statements("elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		if strings.Contains(s, "{{") || strings.Contains(s, DefaultDatabase) || !strings.Contains(s, "elsewhere") {
			t.Errorf("statement:\n%s", s)
		}
		repeatable := strings.HasPrefix(s, "CREATE ") && (strings.Contains(s, "IF NOT EXISTS") || strings.Contains(s, "OR REPLACE")) ||
			strings.HasPrefix(s, "ALTER TABLE ") && slices.ContainsFunc([]string{" MODIFY SETTING ", " MODIFY COLUMN ", " MODIFY TTL ", " ADD COLUMN IF NOT EXISTS ", " UPDATE used = now("},
				func(change string) bool { return strings.Contains(s, change) })
		if !repeatable {
			t.Errorf("statement cannot run again:\n%s", s)
		}
	}
}
