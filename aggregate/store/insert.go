package store

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// inserter sends batches. One batch is in flight at a time.
type inserter struct {
	conn     driver.Conn
	database string
	sending  sync.Mutex
}

// send writes the batch as one block. A batch that was written and whose answer was
// lost may be sent again: its rows are identities. With a token the server knows it
// again, for a while, and spares itself the work.
func (i *inserter) send(ctx context.Context, b *batch, token string) error {
	i.sending.Lock()
	defer i.sending.Unlock()
	names, types := insertColumns(b.grain)
	// FINAL and merges find rows that replace each other: a server need not look for them
	// in every insert, which takes a third of its time.
	settings := clickhouse.Settings{"async_insert": 0, "optimize_on_insert": 0}
	if token != "" {
		settings["insert_deduplication_token"] = token
	}
	ctx = clickhouse.Context(
		ctx,
		clickhouse.WithColumnNamesAndTypes(types),
		clickhouse.WithSettings(settings),
	)
	query := fmt.Sprintf("INSERT INTO %s.%s (%s)", i.database, grainAt(b.grain).table(), strings.Join(names, ", "))
	to, err := i.conn.PrepareBatch(ctx, query)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := fill(to, b); err != nil {
		return err
	}
	return to.Send()
}

// insertColumns are the columns of an insert. Over HTTP the client would ask the
// server for their types before every batch.
func insertColumns(g int) (names []string, types []clickhouse.ColumnNameAndType) {
	add := func(kind string, columns ...string) {
		for _, c := range columns {
			names = append(names, c)
			types = append(types, clickhouse.ColumnNameAndType{Name: c, Type: kind})
		}
	}
	add("DateTime64(9, 'UTC')", "window_start")
	if g == fineGrain {
		add("UInt64", "resolution_ns")
	}
	add("UInt8", columns8[:]...)
	add("UInt64", columns64[:]...)
	add("String", "dist_codes", "dist_counts")
	return names, types
}

// fill appends whole columns: row by row costs an allocation for every value.
func fill(to driver.Batch, b *batch) error {
	at := 0
	put := func(column any) error {
		err := to.Column(at).Append(column)
		at++
		return err
	}
	if err := put(b.windowStart); err != nil {
		return err
	}
	if b.grain == fineGrain {
		if err := put(b.resolution); err != nil {
			return err
		}
	}
	for _, column := range b.bytes8 {
		if err := put(column); err != nil {
			return err
		}
	}
	for _, column := range b.words {
		if err := put(column); err != nil {
			return err
		}
	}
	if err := put(b.strings(b.codes, b.codesEnd)); err != nil {
		return err
	}
	return put(b.strings(b.counts, b.countsEnd))
}
