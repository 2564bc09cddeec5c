package local_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/ingest/local"
)

// TestKilledEarly: there is a checkpoint as soon as a pipeline runs, and one that was
// killed before its first frame goes on from where the one before it was.
func TestKilledEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(t)
		var lost []local.State
		life := func(resolution time.Duration, silent bool) {
			a := tick()
			a.silent.Store(silent)
			cfg := config(j)
			cfg.Interval = 4 * time.Second
			cfg.Lost = func(s *local.State) { lost = append(lost, *s) }
			plan := tapsPlan(t, tapOf("a", 0, a))
			plan.Resolutions = []time.Duration{resolution, time.Minute}
			p, err := local.New(cfg, plan, j.states())
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
				return nil
			}
			ctx, stop := contextWithStop(t)
			wait := start(ctx, t, p)
			time.Sleep(cfg.Interval / 100)
			j.mu.Lock()
			if j.commits != commits+1 {
				t.Errorf("%d checkpoints at the beginning", j.commits-commits)
			}
			j.mu.Unlock()
			time.Sleep(time.Duration(last-1) * 5 * cfg.Interval / 4)
			stop()
			if err := wait(); !errors.Is(err, killed) {
				t.Fatalf("ended with %v", err)
			}
			j.held = nil
		}
		life(time.Second, false)
		first := j.states()[0]
		if first.At == 0 || len(lost) != 0 {
			t.Fatalf("state at %d, %d lost", first.At, len(lost))
		}
		life(time.Second, true)
		// Whether a silent source was asked before the checkpoint, and so has come further, is open.
		again := j.states()[0]
		if again.At < first.At || again.Source != first.Source || len(lost) != 0 {
			t.Errorf("state at %d of %+v after one at %d of %+v, %d lost", again.At, again.Source, first.At, first.Source, len(lost))
		}
		life(500*time.Millisecond, true)
		if len(lost) != 1 || lost[0].At != again.At || lost[0].Source != first.Source {
			t.Errorf("under other settings %d lost, want the state at %d of %+v", len(lost), again.At, first.Source)
		}
	})
}
