package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Reasons of gaps of rows that were deleted to make room on disk.
const (
	gapTrimmed         = "trimmed" // windows
	gapTrimmedFlows    = "trimmed_flows"
	gapTrimmedTaps     = "trimmed_taps"
	gapTrimmedFindings = "trimmed_findings"
)

// untouchedTaps are the reasons of gaps in records after which taps' own rows are still
// all there, as SQL has them.
const untouchedTaps = "('" + gapTrimmedFlows + "', '" + gapTrimmedFindings + "')"

// trimmable is how the rows of a table are put into gaps when they are deleted: columns
// and expressions over them. What is no partial has no length and no observations there,
// since no window of partials is missing of it.
type trimmable struct {
	table, reason          string
	epoch, length          string
	from, to, observations string
}

// trimmables are in the order in which they go where they are of the same time: windows
// last, so that no flows are left of windows that are gone.
func trimmables() []trimmable {
	window := func(g int) trimmable {
		at := grainAt(g)
		length := fmt.Sprint(at.Length.Nanoseconds())
		if at.Fine() {
			length = "resolution_ns"
		}
		return trimmable{at.table(), gapTrimmed, "config_epoch", length, "window_start", windowEnd(length), saturated("sum(toUInt128(observations))")}
	}
	return []trimmable{
		{"flows", gapTrimmedFlows, "config_epoch", "0", "window_start", windowEnd("resolution_ns"), "0"},
		{"findings", gapTrimmedFindings, "epoch", "0", "time_from", "time_to", "0"},
		{"taps", gapTrimmedTaps, "epoch", "0", "time_from", "time_to", "0"},
		window(fineGrain), window(secondGrain),
	}
}

func windowEnd(length string) string {
	return "fromUnixTimestamp64Nano(toUnixTimestamp64Nano(window_start) + toInt64(" + length + "), 'UTC')"
}

// diskPartition is all active parts of one partition.
type diskPartition struct {
	Dropped
	id    string
	of    trimmable
	order int    // of its table in trimmables
	turn  int    // fine windows, then those of 1 s, then what outlives both
	begin string // of its windows, as text that sorts
}

// The turns of partitions.
const (
	fineTurn = iota
	secondTurn
	recordTurn
)

// together tells whether two partitions are of the same turn and time.
func (p *diskPartition) together(o *diskPartition) bool {
	return p.turn == o.turn && p.begin == o.begin
}

// partitions are those that Trim may delete with what they hold, in the order in which it
// does.
func (s *Store) partitions(ctx context.Context) ([]diskPartition, error) {
	tables := trimmables()
	names := make([]string, 0, len(tables))
	for _, t := range tables {
		names = append(names, "'"+t.table+"'")
	}
	query := fmt.Sprintf(`SELECT table, partition, partition_id, sum(rows), sum(bytes_on_disk) FROM system.parts
WHERE database = '%s' AND table IN (%s) AND active GROUP BY table, partition, partition_id LIMIT %d`, s.database, strings.Join(names, ", "), maxVerifyRows)
	var list []diskPartition
	err := s.query(ctx, s.migrator, "list partitions", query, func(rows driver.Rows) error {
		var p diskPartition
		if err := rows.Scan(&p.Table, &p.Partition, &p.id, &p.Rows, &p.Bytes); err != nil {
			return err
		}
		p.order = slices.IndexFunc(tables, func(t trimmable) bool { return t.table == p.Table })
		p.of = tables[p.order]
		p.turn, p.begin = turnOf(p.Table, p.Partition)
		list = append(list, p)
		return nil
	})
	slices.SortFunc(list, func(a, b diskPartition) int {
		return cmp.Or(a.turn-b.turn, cmp.Compare(a.begin, b.begin), a.order-b.order)
	})
	return list, err
}

// turnOf reads the partition of a table as the server prints it. That of flows is the
// length of their windows and a day, or a month of those of 1 min.
func turnOf(table, partition string) (turn int, begin string) {
	switch table {
	case grainAt(fineGrain).table():
		return fineTurn, partition
	case grainAt(secondGrain).table():
		return secondTurn, partition
	case "flows":
		length, day, _ := strings.Cut(strings.Trim(partition, "()"), ",")
		if ns, err := strconv.ParseInt(length, 10, 64); err == nil && ns < time.Minute.Nanoseconds() {
			return secondTurn, day
		}
		return recordTurn, day
	}
	return recordTurn, partition
}
