package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// DefaultTrimEvery is how often RunTrim looks at the disk.
const DefaultTrimEvery = 10 * time.Minute

// TrimStats counts what RunTrim did since the store was opened.
type TrimStats struct {
	Passes     uint64 // started, but for one that was interrupted
	Failures   uint64 // passes that failed or could not make enough room
	Partitions uint64 // deleted, with their rows and bytes
	Rows       uint64
	Bytes      uint64
}

// trimCounts are safe for concurrent use.
type trimCounts struct {
	mu    sync.Mutex
	stats TrimStats
}

func (c *trimCounts) note(dropped []Dropped, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, context.Canceled):
	case err != nil:
		c.stats.Failures++
		fallthrough
	default:
		c.stats.Passes++
	}
	for _, d := range dropped {
		c.stats.Partitions++
		c.stats.Rows += d.Rows
		c.stats.Bytes += d.Bytes
	}
}

// TrimStats is a snapshot.
func (s *Store) TrimStats() TrimStats {
	s.trims.mu.Lock()
	defer s.trims.mu.Unlock()
	return s.trims.stats
}

// RunTrim trims the database to a disk budget in bytes, at once and then every so often,
// DefaultTrimEvery for 0, once the server is ready and until ctx ends. Without a budget it returns at once. A pass
// that fails is logged, counted and tried again by the next; RunTrim gives up only where
// no later pass could do better: the user may not (ErrDenied), or the database is not
// csigscope's (ErrForeign). Several stores may trim one database.
func (s *Store) RunTrim(ctx context.Context, budget uint64, every time.Duration) error {
	return s.runTrim(ctx, budget, every, s.Trim)
}

func (s *Store) runTrim(ctx context.Context, budget uint64, every time.Duration, trim func(context.Context, uint64) ([]Dropped, error)) error {
	if budget == 0 || s.server.wait(ctx) != nil {
		return nil
	}
	tick := time.NewTicker(defaultTo(max(every, 0), DefaultTrimEvery))
	defer tick.Stop()
	for {
		dropped, err := trim(ctx, budget)
		s.trims.note(dropped, err)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrDenied), errors.Is(err, ErrForeign):
			return err
		case err != nil:
			s.logger.Warn("the store is not trimmed to its disk budget", slog.String("error", oneLine(err)))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
