package store

import (
	"context"
	"fmt"

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
