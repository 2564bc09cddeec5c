package store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Drained sums up the rows that a database received from its outboxes.
type Drained struct {
	Sent   uint64 // rows that had waited
	Resent uint64 // batches that the server had taken once and has lost
	// Unnamed counts runs with rows but without an entry in runs: their names and their end
	// were not in the outbox. Replaying their captures again completes them.
	Unnamed uint64
}

// WriteText writes the sums for people to read.
func (s *Drained) WriteText(w io.Writer) {
	if s.Sent > 0 || s.Resent > 0 {
		fmt.Fprintf(w, "sent from the outbox: %d rows that had waited, %d batches that the backup lacks\n", s.Sent, s.Resent)
	}
	if s.Unnamed > 0 {
		fmt.Fprintf(w, "%d runs came back without their names, perhaps in part: replay their captures again (schema verify names them)\n", s.Unnamed)
	}
}

// Drain sends the rows that wait in the outboxes, and sends acknowledged rows again that the
// server has lost, as after a restore from a backup: each such row is newer than the backup, or
// in it. It waits while the server is unreachable.
func (s *Store) Drain(ctx context.Context) (Drained, error) {
	if err := s.Flush(ctx); err != nil {
		return Drained{}, err
	}
	var done Drained
	for _, d := range s.deliveries {
		if err := d.awaitVerified(ctx); err != nil {
			return done, err
		}
		d.mu.Lock()
		done.Sent += d.sent.Rows
		done.Resent += d.resent
		d.mu.Unlock()
	}
	if done == (Drained{}) {
		return done, nil
	}
	var err error
	done.Unnamed, err = s.unnamedRuns(ctx)
	return done, err
}

// awaitVerified waits until all kept batches were verified.
func (d *delivery) awaitVerified(ctx context.Context) error {
	for {
		d.mu.Lock()
		changed, checked := d.changed, d.checked
		d.mu.Unlock()
		if checked {
			return nil
		}
		if err := d.await(ctx, changed); err != nil {
			return err
		}
	}
}

// reverify verifies the kept batches.
func (d *delivery) reverify(ctx context.Context) {
	d.outage = !d.verify(ctx)
	if !d.outage {
		d.note(func() { d.checked = true })
	}
}

// unnamedRuns counts runs that have rows and no entry.
func (s *Store) unnamedRuns(ctx context.Context) (uint64, error) {
	parts := ""
	for g := range numResolutionTables {
		if g > 0 {
			parts += " UNION DISTINCT "
		}
		parts += fmt.Sprintf("SELECT DISTINCT producer, incarnation, config_epoch FROM %s.%s", s.database, resolutionTableAt(g).table())
	}
	query := fmt.Sprintf("SELECT count() FROM (%s) WHERE (producer, incarnation, config_epoch) NOT IN (SELECT producer, incarnation, epoch FROM %s.runs)", parts, s.database)
	var n uint64
	err := s.query(ctx, s.migrator, "read runs", query, func(rows driver.Rows) error { return rows.Scan(&n) })
	return n, err
}

// DiscardOutbox deletes all records in the outboxes, and returns the number of waiting rows that
// no server has. Call it before Migrate and before the first write: both start sending, and after
// them it fails.
func (s *Store) DiscardOutbox() (uint64, error) {
	lost := uint64(0)
	for _, d := range s.deliveries {
		if d.started.Load() {
			return lost, errors.New("discard outbox: its rows are being sent already")
		}
		waiting := d.log.Stats().Waiting.Weight
		if err := d.log.Clear(); err != nil {
			return lost, err
		}
		lost += waiting
	}
	return lost, nil
}
