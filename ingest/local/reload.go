package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
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
	err = errors.Join(err, closeCuts(leaving))
	if err == nil {
		err = p.startAll(ctx, running, begin, leaving)
		if err == nil && len(begin) > 0 {
			err = p.barrier(ctx) // so that rings leave marks and names even if they end early, like the first round of serve
		}
	} else {
		err = errors.Join(err, closeSources(begin))
	}
	p.count(func(s *Stats) { s.Reloads++ })
	r.done <- err
	return err
}

// change gives the workers a new plan for the next barrier. It returns the workers that end there, with those that hang
// since an earlier reload removed their tap, and the rings that begin after it.
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
	within := p.cfg.BarrierTimeout * 3 / 4 // or the barrier continues without it
	for _, w := range p.workers {
		switch {
		case w.leaving && w.cut.Load() == nil:
			leaving = append(leaving, w)
		case !w.leaving && !kept[w]:
			w.leave(within)
			leaving = append(leaving, w)
		}
	}
	p.plan = to
	p.cutTaps(leaving, begin, within/2)
	return leaving, begin
}

// A cut is the time at which a tap goes from the rings that end to those that replace them: all of them have the
// frames around it. The rings that end agree on it, so that none of them has counted a later frame. So each frame
// counts once, whatever the numbers of rings before and after.
type cut struct {
	now  func() time.Time
	wait time.Duration // for rings that do not join
	plan *Plan
	next *Ring // of the tap in the plan, with a source

	mu    sync.Mutex
	rings int           // that have not joined
	last  int64         // latest frame that any of them has counted
	ahead int64         // highest Source.Ahead of those that have counted one
	at    int64         // Unix ns, by the clock of the frames, once done is closed
	by    int64         // the same by the system clock: earlier frames were received before it
	done  chan struct{} // closed with the cut; until then, only the holder of mu uses the source of next
}

// cutTaps gives a cut to the leaving rings of each tap that continues with other rings.
func (p *Pipeline) cutTaps(leaving []*worker, begin []*Ring, wait time.Duration) {
	cuts := make(map[string]*cut)
	for _, t := range begin {
		if n := ringsOf(leaving, t.before()); n > 0 && cuts[t.before()] == nil {
			cuts[t.before()] = &cut{now: p.cfg.Now, wait: wait, plan: p.plan, next: t, rings: n, done: make(chan struct{})}
		}
	}
	for _, w := range leaving {
		if c := cuts[w.name]; c != nil {
			w.cut.Store(c)
		}
	}
}

func ringsOf(workers []*worker, tap string) (n int) {
	for _, w := range workers {
		if w.name == tap {
			n++
		}
	}
	return n
}

// join registers w, which has counted no frame after the cut, and waits until the cut is made. It returns the last
// counts of a counting source, the only ring of its tap; none if the cut was made without it.
func (c *cut) join(ctx context.Context, w *worker) (last Counts, err error) {
	if last, err = c.vote(w); err != nil {
		return last, err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
	case <-time.After(c.wait):
	}
	return last, c.close()
}

// vote counts a ring that joins; the last one makes the cut.
func (c *cut) vote(w *worker) (last Counts, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made() {
		if w.counter != nil {
			w.p.cfg.Logger.Warn("the last packets of a replaced tap are lost: it did not hand over its counts in time", slog.String("tap", w.name))
		}
		return last, nil
	}
	if ahead := w.tap.Source.Ahead(); w.last > 0 {
		if c.last == 0 {
			c.ahead = ahead
		}
		c.last, c.ahead = max(c.last, w.last), max(c.ahead, ahead)
	}
	if c.rings--; c.rings == 0 {
		return c.make(w)
	}
	return last, nil
}

// close makes the cut without the rings that have not joined, unless it is made.
func (c *cut) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made() {
		return nil
	}
	_, err := c.make(nil)
	return err
}

func (c *cut) made() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// make makes the cut. A counting source of w stops here; or, if w is nil, one of the next ring begins here.
func (c *cut) make(w *worker) (last Counts, err error) {
	defer close(c.done)
	c.at = max(c.last, c.now().UnixNano()+c.ahead)
	c.by = c.at - c.ahead
	next, _ := c.next.Source.(Counter)
	if w != nil && w.counter != nil {
		if s, is := next.(Successor); is {
			var ok bool
			if last, ok, err = s.Succeed(w.counter); ok || err != nil {
				return last, err
			}
		}
		if last, err = w.counter.Count(&w.plan.Settings, w.tap.Tap); err != nil {
			return last, err
		}
	}
	if next != nil {
		_, err = next.Count(&c.plan.Settings, c.next.Tap)
	}
	return last, err
}

// closeCuts makes the cuts that are still open: afterwards only the pipeline uses the plan's sources.
func closeCuts(leaving []*worker) (err error) {
	for _, w := range leaving {
		if c := w.cut.Load(); c != nil {
			err = errors.Join(err, c.close())
		}
	}
	return err
}

// firstFrame returns the time of the first frame of a ring: the rings that it replaces have the earlier ones. If one of
// them ended before the cut, its last frames are left to the ring with the same number, if the tap has as many rings as
// before. It is a frame's time, not the system clock's, since network cards have their own clocks.
func firstFrame(t *Ring, rings []*Ring, leaving []*worker) (from int64) {
	same := ringsOf(leaving, t.before())
	for _, r := range rings {
		if r.Name == t.Name {
			same--
		}
	}
	for _, w := range leaving {
		if w.name != t.before() {
			continue
		}
		through := w.through
		if !w.gone {
			through = w.cut.Load().at
		}
		if same == 0 && w.ring == t.Ring {
			return through + 1
		}
		from = max(from, through+1)
	}
	return from
}
