package chdb_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// fill makes a database with a typical table of a store, and a view.
func fill(t *testing.T, conn driver.Conn) {
	t.Helper()
	exec(t, conn, "CREATE DATABASE `odd ``name`",
		"CREATE TABLE `odd ``name`.rows (n UInt64, s LowCardinality(String)) ENGINE = ReplacingMergeTree ORDER BY n PARTITION BY n % 3",
		"CREATE TABLE `odd ``name`.empty (n UInt64) ENGINE = MergeTree ORDER BY n",
		"CREATE VIEW `odd ``name`.above AS SELECT n FROM `odd ``name`.rows FINAL WHERE n >= {low:UInt64}",
		"INSERT INTO `odd ``name`.rows SELECT number, toString(number % 10) FROM numbers(100000)",
		"INSERT INTO `odd ``name`.rows SELECT number, 'again' FROM numbers(10)")
}

const oddName = "odd `name"

func TestBackupAndRestore(t *testing.T) {
	engine := chdbtest.Start(t)
	migrator := open(t, engine, chdb.RoleMigrator)
	fill(t, migrator)
	// The original and the copy must give the same answer.
	const question = "SELECT sum(cityHash64(n, s)) FROM `odd ``name`.rows FINAL"
	want := value[uint64](t, migrator, question)
	backup := filepath.Join(t.TempDir(), "new", "backup")
	if err := engine.Backup(t.Context(), oddName, backup); err != nil {
		t.Fatal(err)
	}
	path, _ := largestFile(t, backup)
	if info, err := os.Stat(path); err != nil || info.Sys().(*syscall.Stat_t).Nlink != 1 {
		t.Errorf("%s is shared with the tables (%v): what happens to it would happen to them", path, err)
	}
	if err := engine.Backup(t.Context(), oddName, backup); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("a second backup into the folder: got %v", err)
	}
	if err := engine.Restore(t.Context(), oddName, backup); !errors.Is(err, chdb.ErrNotEmpty) {
		t.Errorf("restore over tables: got %v, want %v", err, chdb.ErrNotEmpty)
	}
	exec(t, migrator, "INSERT INTO `odd ``name`.rows VALUES (1000000, 'later')")
	// Into another engine, twice: restoring does not consume the backup.
	for range 2 {
		options := chdbtest.Options(t, t.TempDir())
		other := start(t, options)
		if err := other.Restore(t.Context(), oddName, backup); err != nil {
			t.Fatal(err)
		}
		reader := open(t, other, chdb.RoleReader)
		if got := value[uint64](t, reader, question); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
		if got := value[uint64](t, reader, "SELECT count() FROM `odd ``name`.above(low = 99999)"); got != 1 {
			t.Errorf("the view gives %d rows, want 1", got)
		}
		exec(t, open(t, other, chdb.RoleWriter), "INSERT INTO `odd ``name`.empty VALUES (1)")
		if left, _ := os.ReadDir(filepath.Join(options.Dir, "backups")); len(left) > 0 {
			t.Errorf("the copy %s was left behind", left[0].Name())
		}
	}
}

func TestRestoreRefusesWhatIsDamaged(t *testing.T) {
	engine := chdbtest.Start(t)
	fill(t, open(t, engine, chdb.RoleMigrator))
	other := chdbtest.Start(t)
	for name, damage := range map[string]func(path string, size int64) error{
		"flipped byte": flipByte,
		"cut file":     func(path string, size int64) error { return os.Truncate(path, size/2) },
		"lost file":    func(path string, _ int64) error { return os.Remove(path) },
	} {
		backup := filepath.Join(t.TempDir(), "backup")
		if err := engine.Backup(t.Context(), oddName, backup); err != nil {
			t.Fatal(err)
		}
		path, size := largestFile(t, backup)
		if err := damage(path, size); err != nil {
			t.Fatal(err)
		}
		if err := other.Restore(t.Context(), oddName, backup); err == nil {
			t.Errorf("%s of %s: it was restored", name, filepath.Base(path))
		}
		if n := value[uint64](t, open(t, other, chdb.RoleReader), "SELECT count() FROM system.databases WHERE name = ?", oddName); n != 0 {
			t.Errorf("%s: the database was left behind", name)
		}
	}
	if err := other.Restore(t.Context(), oddName, t.TempDir()); err == nil || !strings.Contains(err.Error(), "no backup") {
		t.Errorf("an empty folder: got %v", err)
	}
	if err := engine.Backup(t.Context(), "missing", filepath.Join(t.TempDir(), "b")); err == nil {
		t.Error("a database that does not exist was backed up")
	}
}

func TestUnfinishedBackupsAreRemoved(t *testing.T) {
	options := chdbtest.Options(t, t.TempDir())
	left := filepath.Join(options.Dir, "backups", "left")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	start(t, options)
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: got %v, want it removed", left, err)
	}
}

func flipByte(path string, size int64) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	var b [1]byte
	if _, err := file.ReadAt(b[:], size/2); err != nil {
		return err
	}
	b[0] ^= 0x40
	_, err = file.WriteAt(b[:], size/2)
	return err
}

func largestFile(t *testing.T, dir string) (path string, size int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Size() > size {
			path, size = p, info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return path, size
}
