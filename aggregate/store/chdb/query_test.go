package chdb_test

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

func TestTypesRoundTrip(t *testing.T) {
	engine := chdbtest.Start(t)
	writer, reader := open(t, engine, chdb.RoleWriter), open(t, engine, chdb.RoleReader)
	at := time.Date(2026, 1, 22, 9, 30, 0, 123456789, time.UTC)
	text := "tab\t quote' back\\slash \x00 zero"
	for _, tt := range []struct {
		columnType string
		values     []any
	}{
		{"UInt8", []any{uint8(0), uint8(255)}},
		{"UInt16", []any{uint16(0), uint16(math.MaxUint16)}},
		{"UInt32", []any{uint32(7), uint32(math.MaxUint32)}},
		{"UInt64", []any{uint64(7), uint64(math.MaxUint64)}},
		{"Int64", []any{int64(math.MinInt64), int64(math.MaxInt64)}},
		{"Float64", []any{-1.5, math.Inf(1)}},
		{"Bool", []any{true, false}},
		{"String", []any{"", text}},
		{"FixedString(3)", []any{"abc", "xyz"}},
		{"LowCardinality(String)", []any{"tap1", "tap2"}},
		{"LowCardinality(Nullable(String))", []any{new("tap1"), (*string)(nil)}},
		{"DateTime64(9)", []any{at, at.Add(1)}},
		{"DateTime64(9, 'UTC')", []any{at, at.Add(1)}},
		{"DateTime('UTC')", []any{at.Truncate(time.Second), at.Truncate(time.Hour)}},
		{"Array(UInt32)", []any{[]uint32{}, []uint32{1, 2, 3}}},
		{"Array(LowCardinality(String))", []any{[]string{"a", "b"}, []string{}}},
		{"Map(UInt16, UInt64)", []any{map[uint16]uint64{1: 2, 65535: math.MaxUint64}, map[uint16]uint64{}}},
		{"Nullable(UInt64)", []any{(*uint64)(nil), new(uint64(3))}},
		{"Enum8('a' = 1, 'b' = -2)", []any{"a", "b"}},
		{"UUID", []any{"a5d2ff9c-6f53-4b4e-9f3e-1f6f4a2b0c1d", "00000000-0000-0000-0000-000000000000"}},
	} {
		t.Run(tt.columnType, func(t *testing.T) {
			exec(t, writer, "DROP TABLE IF EXISTS types", "CREATE TABLE types (n UInt8, v "+tt.columnType+") ENGINE = MergeTree ORDER BY n SETTINGS allow_suspicious_indices = 1")
			batch, err := writer.PrepareBatch(context.Background(), "INSERT INTO types (n, v)")
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range tt.values {
				if err := batch.Append(uint8(i), v); err != nil {
					t.Fatal(err)
				}
			}
			if err := batch.Send(); err != nil {
				t.Fatal(err)
			}
			for i, want := range tt.values {
				got := reflect.New(reflect.TypeOf(want))
				err := reader.QueryRow(context.Background(), "SELECT v FROM types WHERE n = ?", i).Scan(got.Interface())
				if err != nil {
					t.Fatal(err)
				}
				if w, ok := want.(time.Time); ok {
					if g := got.Elem().Interface().(time.Time); !g.Equal(w) {
						t.Errorf("got %v, want %v", g, w)
					}
				} else if g := got.Elem().Interface(); !reflect.DeepEqual(g, want) {
					t.Errorf("got %#v, want %#v", g, want)
				}
			}
		})
	}
}

