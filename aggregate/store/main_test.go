package store

import (
	"log/slog"
	"testing"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

func TestMain(m *testing.M) { chdbtest.Main(m) }

// sequential keeps a test out of short ones, which look for data races: it writes, and then
// asks one question after the other. Those that are left write, send, trim and ask at once.
func sequential(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: one question after the other has nothing for the race detector")
	}
}

// engineOptions reaches a real engine of the test's own.
func engineOptions(t testing.TB) Options {
	t.Helper()
	engine := chdbtest.Start(t)
	return Options{
		Writer:   engine.ClickHouseOptions(chdb.RoleWriter),
		Migrator: engine.ClickHouseOptions(chdb.RoleMigrator),
		Reader:   engine.ClickHouseOptions(chdb.RoleReader),
		Logger:   slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// openStore is a migrated store over an engine of the test's own.
func openStore(t testing.TB) *Store {
	t.Helper()
	s := open(t, engineOptions(t))
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func open(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	return s
}
