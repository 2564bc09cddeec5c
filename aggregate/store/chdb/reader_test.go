package chdb_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

func TestReadersChangeNothingAndReachNothing(t *testing.T) {
	engine := chdbtest.Start(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	written := filepath.Join(t.TempDir(), "written")
	exec(t, open(t, engine, chdb.RoleMigrator), "CREATE TABLE safe (n UInt64, s String) ENGINE = MergeTree ORDER BY n")
	reader := open(t, engine, chdb.RoleReader)
	for _, sql := range []string{
		"INSERT INTO safe VALUES (1, '')",
		"INSERT INTO safe SELECT 1, ''",
		"CREATE TABLE more (n UInt8) ENGINE = Memory",
		"CREATE TEMPORARY TABLE more (n UInt8)",
		"DROP TABLE safe",
		"ALTER TABLE safe DELETE WHERE 1",
		"TRUNCATE TABLE safe",
		"OPTIMIZE TABLE safe",
		"SET readonly = 0",
		"SET max_threads = 1",
		"SELECT 1 SETTINGS readonly = 0",
		"USE system",
		"KILL QUERY WHERE 1",
		"SYSTEM FLUSH LOGS",
		"SELECT 1; SELECT 2",
		"SELECT 1 INTO OUTFILE '" + written + "'",
		"SELECT 1; SELECT 1 INTO OUTFILE '" + written + "'; not a statement",
		"SELECT * FROM file('" + secret + "', 'LineAsString')",
		"SELECT file('" + secret + "')",
		"SELECT `fi\\x6ce`('" + secret + "')",
		"SELECT \"file\"('" + secret + "')",
		"SELECT arrayMap(file, ['" + secret + "'])",
		"SELECT arrayMap(x -> file(x), ['" + secret + "'])",
		"SELECT * APPLY(file) FROM (SELECT '" + secret + "')",
		"WITH file AS f SELECT arrayMap(f, ['" + secret + "'])",
		"SELECT $$'$$, file('" + secret + "')",
		"/* ' */ SELECT file('" + secret + "') -- '",
		"EXPLAIN SELECT file('" + secret + "')",
		"DESCRIBE file('" + secret + "')",
		"DESCRIBE TABLE url('http://127.0.0.1:1/', 'CSV')",
		"SELECT * FROM url('http://127.0.0.1:1/', 'CSV', 'a String')",
		"SELECT * FROM executable('cat', 'TSV', 'a String')",
		"SELECT * FROM remote('127.0.0.1:1', system.one)",
		"SELECT * FROM eval('SELECT 1')",
		"SELECT catboostEvaluate('" + secret + "', 1)",
	} {
		err := reader.Exec(context.Background(), sql)
		if err == nil {
			t.Errorf("%s: a reader could", sql)
			continue
		}
		wantCode(t, err, 164, 62)
	}
	if _, err := os.Stat(written); err == nil {
		t.Error("a reader wrote a file")
	}
	if got := value[string](t, reader, "SELECT currentDatabase()"); got != "default" {
		t.Errorf("the reader is in database %s, want default", got)
	}
	// Statements that only look dangerous must pass.
	for _, sql := range []string{
		"SELECT 'file(x)', 'INTO OUTFILE', count() FROM safe -- file('x')",
		"DESCRIBE TABLE safe", "SHOW TABLES", "EXPLAIN SELECT 1", "EXISTS TABLE safe", "SHOW CREATE TABLE safe",
		"WITH 1 AS file_size SELECT file_size", "(SELECT 1) UNION ALL (SELECT 2)", "SELECT 1 AS file;",
	} {
		if err := reader.Exec(context.Background(), sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

func TestSettingsOfClientsAreDropped(t *testing.T) {
	engine := chdbtest.Start(t)
	for _, role := range []chdb.Role{chdb.RoleReader, chdb.RoleMigrator} {
		options := engine.ClickHouseOptions(role)
		options.Settings = clickhouse.Settings{"readonly": 0, "max_block_size": 77}
		conn, err := clickhouse.Open(options)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got := value[uint64](t, conn, "SELECT toUInt64(getSetting('max_block_size'))"); got == 77 {
			t.Errorf("%v: a client's setting took effect", role)
		}
	}
}

func TestRolesDoNotWaitForOneAnother(t *testing.T) {
	engine := chdbtest.Start(t)
	writer, reader := open(t, engine, chdb.RoleWriter), open(t, engine, chdb.RoleReader)
	migrator := open(t, engine, chdb.RoleMigrator)
	exec(t, writer, "CREATE TABLE free (n UInt64) ENGINE = MergeTree ORDER BY n")
	ctx, cancel := context.WithCancel(context.Background())
	slow := make(chan error, 1)
	go func() { slow <- reader.Exec(ctx, "SELECT sum(sipHash64(number)) FROM numbers(200000000000)") }()
	waitForQuery(t, migrator, "numbers(200000000000)", true)
	for n := range uint64(5) {
		exec(t, writer, "INSERT INTO free VALUES (1)")
		if got := value[uint64](t, open(t, engine, chdb.RoleReader), "SELECT count() FROM free"); got != n+1 {
			t.Errorf("got %d rows, want %d", got, n+1)
		}
	}
	select {
	case err := <-slow:
		t.Fatalf("the slow query ended first: %v", err)
	default:
	}
	// When a client leaves, its query is killed.
	cancel()
	if err := <-slow; err == nil {
		t.Error("the cancelled query met no error")
	}
	waitForQuery(t, migrator, "numbers(200000000000)", false)
	for range 4 {
		if got := value[uint8](t, reader, "SELECT 1"); got != 1 {
			t.Errorf("got %d after a cancelled query, want 1", got)
		}
	}
}

func TestCancelledStreamLeavesNothingBehind(t *testing.T) {
	engine := chdbtest.Start(t)
	reader := open(t, engine, chdb.RoleReader)
	for range 5 {
		ctx, cancel := context.WithCancel(context.Background())
		rows, err := reader.Query(ctx, "SELECT number, toString(number) FROM numbers(50000000)")
		if err != nil {
			t.Fatal(err)
		}
		if !rows.Next() {
			t.Fatal("no row: ", rows.Err())
		}
		cancel()
		rows.Close()
		if got := value[string](t, reader, "SELECT 'clean'"); got != "clean" {
			t.Fatalf("got %q, want clean", got)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	options := chdbtest.Options(t, t.TempDir())
	options.MaxMemory = 512 << 20
	reader := open(t, start(t, options), chdb.RoleReader)
	wantCode(t, reader.Exec(context.Background(), "SELECT length(groupArray(number)) FROM numbers(1000000000)"), 241)
	wantCode(t, reader.Exec(context.Background(), "SELECT repeat('x', 1000) FROM numbers(1000000) FORMAT JSON"), 396, 241)
	if got := value[uint8](t, reader, "SELECT 1"); got != 1 {
		t.Errorf("got %d, want 1", got)
	}
}
