package remote

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/csigscope/csigscope/ingest/retry"
)

// errClosed is the error for requests after the end of Run.
var errClosed = errors.New("collector is ending")

// group does one action for all goroutines that wait for it, such as a group commit. It holds
// only the items of goroutines that still wait: one that leaves before its round begins takes
// its item along.
type group[T any] struct {
	do    func(context.Context, []T) error
	every time.Duration // minimum time between two rounds
	most  time.Duration // time limit of a round

	wake chan struct{}
	mu   sync.Mutex
	next *round[T]
	over bool
}

// round is a set of items processed together.
type round[T any] struct {
	items []*waiter[T]
	done  chan struct{} // closed when err is set
	err   error
}

type waiter[T any] struct {
	item T
	left bool
}

func newGroup[T any](every, most time.Duration, do func(context.Context, []T) error) *group[T] {
	return &group[T]{do: do, every: every, most: most, wake: make(chan struct{}, 1)}
}

// wait adds item to the next round and returns the round's error, or the context's.
func (g *group[T]) wait(ctx context.Context, item T) error {
	g.mu.Lock()
	if g.over {
		g.mu.Unlock()
		return errClosed
	}
	if g.next == nil {
		g.next = &round[T]{done: make(chan struct{})}
	}
	r := g.next
	w := &waiter[T]{item: item}
	r.items = append(r.items, w)
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		g.leave(r, w)
		return ctx.Err()
	}
}

// leave removes an item from a round that has not begun.
func (g *group[T]) leave(r *round[T], w *waiter[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.left = true; r == g.next {
		r.items = slices.DeleteFunc(r.items, func(w *waiter[T]) bool { return w.left })
	}
}

// run executes rounds until the context ends; remaining waiters then get an error.
func (g *group[T]) run(ctx context.Context) {
	defer g.end()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.wake:
		}
		began := time.Now()
		r := g.take()
		if r == nil {
			continue
		}
		r.err = g.round(ctx, r)
		close(r.done)
		if !retry.Sleep(ctx, g.every-time.Since(began)) {
			return
		}
	}
}

// round executes one round within the time limit.
func (g *group[T]) round(ctx context.Context, r *round[T]) error {
	ctx, cancel := context.WithTimeout(ctx, g.most)
	defer cancel()
	items := make([]T, len(r.items))
	for i, w := range r.items {
		items[i] = w.item
	}
	return g.do(ctx, items)
}

// take returns the next round, nil if nobody waits.
func (g *group[T]) take() *round[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.next
	g.next = nil
	if r != nil && len(r.items) == 0 {
		return nil
	}
	return r
}

func (g *group[T]) end() {
	g.mu.Lock()
	g.over = true
	g.mu.Unlock()
	if r := g.take(); r != nil {
		r.err = errClosed
		close(r.done)
	}
}
