package store

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/ingest/retry"
)

// insertBatch writes the batch as one block, to the table of one server. A batch whose
// acknowledgement was lost may be sent again: its rows are identities. With a token the server
// recognizes a repeated batch for a while, and skips it.
func (s *Store) insertBatch(ctx context.Context, conn driver.Conn, b *batch, token string) error {
	names, types := insertColumns(b.table)
	// FINAL and merges find rows that replace each other: a server need not look for them in
	// every insert, which takes a third of its time.
	settings := clickhouse.Settings{"async_insert": 0, "optimize_on_insert": 0}
	if token != "" {
		settings["insert_deduplication_token"] = token
	}
	ctx = clickhouse.Context(s.inserting(ctx, settings), clickhouse.WithColumnNamesAndTypes(types))
	query := fmt.Sprintf("INSERT INTO %s.%s (%s)", s.database, s.layout.local(resolutionTableAt(b.table).table()), strings.Join(names, ", "))
	to, err := conn.PrepareBatch(ctx, query)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := fill(to, b); err != nil {
		return err
	}
	return to.Send()
}

// insertColumns are the columns of an insert with their types. Over HTTP the client would
// otherwise ask the server for the types before every batch.
func insertColumns(g int) (names []string, types []clickhouse.ColumnNameAndType) {
	add := func(kind string, columns ...string) {
		for _, c := range columns {
			names = append(names, c)
			types = append(types, clickhouse.ColumnNameAndType{Name: c, Type: kind})
		}
	}
	add("DateTime64(9, 'UTC')", "window_start")
	if g == fineTable {
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
	if b.table == fineTable {
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

const (
	attemptTimeout = time.Minute
	firstPause     = 100 * time.Millisecond
	longestPause   = 5 * time.Second
)

// newBackoff returns the pauses between attempts. They have no jitter: few processes store in one
// database, and each sends one request at a time.
func newBackoff() retry.Backoff { return retry.Backoff{First: firstPause, Longest: longestPause} }

// attempts repeats a write that may succeed later: rows are identities, so a write can be
// repeated.
type attempts struct {
	limit   time.Duration // from the first attempt to the last
	logger  *slog.Logger
	retried func() // called before each attempt after the first; nil to ignore
}

// do calls f until it succeeds, fails permanently, or time is up. It then returns f's last error,
// or the context's.
func (r attempts) do(ctx context.Context, f func(context.Context) error) error {
	started, backoff := time.Now(), newBackoff()
	for {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := f(attempt)
		cancel()
		pause := backoff.Pause()
		if err == nil || ctx.Err() != nil || !transient(err) || time.Since(started)+pause > r.limit {
			return err
		}
		r.logger.Warn("write failed, trying again", slog.Duration("pause", pause), slog.String("error", oneLine(err)))
		if !retry.Sleep(ctx, pause) {
			return err
		}
		if r.retried != nil {
			r.retried()
		}
	}
}
