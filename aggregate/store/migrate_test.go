package store

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

func TestMigrate(t *testing.T) {
	s := open(t, engineOptions(t))
	if _, err := s.Cells(t.Context(), testQuery()); !errors.Is(err, ErrNoSchema) {
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
		if !m.Current || m.Applied.IsZero() || int(m.Version) != i+1 {
			t.Errorf("migration %d: %+v, want applied and current", i+1, m)
		}
	}
	if len(status) == 0 {
		t.Error("no migrations")
	}
	if rows, err := s.Cells(t.Context(), testQuery()); err != nil || len(rows) != 0 {
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

// TestMigrateWithoutRights: who may not create anything can go on with a schema that is
// current, and makes none.
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

// TestMigrateChanged replaces a view whose text has changed, and refuses a database
// that a newer program has migrated.
func TestMigrateChanged(t *testing.T) {
	sequential(t)
	s := openStore(t)
	record := func(version uint32, name string) {
		t.Helper()
		if err := s.apply(t.Context(), migration{Version: version, Name: name, Statements: []string{"SELECT 1"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.migrator.Exec(t.Context(), "CREATE OR REPLACE VIEW csigscope.superseded AS SELECT 1 AS an_older_text"); err != nil {
		t.Fatal(err)
	}
	record(3, "superseded")
	status, err := s.Status(t.Context())
	if err != nil || status[2].Current || !status[1].Current {
		t.Errorf("status %+v, %v, want the third changed", status, err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cells(t.Context(), testQuery()); err != nil {
		t.Errorf("question after the view was replaced: %v", err)
	}
	record(9999, "from_the_future")
	if err := s.Migrate(t.Context()); !errors.Is(err, ErrNewerSchema) {
		t.Errorf("%v, want ErrNewerSchema", err)
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
			strings.HasPrefix(s, "ALTER TABLE ") && (strings.Contains(s, " MODIFY SETTING ") || strings.Contains(s, " MODIFY COLUMN ") || strings.Contains(s, " ADD COLUMN IF NOT EXISTS "))
		if !repeatable {
			t.Errorf("statement cannot run again:\n%s", s)
		}
	}
}
