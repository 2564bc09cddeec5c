package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
)

// A process that is killed leaves live runs that nobody has ended. All of their windows of
// 1 s that had closed are stored, or on their way from a log; what is missing are the
// windows that were open. Those of 1 min are made again here, of the stored ones of 1 s, so
// that both add up to the same and no process has to keep minutes on disk beside seconds.

// EndKilled ends live runs of processes that were killed, once all of their rows that wait
// in logs are stored: it makes the minutes again that were open, and records a gap of each
// run that has none. Ending a run again changes nothing.
func (s *Store) EndKilled(ctx context.Context, list []Run) error {
	if len(list) == 0 {
		return nil
	}
	if err := s.Flush(ctx); err != nil {
		return err
	}
	if err := s.rebuild(ctx, sourceList(list)); err != nil {
		return err
	}
	if err := s.missAfter(ctx, list); err != nil {
		return err
	}
	return s.EndRuns(ctx, list)
}

// EndEarlier is EndKilled for the live runs of the same producers whose incarnation is lower
// and which nobody has ended. It is for producers that have one incarnation at a time.
func (s *Store) EndEarlier(ctx context.Context, list []Run) error {
	if len(list) == 0 {
		return nil
	}
	var producers, incarnations []string
	for _, r := range list {
		producers = append(producers, strconv.FormatUint(r.Producer, 10))
		incarnations = append(incarnations, fmt.Sprintf("toUInt64(%d)", r.Incarnation))
	}
	of := strings.Join(producers, ", ")
	query := fmt.Sprintf(`SELECT producer, incarnation, epoch, any(name) FROM %s.runs
WHERE mode = 'live' AND producer IN (%[2]s) AND incarnation < transform(producer, [%[2]s], [%[3]s], toUInt64(0))
GROUP BY producer, incarnation, epoch HAVING countIf(state = 'done') = 0`, s.database, of, strings.Join(incarnations, ", "))
	var earlier []Run
	err := s.query(ctx, s.reader, "read runs", query, func(rows driver.Rows) error {
		r := Run{Mode: RunLive}
		err := rows.Scan(&r.Producer, &r.Incarnation, &r.Epoch, &r.Name)
		earlier = append(earlier, r)
		return err
	})
	if err != nil {
		return err
	}
	return s.EndKilled(ctx, earlier)
}

// sourceList are the identities of runs, as SQL has them.
func sourceList(list []Run) string {
	var sources []string
	for _, r := range list {
		sources = append(sources, fmt.Sprintf("(%d, %d, %d)", r.Producer, r.Incarnation, r.Epoch))
	}
	return strings.Join(sources, ", ")
}

// ringBits of a row's seq number the blocks of one ring; those above are the ring. The rows
// of a minute that is made again have the last number, which no shard comes to.
const ringBits = 48