func TestColumnarInsert(t *testing.T) {
	engine := chdbtest.Start(t)
	writer, reader := open(t, engine, chdb.RoleWriter), open(t, engine, chdb.RoleReader)
	exec(t, writer, "CREATE TABLE rows (n UInt64, s LowCardinality(String)) ENGINE = MergeTree ORDER BY n")
	const rows = 100_000
	n, s := make([]uint64, rows), make([]string, rows)
	for i := range n {
		n[i], s[i] = uint64(i), fmt.Sprint("tap", i%7)
	}
	batch, err := writer.PrepareBatch(context.Background(), "INSERT INTO rows (n, s)")
	if err != nil {
		t.Fatal(err)
	}
	for i, column := range []any{n, s} {
		if err := batch.Column(i).Append(column); err != nil {
			t.Fatal(err)
		}
	}
	if err := batch.Send(); err != nil {
		t.Fatal(err)
	}
	if got := value[uint64](t, reader, "SELECT count() FROM rows"); got != rows {
		t.Errorf("got %d rows, want %d", got, rows)
	}
	if got := value[uint64](t, reader, "SELECT count() FROM system.parts WHERE table = 'rows' AND active"); got != 1 {
		t.Errorf("one batch became %d parts, want 1", got)
	}
	// Enough rows for many blocks, read as one stream.
	result, err := reader.Query(context.Background(), "SELECT n, s FROM rows ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	defer result.Close()
	for i := 0; result.Next(); i++ {
		var gotN uint64
		var gotS string
		if err := result.Scan(&gotN, &gotS); err != nil {
			t.Fatal(err)
		}
		if gotN != n[i] || gotS != s[i] {
			t.Fatalf("row %d: got (%d, %s), want (%d, %s)", i, gotN, gotS, n[i], s[i])
		}
	}
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
}

func TestDefaultFromEphemeralColumns(t *testing.T) {
	engine := chdbtest.Start(t)
	writer, reader := open(t, engine, chdb.RoleWriter), open(t, engine, chdb.RoleReader)
	exec(t, writer, `CREATE TABLE dists (
		n UInt64,
		codes String EPHEMERAL,
		counts String EPHEMERAL,
		dist Map(UInt16, UInt64) DEFAULT CAST((
			arrayMap(i -> reinterpretAsUInt16(substring(codes, 2 * i + 1, 2)), range(toUInt64(length(codes) / 2))),
			arrayMap(i -> reinterpretAsUInt64(substring(counts, 8 * i + 1, 8)), range(toUInt64(length(counts) / 8)))
		), 'Map(UInt16, UInt64)')
	) ENGINE = MergeTree ORDER BY n`)
	batch, err := writer.PrepareBatch(context.Background(), "INSERT INTO dists (n, codes, counts)")
	if err != nil {
		t.Fatal(err)
	}
	if err := batch.Append(uint64(1), "\x17\x00\x01\x02", "\x05\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	if err := batch.Send(); err != nil {
		t.Fatal(err)
	}
	got := value[map[uint16]uint64](t, reader, "SELECT dist FROM dists")
	if want := (map[uint16]uint64{0x17: 5, 0x201: 256}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestParameterizedViews(t *testing.T) {
	engine := chdbtest.Start(t)
	migrator, reader := open(t, engine, chdb.RoleMigrator), open(t, engine, chdb.RoleReader)
	exec(t, migrator,
		"CREATE TABLE cells (n UInt32, s String) ENGINE = ReplacingMergeTree ORDER BY n",
		"INSERT INTO cells SELECT number, concat('a\\tb', toString(number)) FROM numbers(10)",
		`CREATE VIEW some_cells AS SELECT n, s FROM cells FINAL WHERE n >= {low:UInt32} AND s != {other:String}
		 SETTINGS do_not_merge_across_partitions_select_final = 1`)
	ctx := clickhouse.Context(context.Background(), clickhouse.WithParameters(clickhouse.Parameters{"p": "8", "q": "a\\tb9"}))
	var n, rows uint64
	err := reader.QueryRow(ctx, "SELECT sum(n), count() FROM some_cells(low = {p:UInt32}, other = {q:String})").Scan(&n, &rows)
	if err != nil {
		t.Fatal(err)
	}
	if n != 8 || rows != 1 {
		t.Errorf("got sum %d of %d rows, want 8 of 1", n, rows)
	}
	got := value[uint64](t, reader, "SELECT count() FROM some_cells(low = {p:UInt32}, other = {q:String})",
		clickhouse.Named("p", 3), clickhouse.Named("q", "it's\n"))
	if got != 7 {
		t.Errorf("got %d rows, want 7", got)
	}
}

func TestErrorsCarryTheirCode(t *testing.T) {
	engine := chdbtest.Start(t)
	ctx := context.Background()
	for _, role := range []chdb.Role{chdb.RoleReader, chdb.RoleWriter, chdb.RoleMigrator} {
		conn := open(t, engine, role)
		wantCode(t, conn.Exec(ctx, "SELECT * FROM missing"), 60)
		wantCode(t, conn.Exec(ctx, "SELECT FROM WHERE"), 62)
		wantCode(t, conn.QueryRow(ctx, "SELECT throwIf(number = 3) FROM numbers(10)").Err(), 395)
		if got := value[uint8](t, conn, "SELECT 1"); got != 1 {
			t.Errorf("%v: got %d after errors, want 1", role, got)
		}
	}
	writer := open(t, engine, chdb.RoleWriter)
	exec(t, writer, "CREATE TABLE strict (n UInt64, CONSTRAINT small CHECK n < 10) ENGINE = MergeTree ORDER BY n")
	batch, err := writer.PrepareBatch(ctx, "INSERT INTO strict (n)")
	if err != nil {
		t.Fatal(err)
	}
	if err := batch.Append(uint64(11)); err != nil {
		t.Fatal(err)
	}
	wantCode(t, batch.Send(), 469)
	if got := value[uint64](t, writer, "SELECT count() FROM strict"); got != 0 {
		t.Errorf("a refused insert left %d rows", got)
	}
}

func TestFailureAfterTheFirstBlocks(t *testing.T) {
	engine := chdbtest.Start(t)
	reader := open(t, engine, chdb.RoleReader)
	rows, err := reader.Query(context.Background(), "SELECT throwIf(number = 5000000), number FROM numbers(10000000)")
	n := 0
	if err == nil {
		for rows.Next() {
			n++
		}
		err = rows.Err()
		rows.Close()
	}
	wantCode(t, err, 395)
	if n == 0 {
		t.Error("no row came before the failure: the result was not streamed")
	}
	if got := value[string](t, reader, "SELECT 'clean'"); got != "clean" {
		t.Errorf("got %q after a failed stream, want clean", got)
	}
}
