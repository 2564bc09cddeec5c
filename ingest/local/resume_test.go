package local_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/ingest/local"
)

// TestKilledEarly: marks exist as soon as a pipeline runs, and say that nothing was processed
// before the first frame; the next process has a higher incarnation, whatever the clock shows.
func TestKilledEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(t)
		life := func(silent bool) []local.Mark {
			a := tick()
			a.silent.Store(silent)
			cfg := config(j)
			cfg.Interval, cfg.After = 4*time.Second, j.after()
			before := time.Now()
			var hours atomic.Int64 // how far the clock was set back
			hours.Store(int64(j.commits))
			cfg.Now = func() time.Time { return time.Now().Add(-time.Duration(hours.Load()) * time.Hour) }
			p, err := local.New(cfg, tapsPlan(t, tapOf("a", 0, a)))
			if err != nil {
				t.Fatal(err)
			}
			commits, last := j.commits, 1
			if !silent {
				last = 2
			}
			killed := errors.New("killed")
			j.onCommit = func() error {
				if j.commits == commits+last {
					return killed
				}
				hours.Store(int64(j.commits + 1))
				return nil
			}
			ctx, stop := context.WithCancel(t.Context())
			wait := start(ctx, t, p)
			time.Sleep(cfg.Interval / 100)
			j.mu.Lock()
			if j.commits != commits+1 {
				t.Errorf("%d rounds at the beginning", j.commits-commits)
			}
			j.mu.Unlock()
			time.Sleep(time.Duration(last-1) * 5 * cfg.Interval / 4)
			stop()
			if err := wait(); !errors.Is(err, killed) {
				t.Fatalf("ended with %v after %s", err, time.Since(before))
			}
			j.held = nil
			return j.marks()
		}
		first := life(false)[0]
		if first.At == 0 || first.Closed {
			t.Fatalf("mark %+v", first)
		}
		again := life(true)[0]
		if again.Source.Incarnation <= first.Source.Incarnation || again.Source.Producer != first.Source.Producer {
			t.Errorf("mark %+v after %+v", again, first)
		}
	})
}
