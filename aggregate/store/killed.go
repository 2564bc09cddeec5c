package store

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
)

// A killed process leaves live runs that were never ended. All of their closed 1 s windows are
// stored, or on their way from a log; only the open windows are missing. The code below rebuilds
// the 1 min windows from the stored 1 s windows, so that both have the same sums and no process
// has to keep minutes on disk beside seconds.
//
// The runs of a host that never comes back are not ended. A disconnected exporter looks the same:
// it keeps its minutes in its spool as long as there is room, and delivers them when it is
// connected again.

// EndKilled ends live runs of killed processes, once all of their rows in logs are stored: it
// rebuilds the minutes that were open, and records a gap for each run that has none. Ending a run
// again changes nothing. With an outbox it returns when the request is on disk.
func (s *Store) EndKilled(ctx context.Context, list []Run) error {
	return s.endLater(ctx, &ending{Killed: list})
}

// EndEarlier is EndKilled for all live runs of the same producers that have a lower incarnation
// and no end. It is for producers with one incarnation at a time.
func (s *Store) EndEarlier(ctx context.Context, list []Run) error {
	return s.endLater(ctx, &ending{Earlier: list})
}

// runsBefore returns the runs for EndEarlier to end.
func (s *Store) runsBefore(ctx context.Context, list []Run) ([]Run, error) {
	var producers, incarnations []string
	for _, r := range list {
		producers = append(producers, strconv.FormatUint(r.Producer, 10))
		incarnations = append(incarnations, fmt.Sprintf("toUInt64(%d)", r.Incarnation))
	}
	of := strings.Join(producers, ", ")
	query := fmt.Sprintf(`SELECT producer, incarnation, epoch, any(name) FROM %s.runs
WHERE mode = 'live' AND producer IN (%[2]s) AND incarnation < transform(producer, [%[2]s], [%[3]s], toUInt64(0))
GROUP BY producer, incarnation, epoch HAVING countIf(state = 'done') = 0`, s.database, of, strings.Join(incarnations, ", "))
	return queryRows(ctx, s, "read runs", query, func(rows driver.Rows) (Run, error) {
		r := Run{Mode: RunLive}
		err := rows.Scan(&r.Producer, &r.Incarnation, &r.Epoch, &r.Name)
		return r, err
	})
}

// sourceList formats the identities of runs for SQL.
func sourceList(list []Run) string {
	var sources []string
	for _, r := range list {
		sources = append(sources, fmt.Sprintf("(%d, %d, %d)", r.Producer, r.Incarnation, r.Epoch))
	}
	return strings.Join(sources, ", ")
}

// lastSeq is the number, within a ring, of the rebuilt rows of a minute. No shard reaches it.
const lastSeq = uint64(1)<<aggregate.PartShift - 1

// folding describes how to build minutes from seconds.
type folding struct {
	minutes, seconds       string // tables
	minutesKey, secondsKey string // functions of window_start in their keys
	ofMinutes, ofSeconds   string // conditions, where both are in one table
	keys, columns          string
	values                 string // of columns, over the seconds p
	nothing                string // likewise, of a minute without rows
	whole                  string // condition: a row of a minute stands for other keys too, of which the seconds have rows
}

// foldings returns the foldings of partials and of flows.
func foldings() []folding {
	sums := func(columns ...string) string {
		var list []string
		for _, c := range columns {
			list = append(list, "toUInt64(least(sum(toUInt128(p."+c+")), toUInt128(18446744073709551615)))")
		}
		return strings.Join(list, ", ")
	}
	minute, second := resolutionTableAt(minuteTable), resolutionTableAt(secondTable)
	return []folding{
		{
			minutes: minute.table(), seconds: second.table(), minutesKey: minute.KeyStart, secondsKey: second.KeyStart, ofMinutes: "1", ofSeconds: "1",
			keys:    "signal, source_kind, encoding, src_group, dst_group, location",
			columns: "observations, bytes, measured, sum, min, max, untouched, trimmed, heavy, heavy_sum, samples, unjudged, evidence, dist",
			values: sums("observations", "bytes", "measured", "sum") + ", minIf(p.min, p.measured > 0), max(p.max), " + sums("untouched", "trimmed", "heavy", "heavy_sum", "samples", "unjudged") +
				", groupBitOr(p.evidence), " + saturatedMap("sumMap(CAST(p.dist, 'Map(UInt16, UInt128)'))"),
			nothing: "0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, CAST(map(), 'Map(UInt16, UInt64)')",
			whole:   fmt.Sprintf("src_group = %d", aggregate.OverflowGroup),
		},
		{
			minutes: "flows", seconds: "flows", minutesKey: "toStartOfHour", secondsKey: "toStartOfHour",
			ofMinutes: "resolution_ns = 60000000000", ofSeconds: "resolution_ns = 1000000000",
			keys:    "signal, source_kind, src_group, dst_group, src, dst, src_port, dst_port, proto",
			columns: "resolution_ns, observations, bytes, measured, sum, min, max, heavy, heavy_sum, location, location_heavy, sampled",
			values: "60000000000, " + sums("observations", "bytes", "measured", "sum") + ", minIf(p.min, p.measured > 0), max(p.max), " + sums("heavy", "heavy_sum") +
				", argMax(p.location, p.location_heavy), " + sums("location_heavy", "sampled"),
			nothing: "60000000000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0",
			whole:   "1", // the heaviest flows of a minute are others than those of its seconds
		},
	}
}

