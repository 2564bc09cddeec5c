package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// ErrNotReady is the error of questions to a server that was not found yet, or that
// refuses the store.
var ErrNotReady = errors.New("the store is not ready")

// tellReadyEvery is how often the log repeats why the server is not ready.
const tellReadyEvery = time.Minute

// Later says how a store comes to a server that is away when the store is opened.
type Later struct {
	// Patience is how long Open waits at most for a server that does not answer.
	Patience time.Duration
	// Started waits for a server that this process starts itself: it returns nil once that
	// answers, or the error of a start that failed. nil: others start the server.
	Started func(context.Context) error
	// Retention is set once the schema is there, see SetRetention.
	Retention Retention
}

// readiness is whether the server can be asked and sent to: it was found, is new enough,
// and has this program's schema. The zero value is ready. It is safe for concurrent use.
type readiness struct {
	ready chan struct{} // closed when the server is ready; nil: it was when the store was opened

	mu      sync.Mutex
	failure error // of the last attempt, nil before one has ended
}

// err is nil when the server is ready, and otherwise says why it is not.
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

// wait returns nil as soon as the server is ready, or why it is not when the context ends.
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

// openLater takes rows from now on, and prepares the server in the background.
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
		d.start()
	}
	preparing, stop := context.WithCancel(context.WithoutCancel(ctx))
	first, ended := make(chan error, 1), make(chan struct{})
	s.stopPreparing = func() {
		stop()
		<-ended
	}
	go func() {
		defer close(ended)
		s.prepareUntilReady(preparing, o, first)
	}()
	return s.firstOutcome(ctx, o.Later.Patience, first)
}

// firstOutcome gives the error of a server that refuses the store at once. One that is
// away, or slow, is no error.
func (s *Store) firstOutcome(ctx context.Context, patience time.Duration, first <-chan error) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-first:
		if err != nil && !transient(err) {
			return err
		}
	case <-timer.C:
		s.logger.Warn("the server does not answer yet: rows wait in the outbox", slog.Duration("after", patience))
	case <-ctx.Done():
		return s.describe("open store", ctx.Err())
	}
	return nil
}

// prepareUntilReady prepares the server, however often that takes, until ctx ends. first
// gets the outcome of the first attempt.
func (s *Store) prepareUntilReady(ctx context.Context, o *Options, first chan<- error) {
	var told time.Time
	var refusedBefore bool
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := s.prepare(ctx, o)
		if ctx.Err() != nil {
			return
		}
		s.outcome(err)
		select {
		case first <- err:
		default:
		}
		if err == nil {
			if !told.IsZero() {
				s.logger.Warn("the server is ready", slog.Uint64("rows", s.WriterStats().Waiting))
			}
			return
		}
		wait, refused := pause, !transient(err)
		if refused {
			wait = longestPause // somebody has to mend it
		}
		if told.IsZero() || refused != refusedBefore || time.Since(told) >= tellReadyEvery {
			told, refusedBefore = time.Now(), refused
			s.tellNotReady(err, refused)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// prepare brings the server to where rows can be sent to it.
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

// outcome lets everybody see how an attempt went.
func (s *Store) outcome(err error) {
	s.server.mu.Lock()
	s.server.failure = err
	s.server.mu.Unlock()
	for _, d := range s.deliveries {
		d.note(func() { d.failure = err })
	}
	if err == nil {
		close(s.server.ready)
	}
}

// tellNotReady logs why the server is not ready.
func (s *Store) tellNotReady(err error, refused bool) {
	why, rows := slog.String("error", oneLine(err)), slog.Uint64("rows", s.WriterStats().Waiting)
	if refused {
		s.logger.Error("the server cannot take rows until this is mended: they wait in the outbox", rows, why)
		return
	}
	s.logger.Warn("the server is away: rows wait in the outbox until it comes", rows, why)
}
