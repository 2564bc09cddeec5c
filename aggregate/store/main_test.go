package store

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

func TestMain(m *testing.M) {
	if chdbtest.InChild() {
		chdbtest.Main(m)
	}
	code := m.Run()
	for i := range migrated {
		if dir := migrated[i].dir; dir != "" {
			_ = os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// sequential skips a test in short runs, which look for data races: it writes, and then asks one
// question after the other. The remaining tests write, send, trim and ask concurrently.
func sequential(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: one question after the other has nothing for the race detector")
	}
}

// engineOptions starts an engine for the test, without a store, and returns options for it.
func engineOptions(t testing.TB) Options {
	t.Helper()
	return optionsOf(t, startEngine(t, t.TempDir()))
}

// startEngine starts an engine over dir until the test ends, for tests of TestOnCluster as the
// server of a cluster.
func startEngine(t testing.TB, dir string) *chdb.Engine {
	t.Helper()
	o := chdbtest.Options(t, dir)
	if onCluster(t) {
		o.ConfigFile = clusterConfig(t, thisServer, [][]int{{thisServer}})
	}
	return startWith(t, o)
}

func startWith(t testing.TB, o chdb.Options) *chdb.Engine {
	t.Helper()
	engine, err := chdb.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Errorf("close engine: %v", err)
		}
	})
	return engine
}

func optionsOf(t testing.TB, engine *chdb.Engine) Options {
	o := Options{
		Writer:   engine.ClickHouseOptions(chdb.RoleWriter),
		Migrator: engine.ClickHouseOptions(chdb.RoleMigrator),
		Reader:   engine.ClickHouseOptions(chdb.RoleReader),
		Logger:   slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if onCluster(t) {
		o.Cluster, o.unreplicated = testCluster, true
		o.At = func(string) (*clickhouse.Options, error) { return engine.ClickHouseOptions(chdb.RoleWriter), nil }
	}
	return o
}

// migrated are the folders of engines with an empty store, on one server and as a cluster. They
// are made once: copying them is faster than migrating again.
var migrated [2]struct {
	once sync.Once
	dir  string
}

func migratedFolder(t testing.TB) string {
	t.Helper()
	of := &migrated[0]
	if onCluster(t) {
		of = &migrated[1]
	}
	of.once.Do(func() { of.dir = makeMigrated(t) })
	return of.dir
}

func makeMigrated(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "csigscope-store-")
	if err != nil {
		t.Fatal(err)
	}
	engine := startEngine(t, dir)
	s, err := Open(t.Context(), optionsOf(t, engine))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Migrate(t.Context()), s.Close(), engine.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// openStore is a migrated store over an engine of the test's own.
func openStore(t testing.TB) *Store {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "data"), os.DirFS(filepath.Join(migratedFolder(t), "data"))); err != nil {
		t.Fatal(err)
	}
	s := open(t, optionsOf(t, startEngine(t, dir)))
	if err := s.Migrate(t.Context()); err != nil { // changes nothing, and starts sending
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

// truncate deletes all rows of a table, like a server that has lost them.
func truncate(t testing.TB, s *Store, table string) {
	t.Helper()
	if err := s.migrator.Exec(t.Context(), "TRUNCATE TABLE "+s.database+"."+s.layout.local(table)); err != nil {
		t.Fatal(err)
	}
}
