package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/ingest/retry"
)

// RunMode says whether a producer can be measured again.
type RunMode uint8

// A replayed capture gives the same observations each time, so only one run of it is visible: the
// one that ended last or, if none has ended, the one that started last. Every run of a live tap
// saw other packets, and all are visible.
const (
	RunReplay RunMode = 1
	RunLive   RunMode = 2
)

// String returns "replay" or "live".
func (m RunMode) String() string {
	if m == RunLive {
		return "live"
	}
	return "replay"
}

// Run is one pass of a producer under one configuration. Its Source is the Source of its blocks.
type Run struct {
	aggregate.Source
	Mode RunMode
	Name string // file or tap, for people
}

// BeginRun announces a run before its first block. A run that has already ended stays visible
// while it is repeated. With an outbox it returns when the announcement is on disk.
func (s *Store) BeginRun(ctx context.Context, r Run) error {
	return s.BeginRuns(ctx, []Run{r})
}

// BeginRuns is BeginRun for many runs, at the cost of one.
func (s *Store) BeginRuns(ctx context.Context, list []Run) error {
	for _, r := range list {
		if r.Mode == RunLive && len(s.deliveries) > 0 {
			s.deliveries[0].live.Store(true)
		}
	}
	return writeNames(ctx, s, "begin run", list, func(r *nameRecord, part []Run) { r.Runs = part })
}

// EndRun makes the run the visible one of its producer once its rows are written. Do not end a
// failed run: the previously visible one then stays visible.
//
// It waits for the rows of a replay, and fails if some of them were lost on the way
// (ErrRowsLost). With an outbox it returns for a live run when the end is on disk.
func (s *Store) EndRun(ctx context.Context, r Run) error {
	return s.EndRuns(ctx, []Run{r})
}

// EndRuns is EndRun for many runs, at the cost of one. If one of them cannot be ended, none is.
func (s *Store) EndRuns(ctx context.Context, list []Run) error {
	if !slices.ContainsFunc(list, func(r Run) bool { return r.Mode == RunReplay }) {
		return s.endLater(ctx, &ending{Done: list})
	}
	if err := s.Flush(ctx); err != nil {
		return err
	}
	for _, r := range list {
		if lost := s.lostOf(r.Source); lost > 0 && r.Mode == RunReplay {
			return fmt.Errorf("end run %s: %w: %d, see the log above: run it again", r.Name, ErrRowsLost, lost)
		}
	}
	return s.endNow(ctx, &ending{Done: list})
}

// runTable is the table of started and ended runs.
func runTable(state string) *recordTable[Run] {
	return &recordTable[Run]{
		into: "runs (producer, incarnation, epoch, mode, state, name)",
		append: func(to driver.Batch, r *Run) error {
			return to.Append(r.Producer, r.Incarnation, r.Epoch, r.Mode.String(), state, r.Name)
		},
	}
}

// ending is a record of live runs that end.
type ending struct {
	Mark    []uint64 // of the outbox: everything before it is sent first
	Done    []Run
	Killed  []Run // see EndKilled
	Earlier []Run // see EndEarlier
}

// endLater ends live runs once all earlier rows are written. It returns when the request is on
// disk or, without an outbox, done.
func (s *Store) endLater(ctx context.Context, e *ending) error {
	if len(e.Done)+len(e.Killed)+len(e.Earlier) == 0 {
		return nil
	}
	if len(s.deliveries) == 0 {
		if err := s.Flush(ctx); err != nil {
			return err
		}
		return s.endNow(ctx, e)
	}
	if err := s.Sync(ctx); err != nil {
		return err
	}
	d := s.deliveries[0]
	e.Mark = d.log.Mark()[:numClasses]
	return s.describe("end run", d.takeJSON(endsClass, e))
}

func (s *Store) endNow(ctx context.Context, e *ending) error {
	if s.writer == nil {
		return ErrReadOnly
	}
	return s.describe("end run", s.retry.do(ctx, func(ctx context.Context) error { return s.endRuns(ctx, e) }))
}

// runsAtOnce is the maximum number of runs in a statement.
const runsAtOnce = 500

// endRuns ends runs whose rows are written. Ending them again changes nothing.
func (s *Store) endRuns(ctx context.Context, e *ending) error {
	killed := slices.Clone(e.Killed)
	for part := range slices.Chunk(e.Earlier, runsAtOnce) {
		earlier, err := s.runsBefore(ctx, part)
		if err != nil {
			return err
		}
		killed = append(killed, earlier...)
	}
	for part := range slices.Chunk(killed, runsAtOnce) {
		if err := s.rebuild(ctx, sourceList(part), time.Unix(0, 0)); err != nil {
			return err
		}
		if err := s.missAfter(ctx, part); err != nil {
			return err
		}
	}
	if len(e.Done)+len(killed) == 0 {
		return nil
	}
	return s.sendRecords(ctx, runTable("done").insertion(slices.Concat(e.Done, killed)))
}

// errNotDue is the error of a record that is retried later, while others are sent.
var errNotDue = errors.New("not due")

