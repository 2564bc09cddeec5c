package window

import (
	"math"

	"github.com/csigscope/csigscope/aggregate"
)

// WriteProvisional gives the sink provisional rows for each open window of aggregate.LiveResolution
// and aggregate.FineResolution that has ended by the watermark, once. It closes nothing and changes
// no count.
func (s *Shard) WriteProvisional(to aggregate.ProvisionalSink) {
	if s.err != nil {
		return
	}
	for i := range s.levels {
		l := &s.levels[i]
		if !l.live {
			continue
		}
		ended := l.floor(s.clock.now)
		for start := max(l.announced, ended-maxLateWindows*l.res, l.oldest(s.levels[:i])); start < ended; start += l.res {
			s.announce(i, start, to)
		}
		l.announced = max(l.announced, ended)
	}
}

// oldest returns the start of the level's earliest window with observations in open windows, its own
// or finer ones; math.MaxInt64 if there is none.
func (l *level) oldest(finer []level) int64 {
	start := int64(math.MaxInt64)
	if len(l.open) > 0 {
		start = l.open[0].start
	}
	for i := range finer {
		if f := &finer[i]; len(f.open) > 0 {
			start = min(start, l.floor(f.open[0].start))
		}
	}
	return start
}

// announce gives the sink the rows of a level's window, including its parts in finer windows that
// are open. It skips windows that were closed before; their deltas follow.
func (s *Shard) announce(i int, start int64, to aggregate.ProvisionalSink) {
	l := &s.levels[i]
	w := l.find(start)
	if w != nil && w.delta || w == nil && l.dueAt(start) <= s.clock.now {
		return
	}
	whole := w
	if i > 0 {
		whole = l.unused(start)
		defer l.discard(whole)
		if w != nil {
			whole.add(&w.entries, &s.series, nil)
		}
		for f := range s.levels[:i] {
			for _, fine := range s.levels[f].open {
				if l.floor(fine.start) == start {
					whole.add(&fine.entries, &s.series, nil)
				}
			}
		}
	}
	if whole == nil {
		return
	}
	s.rows.block.Reset()
	s.buildRows(l, whole)
	if b := &s.rows.block; b.Len() > 0 {
		b.Seq = s.cfg.SeqBase >> aggregate.PartShift << aggregate.PartShift
		to.WriteProvisional((*aggregate.Provisional)(b))
	}
}

// discard takes back a window that was never open.
func (l *level) discard(w *window) {
	w.reset()
	l.free = append(l.free, w)
}

// NextLive returns the next time after from at which a window that live views keep ends, or an open
// one of them closes; math.MaxInt64 without such windows. Times are Unix ns.
func (s *Shard) NextLive(from int64) int64 {
	next := int64(math.MaxInt64)
	for i := range s.levels {
		if l := &s.levels[i]; l.live {
			next = min(next, l.floor(from)+l.res, l.nextDue())
		}
	}
	return next
}
