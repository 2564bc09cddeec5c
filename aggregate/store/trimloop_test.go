package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestRunTrimKeepsTime runs the loop on a fake clock with scripted passes.
func TestRunTrimKeepsTime(t *testing.T) {
	for name, tt := range map[string]struct {
		budget uint64
		every  time.Duration
		fail   func(pass int) error
		during time.Duration
		want   TrimStats
		end    error // RunTrim's
	}{
		"no budget":    {every: time.Minute, during: time.Hour},
		"at once":      {budget: 1, every: time.Hour, during: time.Minute, want: TrimStats{Passes: 1, Partitions: 1, Rows: 2, Bytes: 3}},
		"every minute": {budget: 1, every: time.Minute, during: time.Hour, want: TrimStats{Passes: 60, Partitions: 60, Rows: 120, Bytes: 180}},
		"by default":   {budget: 1, during: time.Hour, want: TrimStats{Passes: 6, Partitions: 6, Rows: 12, Bytes: 18}},
		"fails now and then": {
			budget: 1, every: time.Minute, during: 10 * time.Minute, want: TrimStats{Passes: 10, Failures: 2, Partitions: 10, Rows: 20, Bytes: 30},
			fail: func(pass int) error {
				return map[int]error{3: ErrUnreachable, 7: fmt.Errorf("trim: %w", ErrDisk)}[pass]
			},
		},
		"may not": {
			budget: 1, every: time.Minute, during: time.Hour, end: ErrDenied, want: TrimStats{Passes: 1, Failures: 1, Partitions: 1, Rows: 2, Bytes: 3},
			fail: func(int) error { return fmt.Errorf("trim: %w", ErrDenied) },
		},
		"interrupted": {
			budget: 1, every: time.Minute, during: time.Hour, want: TrimStats{Partitions: 1, Rows: 2, Bytes: 3},
			fail: func(int) error { time.Sleep(2 * time.Hour); return context.Canceled },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Store{logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
				ctx, cancel := context.WithTimeout(t.Context(), tt.during-time.Second)
				defer cancel()
				passes := 0
				err := s.runTrim(ctx, tt.budget, tt.every, func(_ context.Context, budget uint64) ([]Dropped, error) {
					if budget != tt.budget {
						t.Errorf("trimmed to %d, want %d", budget, tt.budget)
					}
					passes++
					var err error
					if tt.fail != nil {
						err = tt.fail(passes)
					}
					return []Dropped{{Rows: 2, Bytes: 3}}, err
				})
				if !errors.Is(err, tt.end) {
					t.Errorf("ended with %v, want %v", err, tt.end)
				}
				if got := s.TrimStats(); got != tt.want {
					t.Errorf("counted %+v, want %+v", got, tt.want)
				}
			})
		})
	}
}

// TestRunTrim trims a database that is above its budget, and again after it has grown.
func TestRunTrim(t *testing.T) {
	s := verified(t, 4)
	c, err := s.Contents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RunTrim(t.Context(), 0, time.Millisecond); err != nil || s.TrimStats() != (TrimStats{}) {
		t.Fatalf("without a budget: %v, %+v", err, s.TrimStats())
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.RunTrim(ctx, c.Bytes-1, 10*time.Millisecond) }()
	until := func(what string, holds func(TrimStats) bool) {
		t.Helper()
		for begin := time.Now(); !holds(s.TrimStats()); time.Sleep(10 * time.Millisecond) {
			if time.Since(begin) > 2*time.Minute {
				t.Fatalf("%s: %+v", what, s.TrimStats())
			}
		}
	}
	until("above the budget", func(n TrimStats) bool { return n.Partitions == 1 && n.Passes > 1 })
	// Separate blocks, so that they take additional room.
	for window := range 20 {
		if err := s.WriteBlock(t.Context(), hourOfCells(window)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	until("grown", func(n TrimStats) bool { return n.Partitions > 1 })
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	n := s.TrimStats()
	enough := readStrings(t, s, fmt.Sprintf("SELECT toString(sum(rows) >= %d) FROM csigscope.gaps FINAL WHERE reason = 'trimmed'", n.Rows))
	if n.Failures != 0 || enough[0] != "1" {
		t.Errorf("counted %+v, gaps of fewer rows", n)
	}
}
