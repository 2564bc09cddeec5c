package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Settled is what a database got from its outboxes to be whole again.
type Settled struct {
	Sent   uint64 // rows that had waited
	Resent uint64 // batches that the server had taken once and has no longer
	// Strangers are runs that rows are of and that the database does not know: their
	// names and their end were not in the outbox. Replays of them make them whole.
	Strangers uint64
}

// WriteText writes for people what the database got.
func (s *Settled) WriteText(w io.Writer) {
	if s.Sent > 0 || s.Resent > 0 {
		fmt.Fprintf(w, "from the outbox: %d rows that had waited, %d batches that the backup lacks\n", s.Sent, s.Resent)
	}
	if s.Strangers > 0 {
		fmt.Fprintf(w, "%d runs came back without their names, perhaps in part: replay their captures again (schema verify names them)\n", s.Strangers)
	}
}

// Settle sends what waits in the outboxes, looks for what they keep of rows that the
// server took, and sends again what it has no longer, as after a restore from a backup:
// all of that is newer than the backup, or in it. It waits while the server is away.
func (s *Store) Settle(ctx context.Context) (Settled, error) {
	if err := s.Flush(ctx); err != nil {
		return Settled{}, err
	}
	var done Settled
	for _, d := range s.deliveries {
		if err := d.looked(ctx); err != nil {
			return done, err
		}
		d.mu.Lock()
		done.Sent += d.sent.Rows
		done.Resent += d.resent
		d.mu.Unlock()
	}
	if done == (Settled{}) {
		return done, nil
	}
	var err error
	done.Strangers, err = s.strangers(ctx)
	return done, err
}

// looked waits until the server was asked for all batches that are kept.
func (d *delivery) looked(ctx context.Context) error {
	for {
		d.mu.Lock()
		changed, checked := d.changed, d.checked
		d.mu.Unlock()
		if checked {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(tellEvery):
			d.tell()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look asks the server for the batches that are kept.
func (d *delivery) look(ctx context.Context) {
	d.outage = !d.verify(ctx)
	if !d.outage {
		d.note(func() { d.checked = true })
	}
}

// strangers counts runs that have rows and no entry.
func (s *Store) strangers(ctx context.Context) (uint64, error) {
	parts := ""
	for g := range numGrains {
		if g > 0 {
			parts += " UNION DISTINCT "
		}
		parts += fmt.Sprintf("SELECT DISTINCT producer, incarnation, config_epoch FROM %s.%s", s.database, grainAt(g).table())
	}
	query := fmt.Sprintf("SELECT count() FROM (%s) WHERE (producer, incarnation, config_epoch) NOT IN (SELECT producer, incarnation, epoch FROM %s.runs)", parts, s.database)
	var n uint64
	err := s.query(ctx, s.migrator, "read runs", query, func(rows driver.Rows) error { return rows.Scan(&n) })
	return n, err
}

// DiscardOutbox forgets all that is in the outboxes, and gives the number of rows that
// waited there and that no server has. It comes before Migrate and before the first write,
// which begin to send, and fails after them.
func (s *Store) DiscardOutbox() (uint64, error) {
	lost := uint64(0)
	for _, d := range s.deliveries {
		if d.started.Load() {
			return lost, errors.New("discard outbox: it is being sent")
		}
		waiting := d.log.Stats().Waiting.Weight
		if err := d.log.Clear(); err != nil {
			return lost, err
		}
		lost += waiting
	}
	return lost, nil
}
