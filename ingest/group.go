package ingest

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errClosed is the error of what comes after the end of Run.
var errClosed = errors.New("collector is ending")

// group does one thing for all that wait for it, as a commit of many.
type group[T any] struct {
	do    func(context.Context, []T) error
	every time.Duration // between two rounds, at least

	wake chan struct{}
	mu   sync.Mutex
	next *round[T]
	over bool
}

// round is what is done together.
type round[T any] struct {
	items []T
	done  chan struct{} // closed when err is set
	err   error
}

func newGroup[T any](every time.Duration, do func(context.Context, []T) error) *group[T] {
	return &group[T]{do: do, every: every, wake: make(chan struct{}, 1)}
}

// wait returns what doing it gave, which began after wait did, or the context's error.
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
	r.items = append(r.items, item)
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run does rounds until the context ends; whoever still waits then gets an error.
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
		r.err = g.do(ctx, r.items)
		close(r.done)
		if !sleep(ctx, g.every-time.Since(began)) {
			return
		}
	}
}

func (g *group[T]) take() *round[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.next
	g.next = nil
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

// sleep tells whether the time passed before the context ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
