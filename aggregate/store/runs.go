package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
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
// visible while it is repeated.
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
	return s.writeRuns(ctx, "begin run", "started", list...)
}

// EndRun waits until the rows of the run are written and makes it the visible one of
// its producer. A run that failed is not ended: what was visible before it stays. So
// does a replay of which rows were lost on the way (ErrRowsLost).
func (s *Store) EndRun(ctx context.Context, r Run) error {
	return s.EndRuns(ctx, []Run{r})
}

// EndRuns is EndRun for many, at the price of one. Where one of them cannot be ended, none
// is.
func (s *Store) EndRuns(ctx context.Context, list []Run) error {
	if err := s.Flush(ctx); err != nil {
		return err
	}
	for _, r := range list {
		if lost := s.lostOf(r.Source); lost > 0 && r.Mode == RunReplay {
			return fmt.Errorf("end run %s: %w: %d, see the log above: run it again", r.Name, ErrRowsLost, lost)
		}
	}
	return s.writeRuns(ctx, "end run", "done", list...)
}

// EndEarlier ends the live runs of the same producers whose incarnation is lower, and
// which nobody has ended: those of processes that were killed and could not be gone on
// from. It is for producers that have one incarnation at a time.
func (s *Store) EndEarlier(ctx context.Context, list []Run) error {
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
	if err != nil || len(earlier) == 0 {
		return err
	}
	return s.EndRuns(ctx, earlier)
}

func (s *Store) writeRuns(ctx context.Context, what, state string, list ...Run) error {
	const columns = "runs (producer, incarnation, epoch, mode, state, name)"
	return s.insert(ctx, what, columns, len(list), func(to driver.Batch, i int) error {
		r := &list[i]
		return to.Append(r.Producer, r.Incarnation, r.Epoch, r.Mode.String(), state, r.Name)
	})
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
