package chdb_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// TestClickHouseGo uses the driver like Grafana's plug-in and other Go programs: over HTTP, with
// each of its compressions, under any name and password.
func TestClickHouseGo(t *testing.T) {
	skipShort(t)
	engine := chdbtest.Start(t)
	exec(t, open(t, engine, chdb.RoleMigrator),
		"CREATE TABLE seen (n UInt64, s LowCardinality(String)) ENGINE = MergeTree ORDER BY n",
		"INSERT INTO seen SELECT number, toString(number % 7) FROM numbers(200000)")
	address := strings.TrimPrefix(listen(t, engine), "http://")
	for _, method := range []clickhouse.CompressionMethod{
		clickhouse.CompressionNone, clickhouse.CompressionLZ4, clickhouse.CompressionZSTD,
		clickhouse.CompressionGZIP, clickhouse.CompressionDeflate, clickhouse.CompressionBrotli,
	} {
		t.Run(method.String(), func(t *testing.T) {
			conn, err := clickhouse.Open(&clickhouse.Options{
				Protocol: clickhouse.HTTP, Addr: []string{address},
				Auth:        clickhouse.Auth{Database: "default", Username: "grafana", Password: "any"},
				Compression: &clickhouse.Compression{Method: method},
				Settings:    clickhouse.Settings{"max_memory_usage": 0, "readonly": 0, "limit": 3},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			rows, err := conn.Query(t.Context(), "SELECT n, s FROM seen ORDER BY n")
			if err != nil {
				t.Fatal(err)
			}
			var sum, count, n uint64
			var s string
			for ; rows.Next(); count++ {
				if err := rows.Scan(&n, &s); err != nil {
					t.Fatal(err)
				}
				sum += n
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			if sum != 199999*100000 || count != 200000 {
				t.Errorf("read %d rows of sum %d, want 200000 of %d", count, sum, 199999*100000)
			}
			ctx := clickhouse.Context(t.Context(), clickhouse.WithParameters(clickhouse.Parameters{"p": "3"}))
			var got uint64
			if err := conn.QueryRow(ctx, "SELECT count() FROM seen WHERE n < {p:UInt64}").Scan(&got); err != nil || got != 3 {
				t.Errorf("with a parameter: got %d (%v), want 3", got, err)
			}
			none, err := conn.Query(t.Context(), "SELECT n FROM seen WHERE n > 1000000")
			if err != nil || none.Next() {
				t.Errorf("no rows: got some, or %v", err)
			}
			wantCode(t, conn.Exec(t.Context(), "SELECT * FROM missing"), 60)
			wantCode(t, conn.Exec(t.Context(), "SELECT FROM WHERE"), 62)
			wantCode(t, conn.Exec(t.Context(), "DROP TABLE seen"), 164)
			late, err := conn.Query(t.Context(), "SELECT throwIf(number = 600000), number FROM numbers(1000000)")
			if err == nil {
				for late.Next() {
				}
				err = late.Err()
			}
			wantCode(t, err, 395)
		})
	}
}

func TestDatabaseSQL(t *testing.T) {
	base := listen(t, chdbtest.Start(t))
	// A typical connection string: with default compression.
	db, err := sql.Open("clickhouse", base+"/default?username=anyone&compress=true&dial_timeout=5s")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var version, zone string
	if err := db.QueryRowContext(context.Background(), "SELECT version(), timezone()").Scan(&version, &zone); err != nil {
		t.Fatal(err)
	}
	if version == "" || zone == "" {
		t.Errorf("got version %q, zone %q", version, zone)
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE t (n Int8) ENGINE = Memory"); err == nil {
		t.Error("a read-only client made a table")
	}
}
