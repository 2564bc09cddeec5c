package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// lostUnsent is the reason for rows that waited in memory, and not in an outbox.
const lostUnsent outbox.Reason = "unsent"

// lostReasons are all reasons for losing rows.
var lostReasons = [...]outbox.Reason{
	lostFull, lostDisk, lostRefused, lostNewer, outbox.Damaged, outbox.Missing, outbox.Torn, outbox.Uncertain, lostUnsent,
}

// WriterStatus is the state of sending rows to the server.
type WriterStatus struct {
	WriterStats
	LostBy  []LostRows // Lost by reason: all reasons, always in the same order
	Failure error      // of the last attempt to send; nil after a success

	Outboxes    int   // 0: rows wait in memory alone
	OutboxBytes int64 // of all of them, as the fields below
	OutboxLimit int64
	// Untaken is why the outbox did not take the last rows at once; nil if it did, or after two minutes
	// without an attempt.
	Untaken error
	// OutboxAge is how long the oldest waiting row has waited; 0 when nothing waits.
	OutboxAge time.Duration
	// Stalled reports that rows have waited longer than they do while the server takes them,
	// whether or not an attempt has failed: the server may hang.
	Stalled bool

	// UnlistedNames counts the names of exporters that the last lists of groups and locations
	// left out; see Store.Groups.
	UnlistedNames uint64
}

// LostRows are rows that were given up for a reason.
type LostRows struct {
	Reason string
	Rows   uint64
}

// stalledAfter is the maximum age of a row in the outbox beyond the interval for gathering rows, and the time for which
// a refused attempt to write to the outbox counts.
const stalledAfter = 2 * time.Minute

// WriterStatus returns a snapshot of the status.
func (s *Store) WriterStatus() WriterStatus {
	st := WriterStatus{WriterStats: s.WriterStats(), Outboxes: len(s.deliveries)}
	for _, n := range s.unlisted {
		st.UnlistedNames += n.Load()
	}
	by := make(map[outbox.Reason]uint64)
	for _, d := range s.deliveries {
		d.mu.Lock()
		if d.failure != nil {
			st.Failure = d.failure
		}
		if d.untaken != nil && d.now().Sub(d.untakenAt) < stalledAfter {
			st.Untaken = d.untaken
		}
		d.mu.Unlock()
		st.OutboxLimit += d.limit
		logged := d.log.Stats()
		st.OutboxBytes += logged.Bytes
		for reason, n := range logged.Lost {
			by[reason] += n.Weight
		}
		if at := logged.Oldest; !at.IsZero() {
			age := max(d.now().Sub(at), 0)
			st.OutboxAge = max(st.OutboxAge, age)
			st.Stalled = st.Stalled || age > stalledAfter+d.interval
		}
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

// Ping checks that the server answers, without reading data.
func (s *Store) Ping(ctx context.Context) error {
	return s.describe("reach store", s.reader.Ping(ctx))
}

// Ready returns an error if rows cannot reach the store: the server was never ready or refuses them;
// they wait in the outbox for longer than a short outage lasts; the outbox does not take them, or loses
// others to make room; or the server does not answer and no outbox has room for them.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.server.err(); err != nil {
		return fmt.Errorf("%w (%d rows wait in the outbox)", err, s.WriterStats().Waiting)
	}
	st := s.WriterStatus()
	if st.Failure != nil && !transient(st.Failure) {
		return s.describe("write partials", st.Failure)
	}
	if st.Stalled {
		err := fmt.Errorf("%d rows wait in the outbox, the oldest for %s", st.Waiting, st.OutboxAge.Round(time.Second))
		return errors.Join(err, s.describe("write partials", st.Failure))
	}
	if st.Untaken != nil {
		return fmt.Errorf("the outbox does not take rows: %w", st.Untaken)
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

// latencyBounds are the upper bounds of the buckets of Latency. Windows of 1 s close 2 s after
// their end, and their rows then wait in the outbox for further ones: EmbeddedInterval or
// ServerInterval.
var latencyBounds = [...]time.Duration{
	500 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second, 5 * time.Second,
	7500 * time.Millisecond, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour,
}

// Latency is the distribution of the time from the end of a 1 s window until the server had its
// rows, which is when questions see them. It is meaningful for live windows only; those of a
// replayed capture are as late as the capture is old.
type Latency struct {
	Bounds []time.Duration // upper, inclusive, ascending; read-only
	Counts []uint64        // one more than Bounds: the last counts longer times
	Sum    time.Duration   // of all times
}

// latency counts for Latency.
type latency struct {
	mu     sync.Mutex
	counts [len(latencyBounds) + 1]uint64
	sum    time.Duration
}

// taken counts the windows of a batch that the server has taken: one for each run of rows with
// the same producer and number, as a closed window leaves them.
func (l *latency) taken(b *batch, now time.Time) {
	if b.table != secondTable {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	producer, seq := b.words[producerColumn], b.words[seqColumn]
	for i := range seq {
		if i == 0 || seq[i] != seq[i-1] || producer[i] != producer[i-1] {
			l.add(now.Sub(b.windowStart[i].Add(resolutionTableAt(secondTable).Length)))
		}
	}
}

func (l *latency) add(d time.Duration) {
	d = max(d, 0) // of a tap whose clock is ahead
	i := 0
	for i < len(latencyBounds) && d > latencyBounds[i] {
		i++
	}
	l.counts[i]++
	l.sum += d
}

// Latency returns a snapshot of the counts since the store was opened.
func (s *Store) Latency() Latency {
	l := &s.latency
	l.mu.Lock()
	defer l.mu.Unlock()
	return Latency{Bounds: latencyBounds[:], Counts: append([]uint64(nil), l.counts[:]...), Sum: l.sum}
}
