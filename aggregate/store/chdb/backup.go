package chdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// ErrNotEmpty is the error of Restore for a database that has tables already.
var ErrNotEmpty = errors.New("the database is not empty")

// backupFile is the list of contents, which every backup has.
const backupFile = ".backup"

// Backup copies a database into the folder dir, which must not exist yet, while inserts continue.
// Each table is copied as of one moment, by ClickHouse's BACKUP. The engine writes below its own
// folder, so dir may be anywhere. A failed backup leaves nothing behind.
func (e *Engine) Backup(ctx context.Context, database, dir string) (err error) {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("back up %s to %s: the folder exists already: name a new one", database, dir)
	}
	name, inside := e.backupFolder()
	defer removeTree(inside, &err)
	sql := "BACKUP DATABASE " + quoteIdentifier(database) + " TO File(" + quoteString(name) + ")"
	if err := e.administer(func(c driver.Conn) error { return c.Exec(ctx, sql) }); err != nil {
		return fmt.Errorf("back up %s: %w", database, err)
	}
	if err := moveTree(inside, dir); err != nil {
		return fmt.Errorf("back up %s to %s: %w", database, dir, errors.Join(err, os.RemoveAll(dir)))
	}
	return nil
}

// Restore creates a database from a folder written by Backup, and verifies the checksums of every
// part of its tables. It fails with ErrNotEmpty, and changes nothing, if the database has tables
// already. A failed restore leaves no database.
func (e *Engine) Restore(ctx context.Context, database, dir string) (err error) {
	if info, err := os.Stat(filepath.Join(dir, backupFile)); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("restore %s from %s: this is no backup, its file %s is missing", database, dir, backupFile)
	}
	name, inside := e.backupFolder()
	defer removeTree(inside, &err)
	err = e.administer(func(c driver.Conn) error {
		var tables uint64
		if err := c.QueryRow(ctx, "SELECT count() FROM system.tables WHERE database = ?", database).Scan(&tables); err != nil {
			return err
		}
		if tables > 0 {
			return fmt.Errorf("%w: it has %d tables", ErrNotEmpty, tables)
		}
		if err := os.CopyFS(inside, os.DirFS(dir)); err != nil {
			return fmt.Errorf("copy backup: %w", err)
		}
		err := c.Exec(ctx, "RESTORE DATABASE "+quoteIdentifier(database)+" FROM File("+quoteString(name)+")")
		if err == nil {
			err = checkTables(ctx, c, database)
		}
		if err == nil {
			return nil
		}
		dropped := c.Exec(context.WithoutCancel(ctx), "DROP DATABASE IF EXISTS "+quoteIdentifier(database)+" SYNC")
		return errors.Join(err, dropped)
	})
	if err != nil {
		return fmt.Errorf("restore %s from %s: %w", database, dir, err)
	}
	return nil
}

// checkTables reads every part of a database's tables.
func checkTables(ctx context.Context, c driver.Conn, database string) error {
	var tables []string
	const list = "SELECT groupArray(name) FROM system.tables WHERE database = ? AND engine LIKE '%MergeTree'"
	if err := c.QueryRow(ctx, list, database).Scan(&tables); err != nil {
		return err
	}
	for _, table := range tables {
		var sound uint8
		sql := "CHECK TABLE " + quoteIdentifier(database) + "." + quoteIdentifier(table) + " SETTINGS check_query_single_value_result = 1"
		if err := c.QueryRow(ctx, sql).Scan(&sound); err != nil {
			return fmt.Errorf("check table %s: %w", table, err)
		}
		if sound != 1 {
			return fmt.Errorf("check table %s: a part does not match its checksums", table)
		}
	}
	return nil
}

// backupFolder returns a new folder for one backup, where the engine may write.
func (e *Engine) backupFolder() (name, path string) {
	name = strconv.FormatUint(rand.Uint64(), 36)
	return name, filepath.Join(e.folder.backups(), name)
}

// administer runs statements on the migrator's connection.
func (e *Engine) administer(run func(driver.Conn) error) error {
	conn, err := clickhouse.Open(e.ClickHouseOptions(RoleMigrator))
	if err != nil {
		return err
	}
	defer conn.Close()
	return run(conn)
}

// removeTree removes a folder and reports a failure.
func removeTree(path string, err *error) {
	if failed := os.RemoveAll(path); failed != nil {
		*err = errors.Join(*err, fmt.Errorf("clean up: %w", failed))
	}
}

// moveTree renames a folder, or copies it to another file system.
func moveTree(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	err := os.Rename(from, to)
	if errors.Is(err, syscall.EXDEV) {
		err = os.CopyFS(to, os.DirFS(from))
	}
	return err
}
