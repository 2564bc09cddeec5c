package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/retry"
)

// ErrDisk is the error of a database that stays above its disk budget.
var ErrDisk = errors.New("above the disk budget with nothing left to delete: raise it, or keep 1 min rows for a shorter time")

// Dropped is a partition that was deleted to make room, with its rows.
type Dropped struct {
	Table, Partition string // the partition as the server prints it: the start of its windows
	Rows, Bytes      uint64
}

// Trim deletes partitions until the tables of the database take at most budget bytes on disk. It
// starts with the fine windows, continues with the 1 s windows together with the flows of their
// day, and then month by month with the flows of 1 min windows and the rows of taps and findings;
// in each step the oldest go first. It never deletes the 1 min windows. Each deletion is logged,
// and recorded in gaps by producer, with the reason trimmed or, for records, a reason for their
// table. Gaps, names, runs and configurations stay. Trim returns the deleted partitions, also
// with an error; ErrDisk if that was not enough, and ErrForeign as Drop does.
//
// No outbox, of any process, sends rows again that the server took and Trim deleted. Rows that
// still wait in one are sent, even into a deleted partition, since they were never visible. If
// there is no room for them, a later pass deletes them, with a gap of their own. The same holds
// for rows that arrive while their partition is deleted.
//
// On a cluster the budget applies to each shard, which is trimmed separately.
func (s *Store) Trim(ctx context.Context, budget uint64) (dropped []Dropped, failed error) {
	for _, sh := range s.shards(s.migrator) {
		list, err := s.trimShard(ctx, sh, budget)
		dropped, failed = append(dropped, list...), errors.Join(failed, err)
	}
	return dropped, failed
}

func (s *Store) trimShard(ctx context.Context, sh shard, budget uint64) ([]Dropped, error) {
	there, err := s.own(ctx, sh.conn)
	if err != nil {
		return nil, err
	}
	used := uint64(0)
	for _, o := range there {
		used += o.bytes
	}
	if used <= budget {
		return nil, nil
	}
	partitions, err := s.partitions(ctx, sh.conn)
	if err != nil {
		return nil, err
	}
	// Add up the listed partitions instead of the sizes read above: another process may have deleted some since.
	used = 0
	for _, o := range there {
		if !slices.ContainsFunc(trimmables(), func(t trimmable) bool { return s.layout.local(t.table) == o.name }) {
			used += o.bytes
		}
	}
	for i := range partitions {
		used += partitions[i].bytes
	}
	var dropped []Dropped
	for i := range partitions {
		p := &partitions[i]
		// Partitions of the same time are deleted together.
		if used <= budget && (i == 0 || p.turn != partitions[i-1].turn || p.begin != partitions[i-1].begin) {
			break
		}
		d := Dropped{Table: p.table, Partition: p.partition}
		err := onOne(ctx, sh.conn, func(conn driver.Conn) error { return s.dropPartition(ctx, conn, p, &d) })
		if d.Rows > 0 {
			s.logDropped(sh, &d)
			dropped = append(dropped, d)
		}
		if err != nil {
			return dropped, err
		}
		used -= min(used, p.bytes) // also if another process deleted it meanwhile
	}
	if used > budget {
		return dropped, fmt.Errorf("trim database %s at %s: %d bytes of %d: %w", s.database, s.host, used, budget, ErrDisk)
	}
	return dropped, nil
}

const (
	maxTrimParts = 1000            // handled at a time
	maxTrimIdle  = 5               // lists of parts, none of which could be deleted
	trimPause    = 5 * time.Second // until the next list, if a merge holds all parts of one
)

