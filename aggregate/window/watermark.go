package window

import (
	"context"
	"math"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
)

// maxQuarantine is the number of observations far ahead of the watermark that have to agree before
// they are accepted.
const maxQuarantine = 64

// watermark is the tap's time: the latest accepted time, and the observations in quarantine.
//
// A time far ahead of the watermark is either a gap in the capture, and then nothing may be lost,
// or a wrong timestamp, and then it must not close every open window and make everything after it
// late. Later observations decide, so such observations wait: they are accepted once there are
// maxQuarantine of them, once time comes near them, or at Flush if nothing contradicted them. An
// observation from long before them contradicts them, and they are rejected: time goes back only at a Restart.
// For the same reason, the very first observation waits for the second.
type watermark struct {
	now     int64
	started bool
	waiting []decode.Observation // at most maxQuarantine

	// Observations with from <= time < to belong to the window in the slot and change nothing else;
	// the range is empty if there is no such window.
	from, to int64
	slot     uint32
	nextDue  int64 // when the next open window of any level closes

	maxAhead, horizon int64
	limit             int64 // later observations are rejected
}

// init resets the watermark for a new capture.
func (c *watermark) init(cfg *Config) {
	waiting := c.waiting[:0]
	if waiting == nil {
		waiting = make([]decode.Observation, 0, maxQuarantine)
	}
	*c = watermark{
		waiting: waiting, nextDue: math.MaxInt64,
		maxAhead: int64(cfg.MaxAhead), horizon: int64(cfg.Horizon), limit: maxTime,
	}
}

// leave makes every observation go through assignWindow.
func (c *watermark) leave() { c.from, c.to = 0, 0 }

// enter lets observations of the window take the fast path.
func (c *watermark) enter(w *window) {
	if w.delta || len(c.waiting) > 0 {
		c.leave()
		return
	}
	c.from, c.to, c.slot = w.start, min(w.end, c.nextDue, c.now+c.maxAhead+1, c.limit+1), w.slot
}

// assignWindow finds the window of an observation with a valid time, and counts it there if it is
// accepted.
func (s *Shard) assignWindow(ctx context.Context, i int) error {
	c, o := &s.clock, &s.batch[i]
	if c.from <= o.TimeNS && o.TimeNS < c.to {
		c.now = max(c.now, o.TimeNS)
		s.enqueue(i, i+1, c.slot)
		return nil
	}
	if o.TimeNS > c.limit {
		s.counts.Rejected[aggregate.RejectFuture] += s.cfg.Weight
		return nil
	}
	if !c.started {
		return s.start(ctx, i)
	}
	if o.TimeNS-c.now > c.maxAhead {
		return s.quarantine(ctx, o)
	}
	if len(c.waiting) == 0 {
		return s.accept(ctx, i)
	}
	s.contradict(o.TimeNS)
	if err := s.accept(ctx, i); err != nil {
		return err
	}
	return s.release(ctx)
}

// start decides at the second observation whether to accept the first.
func (s *Shard) start(ctx context.Context, i int) error {
	c, o := &s.clock, &s.batch[i]
	if len(c.waiting) == 0 {
		c.waiting = append(c.waiting, *o)
		return nil
	}
	c.started = true
	if c.waiting[0].TimeNS-o.TimeNS > c.maxAhead {
		c.now = o.TimeNS
		return s.accept(ctx, i)
	}
	c.now = c.waiting[0].TimeNS
	if err := s.release(ctx); err != nil {
		return err
	}
	return s.assignWindow(ctx, i)
}

// quarantine holds an observation that is far ahead.
func (s *Shard) quarantine(ctx context.Context, o *decode.Observation) error {
	c := &s.clock
	s.contradict(o.TimeNS)
	c.waiting = append(c.waiting, *o)
	c.leave()
	if len(c.waiting) == maxQuarantine {
		return s.release(ctx)
	}
	return nil
}

// contradict rejects the waiting observations that are far ahead of the time.
func (s *Shard) contradict(ns int64) {
	c := &s.clock
	before := len(c.waiting)
	c.waiting = slices.DeleteFunc(c.waiting, func(o decode.Observation) bool { return o.TimeNS-ns > c.maxAhead })
	s.counts.Rejected[aggregate.RejectFuture] += uint64(before-len(c.waiting)) * s.cfg.Weight
}

// release accepts the waiting observations.
func (s *Shard) release(ctx context.Context) error {
	s.apply()
	batch := s.batch
	s.batch, s.clock.waiting = s.clock.waiting, s.clock.waiting[:0]
	for i := range s.batch {
		if err := s.accept(ctx, i); err != nil {
			return err
		}
	}
	s.apply()
	s.flushWatched() // before the next waiting observations replace these
	s.batch = batch
	return nil
}

// accept accepts the observation's time: it moves the watermark, closes due windows, and counts the
// observation unless it is too late.
func (s *Shard) accept(ctx context.Context, i int) error {
	w, err := s.windowAt(ctx, s.batch[i].TimeNS)
	if err != nil {
		return err
	}
	if w == nil {
		s.counts.Late += s.cfg.Weight
		return nil
	}
	s.clock.enter(w)
	s.enqueue(i, i+1, w.slot)
	return nil
}

// windowAt moves the watermark to a time, closes due windows, and returns the finest window of the time; nil
// if the time is too late for one.
func (s *Shard) windowAt(ctx context.Context, ns int64) (*window, error) {
	c := &s.clock
	if err := s.advance(ctx, ns); err != nil {
		return nil, err
	}
	base := &s.levels[0]
	start := base.floor(ns)
	w := base.find(start)
	if (w == nil || w.delta) && c.now >= base.dueAt(start) {
		if c.now-ns > c.horizon {
			return nil, nil
		}
		if w == nil {
			var err error
			if w, err = s.reopen(ctx, 0, start, c.now); err != nil {
				return nil, err
			}
		}
	}
	if w == nil {
		w = base.begin(start, base.dueAt(start), false)
	}
	c.nextDue = min(c.nextDue, w.due)
	return w, nil
}

// advance moves the watermark to the time, never back, and closes due windows.
func (s *Shard) advance(ctx context.Context, ns int64) error {
	c := &s.clock
	if ns <= c.now {
		return nil
	}
	if ns >= c.nextDue {
		if err := s.closeDue(ctx, ns); err != nil {
			return err
		}
	}
	c.now = ns
	return nil
}

// RejectAfter rejects observations after a time (Unix ns), until the next call: for live taps,
// whose clock may be ahead of the host's. Reset ends that.
func (s *Shard) RejectAfter(ns int64) {
	c := &s.clock
	if ns = min(ns, maxTime); ns < c.limit {
		c.leave()
	}
	c.limit = ns
}

// AdvanceTo moves the watermark of an idle tap to a time (Unix ns, by the clock of the tap's
// timestamps) and closes the windows that are due by then. It does nothing before the first
// observation.
func (s *Shard) AdvanceTo(ctx context.Context, ns int64) error {
	if s.err != nil {
		return s.err
	}
	c := &s.clock
	ns = min(ns, maxTime)
	if !c.started && len(c.waiting) == 0 {
		return nil
	}
	if len(c.waiting) > 0 && c.waiting[0].TimeNS-ns <= c.maxAhead {
		if !c.started {
			c.now = c.waiting[0].TimeNS
		}
		s.contradict(ns) // those after it may still be wrong
		if err := s.release(ctx); err != nil {
			return err
		}
	}
	c.started = true
	if err := s.advance(ctx, ns); err != nil {
		return err
	}
	c.leave()
	s.apply()
	return nil
}
