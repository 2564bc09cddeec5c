package chdb_test

import (
	"context"
	"testing"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

func BenchmarkSelectOne(b *testing.B) {
	engine := chdbtest.Start(b)
	for _, role := range []chdb.Role{chdb.RoleReader, chdb.RoleWriter} {
		conn := open(b, engine, role)
		b.Run(role.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := conn.QueryRow(context.Background(), "SELECT 1").Scan(new(uint8)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkInsert stores batches of 100,000 rows, whole columns at a time.
func BenchmarkInsert(b *testing.B) {
	const rows = 100_000
	engine := chdbtest.Start(b)
	writer := open(b, engine, chdb.RoleWriter)
	exec(b, writer, "CREATE TABLE bench (t DateTime64(9) CODEC(Delta, LZ4), src UInt32, dst UInt32, n UInt64 CODEC(T64, LZ4), s LowCardinality(String)) ENGINE = MergeTree ORDER BY (src, dst)")
	t, src, dst := make([]int64, rows), make([]uint32, rows), make([]uint32, rows)
	n, s := make([]uint64, rows), make([]string, rows)
	for i := range rows {
		t[i], src[i], dst[i], n[i], s[i] = 1769000000e9+int64(i)*1000, uint32(i%64), uint32(i/64%64), uint64(i), "tap1"
	}
	b.ReportAllocs()
	stored := 0
	for b.Loop() {
		batch, err := writer.PrepareBatch(context.Background(), "INSERT INTO bench (t, src, dst, n, s)")
		if err != nil {
			b.Fatal(err)
		}
		for i, values := range []any{t, src, dst, n, s} {
			if err := batch.Column(i).Append(values); err != nil {
				b.Fatal(err)
			}
		}
		if err := batch.Send(); err != nil {
			b.Fatal(err)
		}
		stored += rows
	}
	b.ReportMetric(float64(stored)/b.Elapsed().Seconds(), "rows/s")
	if got := value[uint64](b, writer, "SELECT count() FROM bench"); got != uint64(stored) {
		b.Errorf("stored %d rows, want %d", got, stored)
	}
}

// BenchmarkRead reads a million rows as one stream of blocks.
func BenchmarkRead(b *testing.B) {
	const rows = 1_000_000
	reader := open(b, chdbtest.Start(b), chdb.RoleReader)
	b.ReportAllocs()
	for b.Loop() {
		result, err := reader.Query(context.Background(), "SELECT number, number * 2, toUInt32(number) FROM numbers(1000000)")
		if err != nil {
			b.Fatal(err)
		}
		read := 0
		for result.Next() {
			read++
		}
		result.Close()
		if result.Err() != nil || read != rows {
			b.Fatalf("read %d rows: %v", read, result.Err())
		}
	}
	b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
