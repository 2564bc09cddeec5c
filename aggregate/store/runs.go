package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/ingest/retry"
)

// RunMode tells whether a producer can be measured again.
type RunMode uint8

// A replayed capture gives the same observations each time, so only one run of it is
// visible: the one done last or, while none is done, the one started last. Every run
// of a live tap saw other packets, and all are visible.
const (
	RunReplay RunMode = 1
	RunLive   RunMode = 2
)

// String is "replay" or "live".
func (m RunMode) String() string {
	if m == RunLive {
		return "live"
	}
	return "replay"
}

// Run is one pass of a producer under one configuration. Its Source is that of the
// blocks it writes.
type Run struct {
	aggregate.Source
	Mode RunMode
	Name string // file or tap, for people
}

// BeginRun announces a run before its first block. A run that was done before stays
// visible while it is repeated. With an outbox it returns when that is on disk.
func (s *Store) BeginRun(ctx context.Context, r Run) error {
	return s.BeginRuns(ctx, []Run{r})
}

// BeginRuns is BeginRun for many, at the price of one.
func (s *Store) BeginRuns(ctx context.Context, list []Run) error {
	for _, r := range list {
		if r.Mode == RunLive && len(s.deliveries) > 0 {
			s.deliveries[0].live.Store(true)
		}
	}
	return writeNames(ctx, s, "begin run", list, func(r *nameRecord, part []Run) { r.Runs = part })
}

// EndRun makes the run the visible one of its producer once its rows are written. A run that
// failed is not ended: what was visible before it stays.
//
// It waits for the rows of a replay, and fails if some of them were lost on the way
// (ErrRowsLost). With an outbox it returns for a live run when the end is on disk.
func (s *Store) EndRun(ctx context.Context, r Run) error {
	return s.EndRuns(ctx, []Run{r})
}

// EndRuns is EndRun for many, at the price of one. Where one of them cannot be ended, none
// is.
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

// runTable takes beginnings and ends.
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
	Mark    []uint64 // of the outbox: all that was there is sent before
	Done    []Run
	Killed  []Run // see EndKilled
	Earlier []Run // see EndEarlier
}

// endLater ends live runs when all rows that were taken before are written: it returns when
// that is on disk or, without an outbox, done.
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

// runsAtOnce is how many runs fit into a statement.
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

// errNotDue is the error of a record that is tried again later, while others are sent.
var errNotDue = errors.New("not due")

// wait says when the next record of a class is due.
type wait struct {
	number uint64    // of the record
	mark   []uint64  // once all of this is sent
	until  time.Time // after an attempt that failed
	pauses retry.Backoff
}

// notDue are the classes whose next record waits for others.
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

// sendEnds ends the runs of a record if it is due. A failure keeps no rows waiting: making
// minutes again may fail for longer than sending them.
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
		w.until = time.Now().Add(max(w.pauses.Pause(), time.Since(began))) // half of the time is for rows
		return errNotDue
	}
	d.waits[e.Class] = nil
	if err == nil {
		d.recovered()
	}
	return err
}

// lostOf counts rows of a source that were lost on their way through the outbox, and
// those that may be of any source.
func (s *Store) lostOf(source aggregate.Source) uint64 {
	n := uint64(0)
	for _, d := range s.deliveries {
		d.mu.Lock()
		n += d.lost[source] + d.unknown
		d.mu.Unlock()
	}
	return n
}

// PartialRun is a replay that answers show although it is not done: it is under way, or
// was interrupted. Rows of it may be missing.
type PartialRun struct {
	aggregate.Source
	Name    string
	Started time.Time
}

// maxPartialRuns bounds what is said of replays that are not done.
const maxPartialRuns = 1000

// partialRuns are replays without an end that no other pass of their capture hides.
func (s *Store) partialRuns() string {
	return fmt.Sprintf(`SELECT producer, incarnation, epoch, any(name) AS name, maxIf(at, state = 'started') AS started FROM %[1]s.runs
WHERE mode = 'replay' AND (producer, incarnation, epoch) NOT IN (SELECT producer, incarnation, epoch FROM %[1]s.superseded)
GROUP BY producer, incarnation, epoch HAVING countIf(state = 'done') = 0`, s.database)
}

// PartialRuns are the first 1000 replays by name whose numbers are shown in part. A
// capture that was replayed to its end before is none of them: that pass stays visible.
func (s *Store) PartialRuns(ctx context.Context) ([]PartialRun, error) {
	query := fmt.Sprintf("%s ORDER BY name, producer, incarnation, epoch LIMIT %d", s.partialRuns(), maxPartialRuns)
	var list []PartialRun
	err := s.query(ctx, s.reader, "read runs", query, func(rows driver.Rows) error {
		var r PartialRun
		if err := rows.Scan(&r.Producer, &r.Incarnation, &r.Epoch, &r.Name, &r.Started); err != nil {
			return err
		}
		list = append(list, r)
		return nil
	})
	return list, err
}

// partial tells of replays that may still be under way. Those that cannot are faults.
func (v *verifier) partial(ctx context.Context) error {
	return v.report(ctx, Finding{Check: "run under way or interrupted", Table: "runs", Info: true}, fmt.Sprintf(
		"SELECT count(), any(concat('producer ', toString(producer), ', ', name)) FROM (%s) WHERE started >= '%s'",
		v.partialRuns(), stamp(v.options.Now.Add(-v.options.Grace))))
}
