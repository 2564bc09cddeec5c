package store

import (
	"context"
	"fmt"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// lostUnsent is the reason of rows that waited in memory, and not in an outbox.
const lostUnsent outbox.Reason = "unsent"

// lostReasons are all reasons for losing rows.
var lostReasons = [...]outbox.Reason{
	lostFull, lostDisk, lostRefused, lostNewer, outbox.Damaged, outbox.Missing, outbox.Torn, outbox.Uncertain, lostUnsent,
}

// WriterStatus is how the way of rows to the server is doing.
type WriterStatus struct {
	WriterStats
	LostBy  []LostRows // Lost by reason: all reasons, always in the same order
	Failure error      // of the last attempt to send, nil since one succeeded

	Outboxes    int   // 0: rows wait in memory alone
	OutboxBytes int64 // of all of them, as what follows
	OutboxLimit int64
	// OutboxAge is how long the oldest row that waits has waited; 0 when nothing waits.
	OutboxAge time.Duration
}

// LostRows are rows that were given up for a reason.
type LostRows struct {
	Reason string
	Rows   uint64
}

// WriterStatus is a snapshot.
func (s *Store) WriterStatus() WriterStatus {
	st := WriterStatus{WriterStats: s.WriterStats(), Outboxes: len(s.deliveries)}
	by := make(map[outbox.Reason]uint64)
	var oldest time.Time
	for _, d := range s.deliveries {
		d.mu.Lock()
		if d.failure != nil {
			st.Failure = d.failure
		}
		d.mu.Unlock()
		st.OutboxLimit += d.limit
		logged := d.log.Stats()
		st.OutboxBytes += logged.Bytes
		for reason, n := range logged.Lost {
			by[reason] += n.Weight
		}
		if at := logged.Oldest; !at.IsZero() && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	if !oldest.IsZero() {
		st.OutboxAge = max(time.Since(oldest), 0)
	}
	if s.writer != nil {
		s.writer.mu.Lock()
		by[lostUnsent] = s.writer.stats.Lost
		if s.writer.err != nil {
			st.Failure = s.writer.err
		}
		s.writer.mu.Unlock()
	}
	for _, reason := range lostReasons {
		st.LostBy = append(st.LostBy, LostRows{string(reason), by[reason]})
	}
	return st
}

// Ping asks the server for nothing, and says why it does not answer.
func (s *Store) Ping(ctx context.Context) error {
	return s.describe("reach store", s.reader.Ping(ctx))
}

// Ready says what keeps rows from the store: the server was never ready, it refuses them
// (an outage passes, that does not), or it does not answer and there is no outbox with room
// for them.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.server.err(); err != nil {
		return fmt.Errorf("%w (%d rows wait in the outbox)", err, s.WriterStats().Waiting)
	}
	st := s.WriterStatus()
	if st.Failure != nil && !transient(st.Failure) {
		return s.describe("write partials", st.Failure)
	}
	if st.Outboxes > 0 && st.OutboxBytes < st.OutboxLimit {
		return nil
	}
	err := s.Ping(ctx)
	if err != nil && st.Outboxes > 0 {
		return fmt.Errorf("outbox is full (%d of %d bytes): %w", st.OutboxBytes, st.OutboxLimit, err)
	}
	return err
}