// dropPartition deletes the parts that a partition had when it was listed, and adds them to d. It first
// records their rows, and then deletes these parts by their names: rows that arrive meanwhile are in
// parts with higher blocks, which stay. The server may merge parts at any time. A part counts as
// recorded if it is active before and after the statement that records it. So does a part that was
// merged from recorded parts alone, if their blocks are consecutive. Any other part is recorded again,
// which leaves one gap too many. All statements run on one server, since a replica may lack parts that
// another one lists.
func (s *Store) dropPartition(ctx context.Context, conn driver.Conn, p *diskPartition, d *Dropped) error {
	var recorded []diskPart
	trying := make(map[string]bool) // names of parts whose rows were recorded unless they were merged before
	for idle := 0; idle < maxTrimIdle; idle++ {
		parts, err := s.parts(ctx, conn, p)
		if err != nil || len(parts) == 0 {
			return err
		}
		for _, part := range parts {
			if trying[part.name] {
				recorded = append(recorded, part)
				delete(trying, part.name)
			}
		}
		slices.SortFunc(recorded, func(a, b diskPart) int { return cmp.Compare(a.first, b.first) })
		var names []string
		for _, part := range parts {
			if !part.within(recorded) {
				names, trying[part.name] = append(names, "'"+part.name+"'"), true
				continue
			}
			// Servers refuse to drop parts above a size limit.
			err := conn.Exec(ctx, fmt.Sprintf("ALTER TABLE %s.%s DROP PART '%s' SETTINGS max_partition_size_to_drop = 0", s.database, s.layout.local(p.table), part.name))
			switch code := exceptionCode(err); {
			case err == nil:
				d.Rows, d.Bytes = d.Rows+part.rows, d.Bytes+part.bytes
				idle = -1
			case code != codeNoSuchPart && code != codePartLocked:
				return s.describe("trim "+p.table, err)
			}
		}
		switch {
		case len(names) > 0:
			err = s.recordTrimmed(ctx, conn, p, names)
		case idle >= 0:
			retry.Sleep(ctx, trimPause)
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("trim %s at %s: %w: it merges the parts of partition %s", p.table, s.host, ErrBusy, p.partition)
}

// diskPart is an active part of a partition, with the rows of its blocks. Each insert is a block.
type diskPart struct {
	name        string
	first, last int64 // its blocks
	rows, bytes uint64
}

// within reports whether all blocks of a part are in the parts of a list, which is ascending.
func (p *diskPart) within(list []diskPart) bool {
	next := p.first
	for i := range list {
		if list[i].first <= next && next <= list[i].last {
			next = list[i].last + 1
		}
	}
	return next > p.last
}

// parts returns the oldest parts with rows that began before the partition was listed.
func (s *Store) parts(ctx context.Context, conn driver.Conn, p *diskPartition) (list []diskPart, err error) {
	query := fmt.Sprintf(`SELECT name, min_block_number, max_block_number, rows, bytes_on_disk FROM system.parts
WHERE database = '%s' AND table = '%s' AND partition_id = '%s' AND active AND rows > 0 AND min_block_number <= %d ORDER BY min_block_number LIMIT %d`,
		s.database, s.layout.local(p.table), p.id, p.last, maxTrimParts)
	err = s.list(ctx, conn, "list parts", query, func(rows driver.Rows) error {
		var part diskPart
		err := rows.Scan(&part.name, &part.first, &part.last, &part.rows, &part.bytes)
		list = append(list, part)
		return err
	})
	return list, err
}

// recordTrimmed records in gaps the rows of parts by producer. It runs before the deletion, so
// that a failure in between leaves a gap too many rather than one too few. Recording the same rows
// again replaces their gap; rows that arrive in the partition later have another.
func (s *Store) recordTrimmed(ctx context.Context, conn driver.Conn, p *diskPartition, parts []string) error {
	statement := fmt.Sprintf(`INSERT INTO %[1]s.gaps (producer, incarnation, epoch, resolution_ns, window_from, window_to, rows, observations, reason, id, at)
SELECT producer, incarnation, %[2]s AS run, toUInt64(%[3]s) AS length, min(%[4]s), max(%[5]s), count(), %[6]s, '%[7]s', cityHash64('%[8]s', '%[9]s', sum(cityHash64(seq, stored_at))), now64(3, 'UTC')
FROM %[1]s.%[10]s FINAL WHERE _partition_id = '%[9]s' AND _part IN (%[11]s) GROUP BY producer, incarnation, run, length`,
		s.database, p.of.epoch, p.of.length, p.of.from, p.of.to, p.of.observations, p.of.reason, p.table, p.id, s.layout.local(p.table), strings.Join(parts, ", "))
	return s.describe("record what is trimmed of "+p.table, conn.Exec(s.inserting(ctx, nil), statement))
}

func (s *Store) logDropped(sh shard, d *Dropped) {
	logger := s.logger
	if s.layout.clustered() {
		logger = logger.With(slog.Any("shard", sh.number))
	}
	logger.Warn("partition deleted: disk budget", slog.String("table", d.Table), slog.String("partition", d.Partition),
		slog.Uint64("rows", d.Rows), slog.Uint64("bytes", d.Bytes))
}

// trimmed reports, for each of some rows of a class, whether a gap of Trim, in any process,
// covers its source and time: the server did not lose such a row.
func (s *Store) trimmed(ctx context.Context, class int, list []lossExtent) ([]bool, error) {
	gone := make([]bool, len(list))
	tables := trimmables()
	i := slices.IndexFunc(tables, func(t trimmable) bool { return t.table == className(class) })
	if i < 0 || len(list) == 0 {
		return gone, nil
	}
	lengths := "resolution_ns = " + tables[i].length
	if class == fineTable {
		lengths = fmt.Sprintf("resolution_ns < %d", time.Second.Nanoseconds())
	}
	times, sources := list[0], make([]string, len(list))
	for i, p := range list {
		times.merge(&p)
		sources[i] = fmt.Sprintf("(%d, %d, %d)", p.Producer, p.Incarnation, p.Epoch)
	}
	slices.Sort(sources)
	query := fmt.Sprintf(`SELECT DISTINCT producer, incarnation, epoch, window_from, window_to FROM %s.gaps
WHERE reason = '%s' AND %s AND window_from <= '%s' AND window_to >= '%s' AND (producer, incarnation, epoch) IN (%s) LIMIT %d`, s.database, tables[i].reason, lengths,
		stamp(time.Unix(0, times.To)), stamp(time.Unix(0, times.From)), strings.Join(slices.Compact(sources), ", "), maxVerifyRows)
	err := s.query(ctx, s.reader, "read gaps", query, func(rows driver.Rows) error {
		var of aggregate.Source
		var from, to time.Time
		if err := rows.Scan(&of.Producer, &of.Incarnation, &of.Epoch, &from, &to); err != nil {
			return err
		}
		for i := range list {
			gone[i] = gone[i] || list[i].source() == of && list[i].From >= from.UnixNano() && list[i].To <= to.UnixNano()
		}
		return nil
	})
	return gone, err
}

// DefaultTrimEvery is how often RunTrim checks the disk.
const DefaultTrimEvery = 10 * time.Minute

// TrimStats counts the work of RunTrim since the store was opened.
type TrimStats struct {
	Passes     uint64 // started, without interrupted ones
	Failures   uint64 // passes that failed or could not make enough room
	Partitions uint64 // deleted, with their rows and bytes
	Rows       uint64
	Bytes      uint64
}

// trimCounts are safe for concurrent use.
type trimCounts struct {
	mu    sync.Mutex
	stats TrimStats
}

func (c *trimCounts) note(dropped []Dropped, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, context.Canceled):
	case err != nil:
		c.stats.Failures++
		fallthrough
	default:
		c.stats.Passes++
	}
	for _, d := range dropped {
		c.stats.Partitions++
		c.stats.Rows += d.Rows
		c.stats.Bytes += d.Bytes
	}
}

