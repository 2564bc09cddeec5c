package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// checkTimeout is the time limit of each readiness check.
const checkTimeout = 5 * time.Second

// Health reports whether the process is alive (its loops turn) and whether it is ready (it
// could take work now). It is safe for concurrent use.
type Health struct {
	now func() time.Duration // since newHealth: the system clock may be set

	mu       sync.Mutex
	beats    []*Beat
	checks   []check
	draining atomic.Bool
}

type check struct {
	name  string
	ready func(context.Context) error
}

// newHealth returns the Health of a process that is alive and ready.
func newHealth(now func() time.Time) *Health {
	began := now()
	return &Health{now: func() time.Duration { return now().Sub(began) }}
}

// Beat is the heartbeat of one loop.
type Beat struct {
	name     string
	patience time.Duration
	last     atomic.Int64 // ns since newHealth; below 0 after End
	now      func() time.Duration
}

// Watch starts to observe a loop, which has to call Turn at least once per patience.
func (h *Health) Watch(name string, patience time.Duration) *Beat {
	b := &Beat{name: name, patience: patience, now: h.now}
	b.Turn()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beats = append(h.beats, b)
	return b
}

// Turn reports that the loop turns.
func (b *Beat) Turn() { b.last.Store(int64(b.now())) }

// End reports that the loop has ended normally.
func (b *Beat) End() { b.last.Store(-1) }

// Require makes the process ready only while ready returns nil.
func (h *Health) Require(name string, ready func(context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, check{name, ready})
}

// Drain reports that the process is ending: alive but not ready.
func (h *Health) Drain() { h.draining.Store(true) }

// Alive returns nil while all loops turn, and otherwise names the stuck ones.
func (h *Health) Alive() error {
	h.mu.Lock()
	beats := slices.Clone(h.beats)
	h.mu.Unlock()
	var stuck []error
	at := h.now()
	for _, b := range beats {
		last := time.Duration(b.last.Load())
		if last < 0 {
			continue
		}
		if quiet := at - last; quiet > b.patience {
			stuck = append(stuck, fmt.Errorf("%s: no progress for %s, expected every %s", b.name, quiet.Round(time.Millisecond), b.patience))
		}
	}
	return errors.Join(stuck...)
}

// Ready returns nil if the process could take work now, and otherwise names the missing
// conditions.
func (h *Health) Ready(ctx context.Context) error {
	if h.draining.Load() {
		return errors.New("shutting down: takes no more work")
	}
	h.mu.Lock()
	checks := slices.Clone(h.checks)
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	missing := make([]error, len(checks))
	var group sync.WaitGroup
	for i, c := range checks {
		group.Go(func() {
			if err := c.ready(ctx); err != nil {
				missing[i] = fmt.Errorf("%s: %w", c.name, err)
			}
		})
	}
	group.Wait()
	return cmp.Or(errors.Join(missing...), h.Alive())
}

// handle answers 200 and "ok", or 503 and the errors, one per line.
func handle(state func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if err := state(r.Context()); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, err)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
