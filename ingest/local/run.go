package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Run processes frames until ctx ends. It then takes the frames captured so far, closes all
// windows and hands them to the journal within Config.Drain. It also ends when all sources have
// ended, and on an error of a source or the journal, after handing over the frames of the other
// taps as far as possible.
func (p *Pipeline) Run(ctx context.Context) error {
	defer close(p.ended)
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	if err := p.begin(life, &running); err != nil {
		return err
	}
	err := p.serve(ctx, life, &running)
	drain, cancel := context.WithTimeout(life, p.cfg.Drain)
	defer cancel()
	return errors.Join(err, p.finish(drain))
}

// begin starts a worker for each ring of the plan.
func (p *Pipeline) begin(ctx context.Context, running *sync.WaitGroup) error {
	var rings []*Ring
	for i := range p.plan.Rings {
		rings = append(rings, &p.plan.Rings[i])
	}
	return p.startAll(ctx, running, rings, nil)
}

// startAll starts a worker for each ring; leaving workers had some of the rings before. After an
// error it closes the sources of the rings that it has not started.
func (p *Pipeline) startAll(ctx context.Context, running *sync.WaitGroup, rings []*Ring, leaving []*worker) error {
	incarnation := p.incarnation()
	for i, t := range rings {
		if err := p.start(ctx, running, t, incarnation, firstFrame(t, rings, leaving)); err != nil {
			return errors.Join(fmt.Errorf("taps: tap %q: %w", t.Name, err), closeSources(rings[i:]))
		}
	}
	return nil
}

// start makes a worker and runs it.
func (p *Pipeline) start(ctx context.Context, running *sync.WaitGroup, t *Ring, incarnation uint64, from int64) error {
	w, err := p.newWorker(t, incarnation)
	if err != nil {
		return err
	}
	w.from = from
	if err := w.beginCounts(ctx); err != nil {
		return err
	}
	p.workers = append(p.workers, w)
	running.Go(func() { w.run(ctx) })
	return nil
}

// serve makes rounds and reloads until ctx ends, all sources have ended or an error occurs. The
// first round is made at once, so that even a process that is killed early leaves marks.
func (p *Pipeline) serve(ctx, life context.Context, running *sync.WaitGroup) error {
	p.round = time.NewTimer(p.cfg.Interval)
	defer p.round.Stop()
	if err := p.barrier(life); err != nil {
		return err
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-p.round.C:
			err = p.barrier(life)
		case <-p.closed:
			p.hasten()
		case r := <-p.reloads:
			err = p.reload(life, running, &r)
		case e := <-p.events:
			if err = p.handle(e); e.full {
				p.count(func(st *Stats) { st.Full++ })
				err = p.barrier(life)
			}
		}
		if err != nil {
			return err
		}
		if p.allEnded() {
			return nil
		}
	}
}

// handle processes an event of a worker, and returns its error.
func (p *Pipeline) handle(e event) error {
	e.w.ended = e.w.ended || e.ended || e.gone
	if e.w.gone = e.gone; e.gone {
		p.left = append(p.left, e.w.saved...)
	}
	return e.err
}

// allEnded reports whether there are taps and all of them have ended.
func (p *Pipeline) allEnded() bool {
	for _, w := range p.workers {
		if !w.ended {
			return false
		}
	}
	return len(p.workers) > 0
}

// runs returns the running worker of a ring, nil if there is none.
func runs(workers []*worker, k ringID) *worker {
	for _, w := range workers {
		if w.ringID == k && !w.leaving && !w.gone {
			return w
		}
	}
	return nil
}

// finish ends all workers and commits everything that they held. Workers have half of the drain
// time for it.
func (p *Pipeline) finish(ctx context.Context) error {
	for _, w := range p.workers {
		w.leave(p.cfg.Drain / 2)
	}
	p.finishing = true
	for len(p.workers) > 0 {
		for _, w := range p.workers {
			w.late = false // nothing is left to do but wait
		}
		if err := errors.Join(p.barrier(ctx), ctx.Err()); err != nil {
			return fmt.Errorf("hand over the remaining rows: %w", err)
		}
	}
	return nil
}

// leave makes the next command the last one.
func (w *worker) leave(within time.Duration) {
	w.leaving, w.next.end, w.next.within = true, true, within
}

// marks returns the marks of all rings, sorted by name and ring.
func (p *Pipeline) marks() []Mark {
	list := slices.Clone(p.left)
	for _, w := range p.workers {
		list = append(list, w.saved...)
	}
	slices.SortFunc(list, func(a, b Mark) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Ring, b.Ring))
	})
	return list
}