// wait is the condition for the next record of a class to be due.
type wait struct {
	number uint64    // of the record
	mark   []uint64  // once everything before it is sent
	until  time.Time // after a failed attempt
	pauses retry.Backoff
}

// notDue returns the classes whose next record waits for others.
func (d *delivery) notDue() (list []int) {
	for class, w := range d.waits {
		if w != nil && !d.isDue(w) {
			list = append(list, class)
		}
	}
	return list
}

func (d *delivery) isDue(w *wait) bool {
	for _, other := range d.beside { // which hold rows of earlier processes
		if other != d && !other.log.Reached(other.earlier) {
			return false
		}
	}
	return d.log.Reached(w.mark) && !time.Now().Before(w.until)
}

// sendEnds ends the runs of a record if it is due. A failure does not hold up rows: rebuilding
// minutes may fail for longer than sending them.
func (d *delivery) sendEnds(ctx context.Context, e *outbox.Entry, payload []byte) error {
	var end ending
	if err := decodeJSON(endsClass, payload, &end); err != nil {
		return err
	}
	w := d.waits[e.Class]
	if w == nil || w.number != e.Last {
		w = &wait{number: e.Last, mark: d.log.Mark(), pauses: newBackoff()}
		for i := range w.mark {
			switch {
			case i >= len(end.Mark) || i == e.Class || i == endsClass:
				w.mark[i] = 0
			default:
				w.mark[i] = min(w.mark[i], end.Mark[i]) // the outbox may have lost its count
			}
		}
		d.waits[e.Class] = w
	}
	if !d.isDue(w) {
		return errNotDue
	}
	attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	began := time.Now()
	err := d.to.endRuns(attempt, &end)
	if err != nil && !refused(err) && ctx.Err() == nil {
		d.fail(err)
		w.until = time.Now().Add(max(w.pauses.Pause(), time.Since(began))) // leaves half of the time for rows
		return errNotDue
	}
	d.waits[e.Class] = nil
	if err == nil {
		d.recovered()
	}
	return err
}

// lostOf counts rows of a source that were lost on their way through the outbox, and lost rows of
// unknown sources.
func (s *Store) lostOf(source aggregate.Source) uint64 {
	n := uint64(0)
	for _, d := range s.deliveries {
		d.mu.Lock()
		n += d.lost[source] + d.unknown
		d.mu.Unlock()
	}
	return n
}

// PartialRun is a replay that answers include although it has not ended: it is running, or was
// interrupted. Some of its rows may be missing.
type PartialRun struct {
	aggregate.Source
	Name    string
	Started time.Time
}

// maxPartialRuns bounds the list of unfinished replays.
const maxPartialRuns = 1000

// partialRuns is the query for replays without an end that no other run of their capture
// supersedes.
func (s *Store) partialRuns() string {
	return fmt.Sprintf(`SELECT producer, incarnation, epoch, any(name) AS name, maxIf(at, state = 'started') AS started FROM %[1]s.runs
WHERE mode = 'replay' AND (producer, incarnation, epoch) NOT IN (SELECT producer, incarnation, epoch FROM %[1]s.superseded)
GROUP BY producer, incarnation, epoch HAVING countIf(state = 'done') = 0`, s.database)
}

// PartialRuns returns the first 1000 replays by name that answers include only in part. It leaves
// out captures with an earlier complete replay: that run stays visible.
func (s *Store) PartialRuns(ctx context.Context) ([]PartialRun, error) {
	query := fmt.Sprintf("%s ORDER BY name, producer, incarnation, epoch LIMIT %d", s.partialRuns(), maxPartialRuns)
	return queryRows(ctx, s, "read runs", query, func(rows driver.Rows) (r PartialRun, err error) {
		err = rows.Scan(&r.Producer, &r.Incarnation, &r.Epoch, &r.Name, &r.Started)
		return r, err
	})
}

// Replayed returns those of some captures, by their producer, that have a complete replay.
func (s *Store) Replayed(ctx context.Context, producers []uint64) (map[uint64]bool, error) {
	complete := make(map[uint64]bool)
	for part := range slices.Chunk(producers, runsAtOnce) {
		list := make([]string, len(part))
		for i, producer := range part {
			list[i] = strconv.FormatUint(producer, 10)
		}
		query := fmt.Sprintf("SELECT DISTINCT producer FROM %s.runs WHERE mode = 'replay' AND state = 'done' AND producer IN (%s)", s.database, strings.Join(list, ", "))
		err := s.query(ctx, s.reader, "read runs", query, func(rows driver.Rows) error {
			var producer uint64
			err := rows.Scan(&producer)
			complete[producer] = true
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return complete, nil
}

// partial reports replays that may still be running. Older ones are faults.
func (v *verifier) partial(ctx context.Context) error {
	return v.report(ctx, Finding{Check: "run under way or interrupted", Table: "runs", Info: true}, fmt.Sprintf(
		"SELECT count(), any(concat('producer ', toString(producer), ', ', name)) FROM (%s) WHERE started >= '%s'",
		v.partialRuns(), stamp(v.options.Now.Add(-v.options.Grace))))
}