// emptyMade replaces rows that rebuild made by empty ones where the ring's own rows have come.
const emptyMade = `INSERT INTO {minutes} (window_start, {keys}, producer, incarnation, config_epoch, seq, {columns})
SELECT window_start, {keys}, producer, incarnation, config_epoch, seq, {nothing} FROM {minutes} FINAL WHERE {of minutes} AND {made} AND observations > 0 AND
(
(window_start, producer, incarnation, config_epoch, {ring}, {keys}) IN
(SELECT window_start, producer, incarnation, config_epoch, {ring}, {keys} FROM {minutes} WHERE {of minutes} AND NOT {made})
OR (window_start, producer, incarnation, config_epoch, {ring}) IN
(SELECT window_start, producer, incarnation, config_epoch, {ring} FROM {minutes} WHERE {of minutes} AND NOT {made} AND {whole})
)`

// countedRows are the observations of seconds and of stored minutes, for makeMinutes.
const countedRows = `
(
SELECT toStartOfMinute(window_start) AS minute, producer, incarnation, config_epoch, {ring} AS ring, {keys}, toUInt128(observations) AS there, toUInt128(0) AS stored, 0 AS own, 0 AS whole FROM {seconds} FINAL WHERE {of seconds}
UNION ALL
SELECT toStartOfMinute(window_start), producer, incarnation, config_epoch, {ring}, {keys}, toUInt128(0), toUInt128(observations), NOT {made}, NOT {made} AND {whole} FROM {minutes} FINAL WHERE {of minutes}
)
`

// makeMinutes makes the rows of short minutes.
const makeMinutes = `INSERT INTO {minutes} (window_start, {keys}, producer, incarnation, config_epoch, seq, {columns})
SELECT toStartOfMinute(p.window_start) AS minute, {keys}, producer, incarnation, config_epoch, {last}, {values}
FROM (SELECT *, {ring} AS ring FROM {seconds} FINAL WHERE {of seconds}) AS p
WHERE (toStartOfMinute(p.window_start), producer, incarnation, config_epoch, ring) IN
(SELECT minute, producer, incarnation, config_epoch, ring FROM` + countedRows + `GROUP BY minute, producer, incarnation, config_epoch, ring HAVING sum(there) > sum(stored) AND max(whole) = 0)
AND (toStartOfMinute(p.window_start), producer, incarnation, config_epoch, ring, {keys}) IN
(SELECT minute, producer, incarnation, config_epoch, ring, {keys} FROM` + countedRows + `GROUP BY minute, producer, incarnation, config_epoch, ring, {keys} HAVING sum(own) = 0 AND sum(there) > sum(stored))
GROUP BY minute, {keys}, producer, incarnation, config_epoch, ring`

