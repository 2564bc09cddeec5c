package store

import (
	"context"
	"log/slog"
	"time"
)

const (
	attemptTimeout = time.Minute
	firstPause     = 100 * time.Millisecond
	longestPause   = 5 * time.Second
)

// retry repeats what the server may take later. It serves writes alone, which can be
// repeated since rows are identities.
type retry struct {
	limit   time.Duration // from the first attempt to the last
	logger  *slog.Logger
	retried func() // called before each attempt after the first; nil to ignore
}

// do calls f until it succeeds, fails for good, or time is up; it returns f's last
// error then, or the context's.
func (r retry) do(ctx context.Context, f func(context.Context) error) error {
	started, pause := time.Now(), firstPause
	for {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := f(attempt)
		cancel()
		if err == nil || ctx.Err() != nil || !transient(err) || time.Since(started)+pause > r.limit {
			return err
		}
		r.logger.Warn("write failed, trying again", slog.Duration("pause", pause), slog.String("error", oneLine(err)))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
		pause = min(2*pause, longestPause)
		if r.retried != nil {
			r.retried()
		}
	}
}
