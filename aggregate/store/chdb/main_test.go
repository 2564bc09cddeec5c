package chdb_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

func TestMain(m *testing.M) { chdbtest.Main(m) }

// open connects a client for role until the test ends.
func open(t testing.TB, engine *chdb.Engine, role chdb.Role) driver.Conn {
	t.Helper()
	conn, err := clickhouse.Open(engine.ClickHouseOptions(role))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func exec(t testing.TB, conn driver.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if err := conn.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// value reads a result of one row and one column.
func value[T any](t testing.TB, conn driver.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// wantCode fails unless err carries one of ClickHouse's error codes.
func wantCode(t testing.TB, err error, codes ...int32) {
	t.Helper()
	exception, ok := errors.AsType[*clickhouse.Exception](err)
	if !ok {
		t.Fatalf("got error %v, want an exception with code %v", err, codes)
	}
	for _, code := range codes {
		if exception.Code == code {
			return
		}
	}
	t.Fatalf("got code %d (%v), want %v", exception.Code, err, codes)
}