// rebuild makes windows of 1 min of those of 1 s, of sources that no rows come of any more,
// where a ring has rows of the second and none of the minute: it was open when the process
// was killed. What is made has a fixed identity, so that making it again changes nothing.
func (s *Store) rebuild(ctx context.Context, sources string) error {
	const ring = "bitShiftRight(seq, 48)"
	last := fmt.Sprintf("bitOr(bitShiftLeft(ring, %d), %d)", ringBits, uint64(1)<<ringBits-1)
	sums := func(columns ...string) string {
		var list []string
		for _, c := range columns {
			list = append(list, "toUInt64(least(sum(toUInt128(p."+c+")), toUInt128(18446744073709551615)))")
		}
		return strings.Join(list, ", ")
	}
	fold := func(into, from, columns, keys, values, epoch, where string) string {
		return fmt.Sprintf(`INSERT INTO %[1]s.%[2]s (window_start, %[4]s, producer, incarnation, %[7]s, seq, %[5]s)
SELECT toStartOfMinute(p.window_start) AS minute, %[4]s, producer, incarnation, %[7]s, %[9]s, %[6]s
FROM (SELECT *, %[10]s AS ring FROM %[1]s.%[3]s FINAL WHERE (producer, incarnation, %[7]s) IN (%[8]s) AND %[11]s) AS p
WHERE (toStartOfMinute(p.window_start), producer, incarnation, %[7]s, ring) NOT IN
(SELECT window_start, producer, incarnation, %[7]s, %[10]s FROM %[1]s.%[2]s WHERE (producer, incarnation, %[7]s) IN (%[8]s) AND %[12]s)
GROUP BY minute, %[4]s, producer, incarnation, %[7]s, ring`,
			s.database, into, from, keys, columns, values, epoch, sources, last, ring, where, strings.Replace(where, "= 1000000000", "= 60000000000", 1))
	}
	minute, second := grainAt(minuteGrain).table(), grainAt(secondGrain).table()
	const flowKeys = "signal, source_kind, src_group, dst_group, src, dst, src_port, dst_port, proto"
	for _, statement := range []string{
		fold(minute, second, "observations, bytes, measured, sum, min, max, untouched, trimmed, heavy, heavy_sum, dist",
			"signal, source_kind, encoding, src_group, dst_group, location",
			sums("observations", "bytes", "measured", "sum")+", minIf(p.min, p.measured > 0), max(p.max), "+sums("untouched", "trimmed", "heavy", "heavy_sum")+
				", "+saturatedMap("sumMap(CAST(p.dist, 'Map(UInt16, UInt128)'))"), "config_epoch", "1"),
		fold("flows", "flows", "resolution_ns, observations, bytes, measured, sum, min, max, heavy, heavy_sum, location, location_heavy", flowKeys,
			"60000000000, "+sums("observations", "bytes", "measured", "sum")+", minIf(p.min, p.measured > 0), max(p.max), "+sums("heavy", "heavy_sum")+
				", argMax(p.location, p.location_heavy), "+sums("location_heavy"), "config_epoch", "resolution_ns = 1000000000"),
	} {
		err := s.retry.do(ctx, func(ctx context.Context) error { return s.names.Exec(ctx, statement) })
		if err != nil {
			return s.describe("make minutes again", err)
		}
	}
	return nil
}

// missAfter records of processes without a gap of a restart that all is missing that came
// after their last stored second, until now: their marks are lost. What a process stored
// under several configurations is one.
func (s *Store) missAfter(ctx context.Context, list []Run) error {
	type process struct{ producer, incarnation uint64 }
	var of []string
	for _, r := range list {
		of = append(of, fmt.Sprintf("(%d, %d)", r.Producer, r.Incarnation))
	}
	processes := "(producer, incarnation) IN (" + strings.Join(of, ", ") + ")"
	known := make(map[process]bool)
	query := fmt.Sprintf("SELECT DISTINCT producer, incarnation FROM %s.gaps WHERE reason = '%s' AND %s", s.database, GapRestart, processes)
	err := s.query(ctx, s.reader, "read gaps", query, func(rows driver.Rows) error {
		var p process
		err := rows.Scan(&p.producer, &p.incarnation)
		known[p] = true
		return err
	})
	if err != nil {
		return err
	}
	var gaps []Gap
	query = fmt.Sprintf("SELECT producer, incarnation, argMax(config_epoch, window_start), max(window_start) FROM %s.%s WHERE %s GROUP BY producer, incarnation",
		s.database, grainAt(secondGrain).table(), processes)
	err = s.query(ctx, s.reader, "read windows", query, func(rows driver.Rows) error {
		var of aggregate.Source
		var last time.Time
		if err := rows.Scan(&of.Producer, &of.Incarnation, &of.Epoch, &last); err != nil || known[process{of.Producer, of.Incarnation}] {
			return err
		}
		from, to := last.Add(time.Second), time.Now()
		if to.Before(from) {
			to = from
		}
		gaps = append(gaps, Gap{Source: of, From: from, To: to, Reason: GapRestart},
			Gap{Source: of, From: last, To: from, Reason: GapOpen, Resolution: time.Second})
		return nil
	})
	if err != nil || len(gaps) == 0 {
		return err
	}
	return s.WriteGaps(ctx, gaps)
}