// TrimStats returns a snapshot of the counts.
func (s *Store) TrimStats() TrimStats {
	s.trims.mu.Lock()
	defer s.trims.mu.Unlock()
	return s.trims.stats
}

// RunTrim trims the database to a disk budget in bytes, at once and then at intervals of every,
// or DefaultTrimEvery for 0, once the server is ready and until ctx ends. Without a budget it
// returns at once. A failed pass is logged, counted and repeated by the next. RunTrim returns an
// error only if no later pass could succeed: the user lacks the right (ErrDenied), or the
// database is not csigscope's (ErrForeign). Several stores may trim one database.
func (s *Store) RunTrim(ctx context.Context, budget uint64, every time.Duration) error {
	return s.runTrim(ctx, budget, every, s.Trim)
}

func (s *Store) runTrim(ctx context.Context, budget uint64, every time.Duration, trim func(context.Context, uint64) ([]Dropped, error)) error {
	if budget == 0 || s.server.wait(ctx) != nil {
		return nil
	}
	tick := time.Tick(cmp.Or(max(every, 0), DefaultTrimEvery))
	for {
		dropped, err := trim(ctx, budget)
		s.trims.note(dropped, err)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrDenied), errors.Is(err, ErrForeign):
			return err
		case err != nil:
			s.logger.Warn("the store is not trimmed to its disk budget", slog.String("error", oneLine(err)))
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return nil
		}
	}
}

