package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// Outbox describes the folder on disk in which batches wait for the server.
type Outbox struct {
	// Dir holds the outboxes of one database: one for each process that writes to it at the same
	// time. A process takes over the outboxes of earlier processes.
	Dir string
	// MaxBytes bounds each outbox, 4 GiB unless set. At the bound acknowledged batches are
	// deleted first. After that the rows of replays wait for the server; once a live run has
	// begun, flows are dropped first, then the oldest rows of the finest resolution. Both leave
	// rows in the table gaps.
	MaxBytes int64
	// Keep is how long batches are kept after the server took them, to be sent again if the
	// server loses them; 10 min unless set, negative for not at all. When a process ends, at most
	// a 16th of MaxBytes of them stays.
	Keep time.Duration
	// Interval is how long rows wait for others of the same partition, to be sent together. Rows
	// are not held back while a caller waits for all to be sent.
	Interval time.Duration

	FS  outbox.FS        // nil: the operating system's
	Now func() time.Time // nil: time.Now; may jump by any amount between processes
}

// Defaults of Outbox.
const (
	DefaultOutboxBytes = 4 << 30
	DefaultOutboxKeep  = 10 * time.Minute
)

// maxOutboxes bounds the processes that write to a database at the same time.
const maxOutboxes = 32

// claim opens all outboxes of a folder that no other process has open, at least one. It skips those
// that another user made.
func (o *Outbox) claim(logger *slog.Logger) ([]*outbox.Log, error) {
	var logs []*outbox.Log
	var denied []string
	var failure error // of the first that was denied
	for i := 1; i <= maxOutboxes; i++ {
		dir := filepath.Join(o.Dir, strconv.Itoa(i))
		if _, err := os.Stat(dir); err != nil && len(logs) > 0 {
			break
		}
		l, err := outbox.Open(o.options(dir, logger))
		switch {
		case err == nil:
			logs = append(logs, l)
		case errors.Is(err, outbox.ErrOwned):
		case errors.Is(err, fs.ErrPermission):
			denied, failure = append(denied, dir), cmp.Or(failure, err)
		default:
			err = fmt.Errorf("%w: %w", ErrOutbox, err)
			for _, l := range logs {
				err = errors.Join(err, l.Close())
			}
			return nil, err
		}
	}
	if len(logs) > 0 {
		for _, dir := range denied {
			logger.Warn("an outbox of another user is skipped, and its rows wait: give it to this user with chown -R", slog.String("outbox", dir))
		}
		return logs, nil
	}
	if failure != nil {
		return nil, fmt.Errorf("%w: %w", ErrOutbox, failure)
	}
	return nil, fmt.Errorf("open outbox %s: %w: %d commands write to this store already: end one of them, or name another folder with --outbox", o.Dir, outbox.ErrOwned, maxOutboxes)
}

func (o *Outbox) options(dir string, logger *slog.Logger) outbox.Options {
	classes := make([]outbox.Class, numClasses)
	for i := range numResolutionTables {
		classes[i].Name = className(i)
	}
	for _, few := range []int{gapsClass, tapsClass, findingsClass, newerClass, endsClass} {
		classes[few] = outbox.Class{Name: className(few), Exempt: true}
	}
	classes[flowsClass] = outbox.Class{Name: className(flowsClass), Expendable: true}
	classes[marksClass] = outbox.Class{Name: className(marksClass), Latest: true}
	classes[namesClass] = outbox.Class{Name: className(namesClass)}
	order := []int{namesClass, newerClass, minuteTable, secondTable, fineTable, gapsClass, findingsClass, flowsClass, tapsClass, endsClass}
	return outbox.Options{
		Dir: dir, Classes: classes, Order: order, FS: o.FS, Now: o.Now, Logger: logger,
		MaxBytes:   cmp.Or(o.MaxBytes, DefaultOutboxBytes),
		SegmentAge: max(cmp.Or(o.Keep, DefaultOutboxKeep)/4, time.Second),
	}
}

// openOutboxes claims the outboxes and prepares to send their records.
func (s *Store) openOutboxes(o *Outbox, to target, retry time.Duration) error {
	logs, err := o.claim(s.logger)
	if err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	for _, l := range logs {
		s.deliveries = append(s.deliveries, newDelivery(l, to, &s.server, o, retry, s.logger))
	}
	for _, d := range s.deliveries {
		d.beside = s.deliveries
	}
	return nil
}

// Marks returns the marks last committed by earlier processes, one of each of their outboxes.
// Call it before the first Commit, which replaces the marks in this process's own outbox.
func (s *Store) Marks() (list [][]byte, err error) {
	for _, d := range s.deliveries {
		e, ok, err := d.log.Latest(marksClass)
		if err != nil {
			return nil, s.describe("read marks", err)
		}
		if ok {
			list = append(list, e.Payload)
		}
	}
	return list, nil
}
