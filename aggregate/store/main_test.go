package store

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

func TestMain(m *testing.M) {
	if chdb.InChild() {
		chdbtest.Main(m)
	}
	code := m.Run()
	if migrated.dir != "" {
		_ = os.RemoveAll(migrated.dir)
	}
	os.Exit(code)
}

// sequential keeps a test out of short ones, which look for data races: it writes, and then
// asks one question after the other. Those that are left write, send, trim and ask at once.
func sequential(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: one question after the other has nothing for the race detector")
	}
}

// engineOptions reaches a real engine of the test's own, without a store.
func engineOptions(t testing.TB) Options {
	t.Helper()
	return optionsOf(t, chdbtest.Start(t))
}

func optionsOf(t testing.TB, engine *chdb.Engine) Options {
	return Options{
		Writer:   engine.ClickHouseOptions(chdb.RoleWriter),
		Migrator: engine.ClickHouseOptions(chdb.RoleMigrator),
		Reader:   engine.ClickHouseOptions(chdb.RoleReader),
		Logger:   slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// migrated is the folder of an engine with an empty store, which is made once: a copy takes
// less than migrating again.
var migrated struct {
	once sync.Once
	dir  string
}

func makeMigrated(t testing.TB) {
	t.Helper()
	dir, err := os.MkdirTemp("", "csigscope-store-")
	if err != nil {
		t.Fatal(err)
	}
	migrated.dir = dir
	engine, err := chdb.Start(t.Context(), chdbtest.Options(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), optionsOf(t, engine))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Migrate(t.Context()), s.Close(), engine.Close()); err != nil {
		t.Fatal(err)
	}
}

// openStore is a migrated store over an engine of the test's own.
func openStore(t testing.TB) *Store {
	t.Helper()
	migrated.once.Do(func() { makeMigrated(t) })
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "data"), os.DirFS(filepath.Join(migrated.dir, "data"))); err != nil {
		t.Fatal(err)
	}
	s := open(t, optionsOf(t, chdbtest.StartIn(t, dir)))
	if err := s.Migrate(t.Context()); err != nil { // nothing is to do, and rows are sent from now on
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
