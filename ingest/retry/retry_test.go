package retry

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestBackoff: pauses double up to the maximum and restart after a success.
func TestBackoff(t *testing.T) {
	b := Backoff{First: time.Second, Longest: 5 * time.Second}
	want := func(pauses ...time.Duration) {
		t.Helper()
		for i, pause := range pauses {
			if got := b.Pause(); got != pause*time.Second {
				t.Errorf("pause %d: %s, want %s", i, got, pause*time.Second)
			}
		}
	}
	want(1, 2, 4, 5, 5)
	b.Reset()
	want(1, 2)
	b.Slow()
	want(5, 5)
}

// TestJitter: pauses lie between half and the whole, and differ.
func TestJitter(t *testing.T) {
	b := Backoff{First: time.Second, Longest: time.Second, Jitter: true}
	seen := map[time.Duration]bool{}
	for range 100 {
		pause := b.Pause()
		if pause < time.Second/2 || pause > time.Second {
			t.Errorf("pause %s", pause)
		}
		seen[pause] = true
	}
	if len(seen) < 2 {
		t.Error("all pauses are alike")
	}
}

// TestWait: a wait takes its pause and ends with the context.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, begin := Backoff{First: time.Second, Longest: time.Minute}, time.Now()
		if !b.Wait(t.Context()) || time.Since(begin) != time.Second {
			t.Errorf("waited %s", time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if begin = time.Now(); b.Wait(ctx) || time.Since(begin) != time.Second {
			t.Errorf("waited %s beyond the end", time.Since(begin))
		}
		if Sleep(ctx, 0) || !Sleep(t.Context(), 0) {
			t.Error("no pause: the context decides")
		}
	})
}

// TestLogThrottle: failures are logged at first and then rarely, with the number of suppressed
// lines, and their end is reported once.
func TestLogThrottle(t *testing.T) {
	var log bytes.Buffer
	logger, now := slog.New(slog.NewTextHandler(&log, nil)), time.Unix(1e9, 0)
	throttle := LogThrottle{Every: time.Minute}
	if throttle.Over() {
		t.Error("an end before a failure")
	}
	for i := range 121 { // every second
		logged := throttle.Warn(logger, now.Add(time.Duration(i)*time.Second), "failed", slog.Int("at", i))
		if logged != (i%60 == 0) {
			t.Errorf("after %d s: logged %t", i, logged)
		}
	}
	if text := log.String(); strings.Count(text, "\n") != 3 || strings.Count(text, "left_out=59") != 2 || !strings.Contains(text, "at=120") {
		t.Errorf("logged:\n%s", text)
	}
	if !throttle.Over() || throttle.Over() {
		t.Error("an end is worth one line")
	}
	if throttle.Log(logger, slog.LevelError, now.Add(2*time.Minute), "failed") || throttle.Over() {
		t.Error("a failure soon after is logged, or its end would be")
	}
}

// TestCauseThrottle: a new cause is logged at once, and a known one rarely, even after an end.
// Many causes share a throttle.
func TestCauseThrottle(t *testing.T) {
	var log bytes.Buffer
	logger, now := slog.New(slog.NewTextHandler(&log, nil)), time.Unix(1e9, 0)
	throttle := CauseThrottle{Every: time.Minute}
	if throttle.Over() {
		t.Error("an end before a failure")
	}
	for i, step := range []struct {
		cause        string
		logged, over bool
	}{
		{"read from port 1: refused", true, false},
		{"read from port 23: refused", false, false},
		{"unknown token", true, true},
		{"unknown token", false, false},
		{"expired token", true, true},
	} {
		if logged := throttle.Warn(logger, now.Add(time.Duration(i)*time.Second), "failed", errors.New(step.cause)); logged != step.logged {
			t.Errorf("step %d: %s: logged %t", i, step.cause, logged)
		}
		if step.over && !throttle.Over() {
			t.Errorf("step %d: no end", i)
		}
	}
	if throttle.Over() {
		t.Error("an end is worth one line")
	}
	logged := 0
	for i := range 100 {
		if throttle.Warn(logger, now, "failed", errors.New(strings.Repeat("x", i+1))) {
			logged++
		}
	}
	if logged > maxCauses {
		t.Errorf("%d lines of 100 causes", logged)
	}
	if later := now.Add(2 * time.Minute); !throttle.Over() || !throttle.Warn(logger, later, "failed", errors.New("another")) || len(throttle.causes) != 1 {
		t.Errorf("later: %d causes", len(throttle.causes))
	}
}
