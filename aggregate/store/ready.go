package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/csigscope/csigscope/ingest/retry"
)

// ErrNotReady is the error of questions to a server that has not been reached yet, or that
// refuses the store.
var ErrNotReady = errors.New("the store is not ready")

// logReadyEvery is how often the log repeats why the server is not ready.
const logReadyEvery = time.Minute

// Later configures a store that opens before its server is available.
type Later struct {
	// Patience is how long Open waits at most for a server that does not answer.
	Patience time.Duration
	// Started waits for a server that this process starts itself: it returns nil once that
	// answers, or the error of a failed start. nil: the server is started elsewhere.
	Started func(context.Context) error
	// Retention is set once the schema exists, see SetRetention.
	Retention Retention
}

// readiness records whether the server can be used: it was reached, is new enough, and has this
// program's schema. The zero value is ready. It is safe for concurrent use.
type readiness struct {
	ready chan struct{} // closed when the server is ready; nil: ready when the store was opened

	mu      sync.Mutex
	failure error // of the last attempt; nil before the first has ended
}

// err returns nil when the server is ready, and otherwise the reason why not.
func (r *readiness) err() error {
	if r.ready == nil {
		return nil
	}
	select {
	case <-r.ready:
		return nil
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil {
		return fmt.Errorf("%w: the server has not answered yet", ErrNotReady)
	}
	return fmt.Errorf("%w: %w", ErrNotReady, r.failure)
}

// wait returns nil as soon as the server is ready, or the reason why not when the context ends.
func (r *readiness) wait(ctx context.Context) error {
	if r.ready == nil {
		return nil
	}
	select {
	case <-r.ready:
		return nil
	case <-ctx.Done():
		return r.err()
	}
}

// openLater accepts rows from now on, and prepares the server in the background. Its rows count
// as live: callers that do not wait for a server cannot read their rows again.
func (s *Store) openLater(ctx context.Context, o *Options) error {
	if o.Outbox == nil || o.Writer == nil {
		return errors.New("open store: expected a writer with an outbox, in which rows wait for the server")
	}
	if err := o.Later.Retention.check(); err != nil {
		return err
	}
	s.server.ready = make(chan struct{})
	if err := s.openWriter(o); err != nil {
		return err
	}
	for _, d := range s.deliveries {
		d.live.Store(true)
		d.start()
	}
	return s.prepareInBackground(ctx, o)
}

// prepareInBackground returns with the outcome of the first attempt, or when its time is up. It
// fails if the server refuses the store, but not if the server is unreachable.
func (s *Store) prepareInBackground(ctx context.Context, o *Options) error {
	preparing, stop := context.WithCancel(context.WithoutCancel(ctx))
	first, ended := make(chan error), make(chan struct{})
	s.stopPreparing = func() {
		stop()
		<-ended
	}
	patient, cancel := context.WithTimeout(ctx, o.Later.Patience)
	defer cancel()
	go func() {
		defer close(ended)
		err := s.prepareOnce(preparing, o)
		select {
		case first <- err:
			if refuses(err) {
				return // Open fails with it
			}
		case <-patient.Done():
		}
		s.prepareUntilReady(preparing, o, err)
	}()
	select {
	case err := <-first:
		if refuses(err) {
			return err
		}
	case <-patient.Done():
		if ctx.Err() != nil {
			return s.describe("open store", ctx.Err())
		}
		s.logger.Warn("the store does not answer yet: rows wait in the outbox", slog.Duration("after", o.Later.Patience))
	}
	return nil
}

// refuses reports errors of a server that do not pass with time: somebody has to fix them.
func refuses(err error) bool { return err != nil && !transient(err) }

// prepareUntilReady retries until the server is prepared or ctx ends. err is the error of the
// previous attempt.
func (s *Store) prepareUntilReady(ctx context.Context, o *Options, err error) {
	away, refused := retry.LogThrottle{Every: logReadyEvery}, retry.LogThrottle{Every: logReadyEvery}
	for backoff := newBackoff(); err != nil; err = s.prepareOnce(ctx, o) {
		why, rows := slog.String("error", oneLine(err)), slog.Uint64("rows", s.WriterStats().Waiting)
		switch {
		case ctx.Err() != nil:
			return
		case refuses(err):
			backoff.Slow()
			refused.Log(s.logger, slog.LevelError, time.Now(), "the server refuses rows until this is fixed: they wait in the outbox", rows, why)
		default:
			away.Warn(s.logger, time.Now(), "the server is away: rows wait in the outbox until it is back", rows, why)
		}
		if !backoff.Wait(ctx) {
			return
		}
	}
	if away.Over() || refused.Over() {
		s.logger.Warn("the server is ready", slog.Uint64("rows", s.WriterStats().Waiting))
	}
}

// prepareOnce tries to prepare the server, and publishes the outcome.
func (s *Store) prepareOnce(ctx context.Context, o *Options) error {
	err := s.prepare(ctx, o)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.server.mu.Lock()
	s.server.failure = err
	s.server.mu.Unlock()
	for _, d := range s.deliveries {
		d.note(func() { d.failure = err })
	}
	if err == nil {
		close(s.server.ready)
	}
	return err
}

// prepare starts the server if needed, checks it and migrates its schema.
func (s *Store) prepare(ctx context.Context, o *Options) error {
	if o.Later.Started != nil {
		if err := o.Later.Started(ctx); err != nil {
			return fmt.Errorf("start store: %w", err)
		}
	}
	if err := s.meet(ctx, o); err != nil {
		return err
	}
	if err := s.Migrate(ctx); err != nil {
		return err
	}
	return s.SetRetention(ctx, o.Later.Retention)
}