// rebuild builds windows of 1 min from those of 1 s, for sources that receive no more rows and
// windows that start at since or later, where the minute of a ring is short: it was open when the
// process was killed, or only some of its rows reached the disk. A key gets a row if the minute has
// none of it, unless some row of the minute stands for other keys too. Each row that it makes has a
// fixed identity, so that making it again changes nothing. It also repairs minutes that it built too
// early, while rows still waited in the outbox of another process: further seconds replace them,
// and once the ring's own rows of the minute arrive, empty rows do.
func (s *Store) rebuild(ctx context.Context, sources string, since time.Time) error {
	for _, f := range foldings() {
		during := func(key string) string {
			return fmt.Sprintf("(producer, incarnation, config_epoch) IN (%s) AND window_start >= '%s' AND indexHint(%s(window_start) >= %[3]s(toDateTime64('%[2]s', 9, 'UTC')))",
				sources, stamp(since), key)
		}
		text := strings.NewReplacer(
			"{minutes}", s.database+"."+s.layout.local(f.minutes), "{of minutes}", f.ofMinutes+" AND "+during(f.minutesKey),
			"{seconds}", s.database+"."+s.layout.local(f.seconds), "{of seconds}", f.ofSeconds+" AND "+during(f.secondsKey),
			"{keys}", f.keys, "{columns}", f.columns, "{values}", f.values, "{nothing}", f.nothing, "{whole}", f.whole,
			"{ring}", fmt.Sprintf("bitShiftRight(seq, %d)", aggregate.PartShift), "{made}", fmt.Sprintf("bitAnd(seq, %d) = %[1]d", lastSeq),
			"{last}", fmt.Sprintf("bitOr(bitShiftLeft(ring, %d), %d)", aggregate.PartShift, lastSeq),
		)
		for _, statement := range []string{emptyMade, makeMinutes} {
			for _, sh := range s.shards(s.names) { // each has all rows of its runs
				if err := sh.conn.Exec(s.inserting(ctx, nil), text.Replace(statement)); err != nil {
					return s.describe("make minutes again", err)
				}
			}
		}
	}
	return nil
}

// How often RunRebuild runs, and for how long after a killed run's gap was written.
const (
	rebuildEvery = 10 * time.Minute
	rebuildFor   = 6 * time.Hour
)

// RunRebuild repairs the minutes of killed runs whose rows still waited in the outbox of another
// process, such as a second collector, when the run was ended. Until then such a minute is short
// or counts twice, which Verify finds. It runs at once and then every 10 minutes, for 6 hours
// after each kill, once the server is ready and until ctx ends. A failed pass is logged and
// repeated by the next. Several stores may run it on one database.
func (s *Store) RunRebuild(ctx context.Context) error {
	return s.every(ctx, rebuildEvery, s.rebuildRecent, func(err error) {
		s.logger.Warn("cannot correct the 1m windows of killed processes, trying again", slog.String("error", oneLine(err)))
	})
}

// every runs a pass at once and then at an interval, once the server is ready and until ctx ends.
func (s *Store) every(ctx context.Context, interval time.Duration, pass func(context.Context) error, failed func(error)) error {
	if s.server.wait(ctx) != nil {
		return nil
	}
	tick := time.Tick(interval)
	for {
		if err := pass(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return nil
		}
	}
}

// rebuildRecent is one pass. Each killed process leaves a gap for its open windows; no other run
// does.
func (s *Store) rebuildRecent(ctx context.Context) error {
	var list []Run
	since := time.Now()
	query := fmt.Sprintf(`SELECT producer, incarnation, epoch, min(window_from) FROM %[1]s.gaps
WHERE reason = '%[2]s' AND at > now() - %[3]d AND (producer, incarnation, epoch) IN (SELECT producer, incarnation, epoch FROM %[1]s.runs WHERE mode = 'live' AND state = 'done')
GROUP BY producer, incarnation, epoch`, s.database, GapOpen, int(rebuildFor.Seconds()))
	err := s.query(ctx, s.reader, "read gaps", query, func(rows driver.Rows) error {
		var r Run
		var open time.Time
		if err := rows.Scan(&r.Producer, &r.Incarnation, &r.Epoch, &open); err != nil {
			return err
		}
		if list = append(list, r); open.Before(since) {
			since = open
		}
		return nil
	})
	if err != nil || len(list) == 0 {
		return err
	}
	// Minutes are open for up to 3 min: a window is late by two lengths at most.
	return s.rebuild(ctx, sourceList(list), since.Add(-5*time.Minute).Truncate(time.Minute))
}

// missAfter records gaps for the processes that lost their marks: those without a gap of a restart.
// Everything after a process's last stored second is missing until the next process began or, if the
// next incarnation is no time, until now. Killed processes without windows do not count as the next one,
// since they get no gap of their own. The last second was open, and so were later ones with fine windows.
// A process may have stored rows under several configurations.
func (s *Store) missAfter(ctx context.Context, list []Run) error {
	unknown, err := s.unmarked(ctx, list)
	if err != nil || len(unknown) == 0 { // the windows of all times take long to read
		return err
	}
	stored, err := s.lastSeconds(ctx, unknown)
	if err != nil || len(stored) == 0 {
		return err
	}
	next, err := s.nextProcesses(ctx, unknown, stored)
	if err != nil {
		return err
	}
	var gaps []gap
	for p, last := range stored {
		from := last.start.Add(time.Second)
		to := later(from, time.Now())
		// The incarnation of a live tap is the Unix time of its start in ns; other exporters may count.
		if began := next[p]; began > uint64(max(from.UnixNano(), 0)) && began < uint64(max(to.UnixNano(), 0)) {
			to = time.Unix(0, int64(began))
		}
		of := aggregate.Source{Producer: p.producer, Incarnation: p.incarnation, Epoch: last.epoch}
		restart := Gap{Source: of, From: from, To: to, Reason: GapRestart}
		open := Gap{Source: of, From: last.start, To: later(from, last.end), Reason: GapOpen, Resolution: time.Second}
		gaps = append(gaps, restart.row(time.Now()), open.row(time.Now()))
	}
	return s.sendGaps(ctx, gaps)
}

