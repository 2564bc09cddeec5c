package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// barrier has each worker answer its next command and commits all answers in one round. A worker
// that does not answer in time keeps its last mark and answers at a later barrier. It returns
// errors of the journal and of workers.
func (p *Pipeline) barrier(ctx context.Context) error {
	p.began = time.Now()
	for _, w := range p.workers {
		w.ask()
	}
	failed := p.collect(ctx)
	err := errors.Join(failed, p.commit(ctx))
	p.schedule(p.cfg.Interval)
	return err
}

const (
	// gather is how long a round waits for further windows that close at the same time.
	gather = 10 * time.Millisecond
	// leastBetween is the minimum time between rounds that windows request.
	leastBetween = 50 * time.Millisecond
)

// hasten schedules a round soon, since a window has closed.
func (p *Pipeline) hasten() {
	now := time.Now()
	if at := now.Add(max(gather, leastBetween-now.Sub(p.began))); at.Before(p.due) {
		p.schedule(at.Sub(now))
	}
}

// schedule starts the next round after a delay.
func (p *Pipeline) schedule(after time.Duration) {
	p.due = time.Now().Add(after)
	p.round.Reset(after)
}

// ask sends the worker its next command, unless one is unanswered.
func (w *worker) ask() {
	if w.asked || w.gone {
		return
	}
	w.commands <- w.next
	w.asked, w.next = true, command{}
}

// collect waits for pending answers and removes workers that have ended. It does not wait for a
// worker that was already late.
func (p *Pipeline) collect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.BarrierTimeout)
	defer cancel()
	var failed []error
	for _, w := range p.workers {
		for w.asked && !w.late && !w.gone && ctx.Err() == nil {
			select {
			case c := <-w.answers:
				p.accept(w, c)
			case e := <-p.events:
				failed = append(failed, p.handle(e))
			case <-ctx.Done():
			}
		}
		if w.asked && !w.gone {
			p.poll(w)
		}
	}
	p.workers = slices.DeleteFunc(p.workers, func(w *worker) bool {
		if w.gone {
			p.earlier.add(w.stats)
		}
		return w.gone
	})
	rings := p.earlier.with(p.workers)
	p.count(func(s *Stats) { s.Rings = rings })
	return errors.Join(failed...)
}

// poll takes an answer if it has already arrived.
func (p *Pipeline) poll(w *worker) {
	select {
	case c := <-w.answers:
		p.accept(w, c)
	default:
		w.late = true
		p.count(func(s *Stats) { s.Stalled++ })
		p.cfg.Logger.Warn("a tap did not hand over its windows in time: they are written with a later commit",
			slog.String("tap", w.name), slog.Int("ring", w.ring))
	}
}

// accept processes a worker's snapshot.
func (p *Pipeline) accept(w *worker, c *snapshot) {
	w.asked, w.late, w.gone = false, false, c.last
	w.saved, w.stats, w.through = c.marks, c.stats, c.through
	for _, b := range c.blocks {
		p.failed = errors.Join(p.failed, p.cfg.Journal.WriteBlock(context.Background(), b))
	}
	if c.last && p.finishing {
		p.left = append(p.left, w.saved...)
	}
}

// commit makes the collected blocks durable, with the latest marks.
func (p *Pipeline) commit(ctx context.Context) error {
	err := p.failed
	if err == nil {
		err = p.cfg.Journal.Commit(ctx, p.marks())
	}
	if err != nil {
		return fmt.Errorf("taps: write windows: %w", err)
	}
	at := p.cfg.Now()
	p.count(func(s *Stats) { s.Barriers++; s.LastBarrier = at })
	return nil
}
