package window

import (
	"context"
	"fmt"
	"time"
)

// minDropDeadAt is the number of series below which dead ones are not dropped.
const minDropDeadAt = 4096

// Flush accepts the observations in quarantine and closes every window, as at the end of a capture.
// The shard can continue: rows that it writes for the same windows later add up with the earlier
// ones.
func (s *Shard) Flush(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	c := &s.clock
	if !c.started && len(c.waiting) > 0 {
		c.started = true
		c.now = c.waiting[0].TimeNS
	}
	if err := s.release(ctx); err != nil {
		return err
	}
	s.apply()
	s.flushing = true
	defer func() { s.flushing = false }()
	for i := range s.levels {
		for len(s.levels[i].open) > 0 {
			if err := s.close(ctx, i, s.levels[i].open[0], c.now); err != nil {
				return err
			}
		}
	}
	s.updateWatermark()
	return nil
}

// Suspend closes every window, as Flush does, before another configuration or another shard goes on with the tap. Blocks of
// windows that are not due are marked, since more rows of these windows may come (aggregate.Block.More).
func (s *Shard) Suspend(ctx context.Context) error {
	s.resumes = true
	defer func() { s.resumes = false }()
	return s.Flush(ctx)
}

// Restart closes every window, as Flush does, and forgets the watermark: the tap's clock was set back, and
// observations would be late until it has caught up.
func (s *Shard) Restart(ctx context.Context) error {
	if err := s.Flush(ctx); err != nil {
		return err
	}
	limit := s.clock.limit
	s.clock.init(&s.cfg)
	s.clock.limit = limit
	s.forgetStarts()
	return nil
}

// closeDue closes the windows that are due at the time, the finest first, so that a coarse window
// includes all of its parts.
func (s *Shard) closeDue(ctx context.Context, ns int64) error {
	s.apply()
	coarse := false
	for i := range s.levels {
		l := &s.levels[i]
		for j := 0; j < len(l.open); {
			if w := l.open[j]; w.due > ns {
				j++
				continue
			}
			if err := s.close(ctx, i, l.open[j], ns); err != nil {
				return err
			}
			coarse = i == len(s.levels)-1
		}
	}
	// A series lives as long as the coarsest window in which it was counted.
	if coarse {
		s.countOpen()
		if s.series.current >= s.dropDeadAt {
			s.dropDeadSeries()
		}
	}
	s.updateWatermark()
	return nil
}

// updateWatermark updates the watermark's state about the open windows.
func (s *Shard) updateWatermark() {
	s.clock.leave()
	s.clock.nextDue = s.levels[0].nextDue()
	for i := range s.levels[1:] {
		s.clock.nextDue = min(s.clock.nextDue, s.levels[1+i].nextDue())
	}
}

// close writes the window's rows and folds it into the next coarser level. ns is the new watermark.
func (s *Shard) close(ctx context.Context, i int, w *window, ns int64) error {
	l := &s.levels[i]
	if i == 0 {
		s.account(w)
	}
	if err := s.write(ctx, l, w); err != nil {
		s.err = fmt.Errorf("write window of %s at %s: %w",
			time.Duration(l.res), time.Unix(0, w.start).UTC().Format(time.RFC3339Nano), err)
		return s.err
	}
	if i+1 < len(s.levels) {
		up := &s.levels[i+1]
		start := up.floor(w.start)
		to := up.find(start)
		if to == nil && s.clock.now < up.dueAt(start) {
			to = up.begin(start, up.dueAt(start), false)
		}
		if to == nil {
			var err error
			if to, err = s.reopen(ctx, i+1, start, ns); err != nil {
				return err
			}
		}
		to.add(&w.entries, &s.series, nil)
		s.counts.FlowsForgotten += uint64(to.flows.Merge(&w.flows))
	}
	l.end(w)
	return nil
}

// reopen begins a delta window for a closed one. It stays open for the level's lateness from ns on,
// so that late observations that come together are written together.
func (s *Shard) reopen(ctx context.Context, i int, start, ns int64) (*window, error) {
	l := &s.levels[i]
	s.counts.Deltas++
	if l.deltas >= maxDeltas {
		s.apply()
		if err := s.close(ctx, i, l.oldestDelta(), ns); err != nil {
			return nil, err
		}
		s.updateWatermark()
	}
	return l.begin(start, ns+l.lateness, true), nil
}

// account counts the observations in a closed window of the finest level.
func (s *Shard) account(w *window) {
	for entry, id := range w.eachCompact {
		s.accountEntry(id, w.total(entry))
	}
	for entry, id := range w.eachWide {
		s.accountEntry(id, w.wide[entry].count)
	}
}

func (s *Shard) accountEntry(id uint32, n uint64) {
	s.series.count(id)
	sr := &s.series.brief[id]
	n *= s.cfg.Weight
	c := &s.counts
	if sr.overflow {
		c.Overflow += n
	} else {
		c.Stored += n
	}
	c.BySignal[sr.signal] += n
	switch sr.class {
	case classUntouched:
		c.Untouched += n
	case classTrimmed:
		c.Trimmed += n
	case classRaw, classCount:
		c.Unknown += n
	}
}