// processList is a condition for rows of some processes.
func processList[V any](of map[process]V) string {
	var list []string
	for p := range of {
		list = append(list, fmt.Sprintf("(%d, %d)", p.producer, p.incarnation))
	}
	return "(producer, incarnation) IN (" + strings.Join(list, ", ") + ")"
}

// unmarked returns the processes of runs that have no gap of a restart.
func (s *Store) unmarked(ctx context.Context, list []Run) (map[process]bool, error) {
	unknown := make(map[process]bool)
	for _, r := range list {
		unknown[process{r.Producer, r.Incarnation}] = true
	}
	query := fmt.Sprintf("SELECT DISTINCT producer, incarnation FROM %s.gaps WHERE reason = '%s' AND %s", s.database, GapRestart, processList(unknown))
	return unknown, s.query(ctx, s.reader, "read gaps", query, func(rows driver.Rows) error {
		var p process
		err := rows.Scan(&p.producer, &p.incarnation)
		delete(unknown, p)
		return err
	})
}

// lastSecond is the last stored second of a process, and the end of its last second with stored windows of any length.
type lastSecond struct {
	start, end time.Time
	epoch      uint64
}

// lastSeconds returns the last second of each process that stored windows.
func (s *Store) lastSeconds(ctx context.Context, of map[process]bool) (map[process]lastSecond, error) {
	stored := make(map[process]lastSecond)
	query := fmt.Sprintf(`SELECT producer, incarnation, argMax(config_epoch, window_start), if(max(second), maxIf(window_start, second), min(window_start)), max(end) FROM
(SELECT producer, incarnation, config_epoch, window_start, true AS second, window_start AS end FROM %[1]s.%[2]s WHERE %[4]s
UNION ALL SELECT producer, incarnation, config_epoch, window_start, false, %[5]s FROM %[1]s.%[3]s WHERE %[4]s)
GROUP BY producer, incarnation`,
		s.database, resolutionTableAt(secondTable).table(), resolutionTableAt(fineTable).table(), processList(of), windowEnd("resolution_ns"))
	return stored, s.query(ctx, s.reader, "read windows", query, func(rows driver.Rows) error {
		var p process
		var last lastSecond
		err := rows.Scan(&p.producer, &p.incarnation, &last.epoch, &last.start, &last.end)
		last.start, last.end = last.start.Truncate(time.Second), last.end.Add(time.Second-1).Truncate(time.Second)
		stored[p] = last
		return err
	})
}

// nextProcesses returns the incarnation of the process that followed each one in stored. Those in of that stored no
// windows do not count.
func (s *Store) nextProcesses(ctx context.Context, of map[process]bool, stored map[process]lastSecond) (map[process]uint64, error) {
	silent := maps.Clone(of)
	maps.DeleteFunc(silent, func(p process, _ bool) bool { _, ok := stored[p]; return ok })
	lasting := "true"
	if len(silent) > 0 {
		lasting = "NOT " + processList(silent)
	}
	next := make(map[process]uint64)
	query := fmt.Sprintf(`SELECT of.producer, of.incarnation, min(later.incarnation) FROM
(SELECT DISTINCT producer, incarnation FROM %[1]s.runs WHERE %[2]s) AS of
INNER JOIN (SELECT DISTINCT producer, incarnation FROM %[1]s.runs WHERE %[3]s) AS later ON of.producer = later.producer
WHERE later.incarnation > of.incarnation GROUP BY of.producer, of.incarnation`, s.database, processList(stored), lasting)
	return next, s.query(ctx, s.reader, "read runs", query, func(rows driver.Rows) error {
		var p process
		var incarnation uint64
		err := rows.Scan(&p.producer, &p.incarnation, &incarnation)
		next[p] = incarnation
		return err
	})
}
