package remote

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestGroup: many wait for one round that began after they did, and errors reach only those in
// the round.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rounds [][]int
		bad := errors.New("bad")
		g := newGroup(time.Second, 2*time.Second, func(_ context.Context, items []int) error {
			time.Sleep(300 * time.Millisecond)
			rounds = append(rounds, items)
			if len(rounds) == 2 {
				return bad
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { g.run(ctx) })
		wait := func(item int, want error, after time.Duration) {
			all.Go(func() {
				began := time.Now()
				if err := g.wait(t.Context(), item); !errors.Is(err, want) || time.Since(began) != after {
					t.Errorf("item %d: %v after %s, want %v after %s", item, err, time.Since(began), want, after)
				}
			})
		}
		wait(1, nil, 300*time.Millisecond)
		time.Sleep(100 * time.Millisecond)
		// These arrive during the first round, so they belong to the second.
		wait(2, bad, 1200*time.Millisecond)
		wait(3, bad, 1200*time.Millisecond)
		time.Sleep(1500 * time.Millisecond)
		wait(4, nil, 700*time.Millisecond)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(rounds) != 3 || len(rounds[1]) != 2 {
			t.Errorf("rounds %v", rounds)
		}
		short, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		if err := g.wait(short, 5); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want a deadline", err)
		}
		time.Sleep(time.Second)
		wait(6, nil, 300*time.Millisecond)
		time.Sleep(50 * time.Millisecond)
		wait(7, errClosed, 250*time.Millisecond)
		time.Sleep(50 * time.Millisecond)
		cancel()
		all.Wait()
		if err := g.wait(t.Context(), 8); !errors.Is(err, errClosed) {
			t.Errorf("%v, want closed", err)
		}
	})
}

// TestGroupLeaves: a caller that leaves takes its item along, and a round that does not end is
// canceled.
func TestGroupLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rounds [][]int
		g := newGroup(0, 10*time.Second, func(ctx context.Context, items []int) error {
			rounds = append(rounds, items)
			if len(rounds) == 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { g.run(ctx) })
		wait := func(item int, patience time.Duration, want error) {
			all.Go(func() {
				short, stop := context.WithTimeout(t.Context(), patience)
				defer stop()
				if err := g.wait(short, item); !errors.Is(err, want) {
					t.Errorf("item %d: %v, want %v", item, err, want)
				}
			})
			synctest.Wait()
		}
		wait(1, time.Minute, context.DeadlineExceeded)
		for n := range 5 {
			wait(2+n, time.Second, context.DeadlineExceeded)
		}
		wait(7, time.Minute, nil)
		time.Sleep(time.Minute)
		cancel()
		all.Wait()
		if len(rounds) != 2 || len(rounds[1]) != 1 || rounds[1][0] != 7 {
			t.Errorf("rounds %v, want the last one of item 7 alone", rounds)
		}
	})
}
