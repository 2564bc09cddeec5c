// Package retry paces repeated attempts after failures and throttles the log of the failures.
//
// It knows durations and log lines. It must never know what is attempted.
package retry

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// Backoff computes the pauses between attempts: First, then doubling up to Longest. It is for
// one goroutine at a time; a copy continues from the original's state.
type Backoff struct {
	First, Longest time.Duration
	// Jitter shortens each pause at random, by up to a half, so that clients that lose their
	// server at the same moment do not return together.
	Jitter bool

	next time.Duration // 0: First
}

// Pause returns the pause before the next attempt.
func (b *Backoff) Pause() time.Duration {
	pause := max(b.next, b.First)
	b.next = min(2*pause, b.Longest)
	if b.Jitter {
		return pause - rand.N(pause/2+1)
	}
	return pause
}

// Wait sleeps for Pause. It returns false if ctx ends.
func (b *Backoff) Wait(ctx context.Context) bool { return Sleep(ctx, b.Pause()) }

// Slow makes the next pause the longest one.
func (b *Backoff) Slow() { b.next = b.Longest }

// Reset makes the next pause the first one, after an attempt that succeeded.
func (b *Backoff) Reset() { b.next = 0 }

// Sleep waits for d or until ctx ends. It returns false if ctx has ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// DefaultEvery is the default minimum time between two lines of a LogThrottle.
const DefaultEvery = 10 * time.Second

// LogThrottle limits the log of one kind of failure: it logs the first failure, and then at
// most one in each Every, with the number of suppressed lines. The zero value is ready to use.
// It is safe for concurrent use.
type LogThrottle struct {
	Every time.Duration // 0: DefaultEvery

	mu      sync.Mutex
	last    time.Time // time of the last line
	leftOut uint64    // lines suppressed since
	failing bool      // a line was logged since the last Over
}

// Warn logs a failure as a warning, or counts it as suppressed. It reports whether it logged.
func (t *LogThrottle) Warn(logger *slog.Logger, now time.Time, message string, attrs ...slog.Attr) bool {
	return t.Log(logger, slog.LevelWarn, now, message, attrs...)
}

// Log works like Warn, at the given level.
func (t *LogThrottle) Log(logger *slog.Logger, level slog.Level, now time.Time, message string, attrs ...slog.Attr) bool {
	leftOut, due := t.due(now)
	if !due {
		return false
	}
	if leftOut > 0 {
		attrs = append(attrs, slog.Uint64("left_out", leftOut))
	}
	logger.LogAttrs(context.Background(), level, message, attrs...) //nolint:sloglint // the caller's, which is constant
	return true
}

func (t *LogThrottle) due(now time.Time) (leftOut uint64, due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	every := cmp.Or(t.Every, DefaultEvery)
	if !t.last.IsZero() && now.Sub(t.last) < every {
		t.leftOut++
		return 0, false
	}
	leftOut, t.leftOut = t.leftOut, 0
	t.last, t.failing = now, true
	return leftOut, true
}

// Over reports whether failures were logged since the last call, so that the caller can log
// their end.
func (t *LogThrottle) Over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	failing := t.failing
	t.failing = false
	return failing
}

// maxCauses is the maximum number of causes that a CauseThrottle logs apart.
const maxCauses = 8

// maxCause is the length of the beginning of an error's text that tells causes apart.
const maxCause = 256

// CauseThrottle is a LogThrottle for each cause of a lasting failure, so that it logs a new cause
// at once. Errors that differ only in digits, such as ports, have the same cause. Beyond some
// causes at a time, further ones share a throttle. The zero value is ready to use. It is safe for
// concurrent use.
type CauseThrottle struct {
	Every time.Duration // 0: DefaultEvery

	mu     sync.Mutex
	causes map[string]*LogThrottle // "": further ones
}

// Warn logs a failure as a warning, or counts it as suppressed. It reports whether it logged.
func (t *CauseThrottle) Warn(logger *slog.Logger, now time.Time, message string, err error, attrs ...slog.Attr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of(err, now).Warn(logger, now, message, append(attrs, slog.String("error", err.Error()))...)
}

// of returns the throttle of an error's cause. The caller holds mu.
func (t *CauseThrottle) of(err error, now time.Time) *LogThrottle {
	cause := err.Error()
	cause = strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, cause[:min(len(cause), maxCause)])
	every := cmp.Or(t.Every, DefaultEvery)
	if t.causes[cause] == nil {
		maps.DeleteFunc(t.causes, func(_ string, l *LogThrottle) bool { return !l.failing && now.Sub(l.last) >= every })
		if len(t.causes) >= maxCauses {
			cause = ""
		}
	}
	if t.causes == nil {
		t.causes = map[string]*LogThrottle{}
	}
	if t.causes[cause] == nil {
		t.causes[cause] = &LogThrottle{Every: every}
	}
	return t.causes[cause]
}

// Over reports whether failures were logged since the last call, so that the caller can log
// their end.
func (t *CauseThrottle) Over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	over := false
	for _, l := range t.causes {
		over = l.Over() || over
	}
	return over
}
