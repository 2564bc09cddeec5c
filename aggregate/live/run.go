package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// Run takes frames until ctx ends, then what was captured by then, closes all windows and
// hands them to the journal, for which it has Config.Drain. It also ends when no source
// will have another frame. An error of a source or the journal ends it too, after what the other
// taps captured was handed over as far as that is possible.
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

// begin starts a worker for each ring of the plan, and closes the windows of states whose
// ring is not there any more.
func (p *Pipeline) begin(ctx context.Context, running *sync.WaitGroup) error {
	states := make(map[key]State, len(p.restore))
	for _, s := range p.restore {
		states[key{s.Name, s.Ring}] = s
		p.last = max(p.last, s.Source.Incarnation)
	}
	p.restore = nil
	fresh := p.incarnation()
	for i := range p.plan.Taps {
		t := &p.plan.Taps[i]
		s, found := states[t.key()]
		delete(states, t.key())
		if err := p.start(ctx, running, t, s, found, fresh, 0); err != nil {
			return err
		}
	}
	for _, s := range states {
		p.closeLeft(ctx, s)
	}
	return nil
}

// start makes a worker and lets it run, from the state if it was found and fits the plan.
func (p *Pipeline) start(ctx context.Context, running *sync.WaitGroup, t *Tap, s State, found bool, fresh uint64, from int64) error {
	source := aggregate.Source{Producer: Producer(p.cfg.Instance, t.Name), Incarnation: fresh}
	var w *worker
	var err error
	if found {
		source.Incarnation = s.Source.Incarnation
		if w, err = p.newWorker(&p.plan, t, source, s.Data); err != nil {
			p.lost(&s, err)
			source.Incarnation, w = fresh, nil
		} else {
			w.saved = s
		}
	}
	if w == nil {
		if w, err = p.newWorker(&p.plan, t, source, nil); err != nil {
			return fmt.Errorf("live: tap %q: %w", t.Name, err)
		}
	}
	w.before = p.ring(t.key())
	w.from = from
	p.workers = append(p.workers, w)
	running.Go(func() { w.run(ctx) })
	return nil
}

// closeLeft closes the windows of a state that no ring goes on from.
func (p *Pipeline) closeLeft(ctx context.Context, s State) {
	t := Tap{Name: s.Name, Ring: s.Ring, Tap: s.Tap}
	w, err := p.newWorker(&p.plan, &t, s.Source, s.Data)
	if err == nil {
		err = w.lane.Shard().Flush(ctx)
	}
	if err != nil {
		p.lost(&s, err)
		return
	}
	left := w.stats()
	left.Ended = true
	p.count(func(st *Stats) { st.set(&left) })
	p.keep(w.hold.take())
}

// lost tells of a state that cannot be gone on from: what its windows held is missing.
func (p *Pipeline) lost(s *State, err error) {
	p.count(func(st *Stats) { st.LostStates++ })
	p.cfg.Logger.Error("windows that were open in the last checkpoint are lost", slog.String("tap", s.Name),
		slog.Int("ring", s.Ring), slog.String("error", err.Error()))
}

// serve makes checkpoints and reloads until ctx ends, all sources have ended or something
// fails.
func (p *Pipeline) serve(ctx, life context.Context, running *sync.WaitGroup) error {
	ticker := time.NewTicker(p.cfg.Interval)
	defer ticker.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			err = p.barrier(life)
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

// handle notes what a worker tells, and fails where it has failed.
func (p *Pipeline) handle(e event) error {
	e.w.ended = e.w.ended || e.ended || e.gone
	if e.w.gone = e.gone; e.gone && e.w.saved.Data != nil {
		p.left = append(p.left, e.w.saved)
	}
	return e.err
}

// allEnded tells whether there are taps, and no frame will come from any.
func (p *Pipeline) allEnded() bool {
	for _, w := range p.workers {
		if !w.ended {
			return false
		}
	}
	return len(p.workers) > 0
}

// runs is the worker of a ring, nil if there is none.
func runs(workers []*worker, k key) *worker {
	for _, w := range workers {
		if w.key == k && !w.leaving && !w.gone {
			return w
		}
	}
	return nil
}

// finish ends all workers and hands over all that they held.
func (p *Pipeline) finish(ctx context.Context) error {
	for _, w := range p.workers {
		w.leave()
	}
	p.finishing = true
	for len(p.workers) > 0 {
		for _, w := range p.workers {
			w.late = false // there is nothing left but to wait
		}
		if err := errors.Join(p.barrier(ctx), ctx.Err()); err != nil {
			return fmt.Errorf("hand over what is left: %w", err)
		}
	}
	return nil
}

// leave makes the next order the last one.
func (w *worker) leave() { w.leaving, w.next.end = true, true }

// states are those of all rings, by name and ring.
func (p *Pipeline) states() []State {
	list := slices.Clone(p.left)
	for _, w := range p.workers {
		if w.saved.Data != nil {
			list = append(list, w.saved)
		}
	}
	slices.SortFunc(list, func(a, b State) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Ring, b.Ring))
	})
	return list
}
