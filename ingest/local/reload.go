package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrEnded is returned by Reload after Run.
var ErrEnded = errors.New("the pipeline has ended")

// reload is a new plan for a running pipeline.
type reload struct {
	plan  *Plan
	adopt func() error
	done  chan error
}

// Reload replaces the plan of the running pipeline. If the new plan changes the meaning of rows
// (the epoch, the resolutions, the place of a tap), windows close under the old plan at a
// barrier and later frames count under the new one; each frame counts once. A tap missing from
// the new plan ends as at the end of Run; one with a Source starts from scratch.
//
// Reload rejects an invalid plan with an error and changes nothing. Once the plan is checked and before
// windows close, it calls adopt, whose error rejects the plan too; nil: nothing. It closes the sources
// that it does not start. If a source of the plan cannot start, Run ends with the error, too. Run has to
// be running.
func (p *Pipeline) Reload(ctx context.Context, plan Plan, adopt func() error) error {
	r := reload{plan: &plan, adopt: adopt, done: make(chan error, 1)}
	select {
	case p.reloads <- r:
		select {
		case err := <-r.done:
			return err
		case <-p.ended:
			return ErrEnded
		}
	case <-ctx.Done():
		return errors.Join(ctx.Err(), plan.Close())
	case <-p.ended:
		return errors.Join(ErrEnded, plan.Close())
	}
}

// Close closes the sources of a plan that was not handed to New or Reload.
func (p *Plan) Close() error {
	var begin []*Ring
	for i := range p.Rings {
		if p.Rings[i].Source != nil {
			begin = append(begin, &p.Rings[i])
		}
	}
	return closeSources(begin)
}

func closeSources(rings []*Ring) error {
	var failed []error
	for _, t := range rings {
		failed = append(failed, t.Source.Close())
	}
	return errors.Join(failed...)
}

// reload implements Reload in the coordinator. It returns an error if the pipeline fails.
func (p *Pipeline) reload(ctx context.Context, running *sync.WaitGroup, r *reload) error {
	if err := r.plan.check(p.workers); err != nil {
		r.done <- errors.Join(fmt.Errorf("taps: %w", err), r.plan.Close())
		return nil
	}
	if r.adopt != nil {
		if err := r.adopt(); err != nil {
			r.done <- errors.Join(err, r.plan.Close())
			return nil
		}
	}
	leaving, begin := p.change(r.plan)
	err := p.barrier(ctx)
	if err == nil {
		err = p.startAll(ctx, running, begin, leaving)
	} else {
		err = errors.Join(err, closeSources(begin))
	}
	p.count(func(s *Stats) { s.Reloads++ })
	r.done <- err
	return err
}

// change gives the workers a new plan for the next barrier. It returns the workers that end
// there and the rings that begin after it.
func (p *Pipeline) change(to *Plan) (leaving []*worker, begin []*Ring) {
	same := p.plan.Equal(&to.Settings)
	kept := make(map[*worker]bool)
	for i := range to.Rings {
		t := &to.Rings[i]
		if t.Source != nil {
			begin = append(begin, t)
			continue
		}
		w := runs(p.workers, t.id())
		kept[w] = true
		if !same || w.planned != t.Tap || t.Sessions != nil {
			w.next.plan, w.next.tap, w.planned = to, *t, t.Tap
		}
	}
	for _, w := range p.workers {
		if !kept[w] && !w.leaving {
			w.leave(p.cfg.BarrierTimeout * 3 / 4) // or the barrier continues without it
			leaving = append(leaving, w)
		}
	}
	p.plan = to
	return leaving, begin
}

// until returns the time up to which an ending ring has all frames; the ring that replaces it
// must not count them again. It is a frame's time, not the system clock's, since network cards
// have their own clocks.
func until(leaving []*worker, k ringID) int64 {
	for _, w := range leaving {
		if w.ringID == k && w.gone {
			return w.through + 1
		}
	}
	return 0
}