// untouchedTaps is an SQL list of the reasons of gaps in records that leave the taps' own rows
// complete.
const untouchedTaps = "('" + gapTrimmedFlows + "', '" + gapTrimmedFindings + "')"

// trimmable describes how deleted rows of a table are recorded in gaps: columns and expressions
// over them. Rows other than partials have no length and no observations there, since no window
// of partials is missing.
type trimmable struct {
	table, reason          string
	epoch, length          string
	from, to, observations string
}

// trimmables are in order of deletion within the same time: windows last, so that no flows remain
// without their windows.
func trimmables() []trimmable {
	window := func(g int) trimmable {
		at := resolutionTableAt(g)
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
		window(fineTable), window(secondTable),
	}
}

func windowEnd(length string) string {
	return "fromUnixTimestamp64Nano(toUnixTimestamp64Nano(window_start) + toInt64(" + length + "), 'UTC')"
}

// diskPartition is a partition with rows.
type diskPartition struct {
	table, partition, id string
	last                 int64  // its last block
	bytes                uint64 // on disk
	of                   trimmable
	order                int    // of its table in trimmables
	turn                 int    // fine windows, then those of 1 s, then tables that outlive both
	begin                string // of its windows, as text that sorts
}

// The turns of partitions.
const (
	fineTurn = iota
	secondTurn
	recordTurn
)

// partitions returns the partitions that Trim may delete, in order of deletion.
func (s *Store) partitions(ctx context.Context, conn driver.Conn) ([]diskPartition, error) {
	tables := trimmables()
	names := make([]string, 0, len(tables))
	for _, t := range tables {
		names = append(names, "'"+s.layout.local(t.table)+"'")
	}
	query := fmt.Sprintf(`SELECT table, partition, partition_id, max(max_block_number), sum(bytes_on_disk) FROM system.parts
WHERE database = '%s' AND table IN (%s) AND active AND rows > 0 GROUP BY table, partition, partition_id LIMIT %d`, s.database, strings.Join(names, ", "), maxVerifyRows)
	var list []diskPartition
	err := s.list(ctx, conn, "list partitions", query, func(rows driver.Rows) error {
		var p diskPartition
		if err := rows.Scan(&p.table, &p.partition, &p.id, &p.last, &p.bytes); err != nil {
			return err
		}
		p.table = strings.TrimSuffix(p.table, localSuffix)
		p.order = slices.IndexFunc(tables, func(t trimmable) bool { return t.table == p.table })
		p.of = tables[p.order]
		p.turn, p.begin = turnOf(p.table, p.partition)
		list = append(list, p)
		return nil
	})
	slices.SortFunc(list, func(a, b diskPartition) int {
		return cmp.Or(a.turn-b.turn, cmp.Compare(a.begin, b.begin), a.order-b.order)
	})
	return list, err
}

// turnOf parses the partition of a table as the server prints it. A partition of flows is the
// length of their windows and a day, or a month for those of 1 min.
func turnOf(table, partition string) (turn int, begin string) {
	switch table {
	case resolutionTableAt(fineTable).table():
		return fineTurn, partition
	case resolutionTableAt(secondTable).table():
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
