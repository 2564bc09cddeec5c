package window

import (
	"math"
	"slices"

	"github.com/csigscope/csigscope/aggregate/flow"
)

// maxDeltas bounds the reopened windows of a level. At the bound, the one that is due first is closed
// before another is opened.
const maxDeltas = 64

// level holds the open windows of one resolution.
type level struct {
	res, lateness int64
	live          bool      // live views keep its windows, so provisional rows are written for them
	announced     int64     // provisional rows of all windows that ended by then are written
	first         int64     // start of the window that was opened first, -1 if none was
	open          []*window // by start
	all           []*window // by slot
	free          []*window
	deltas        int
	flowBudget    int
}

// window accumulates one window at one resolution.
type window struct {
	entries
	start, end int64
	due        int64 // closes when the watermark reaches it
	delta      bool  // the window was closed before
	slot       uint32
	flows      flow.Table
}

// reset empties the window.
func (w *window) reset() {
	w.entries.reset()
	w.flows.Reset()
}

// floor returns the start of the window that holds the time, which must not be negative.
func (l *level) floor(ns int64) int64 { return ns - ns%l.res }

// dueAt returns the time at which a window closes first.
func (l *level) dueAt(start int64) int64 { return start + l.res + l.lateness }

// find returns the open window with the start, or nil. It tries the newest first.
func (l *level) find(start int64) *window {
	for i := len(l.open) - 1; i >= 0; i-- {
		if w := l.open[i]; w.start <= start {
			if w.start == start {
				return w
			}
			return nil
		}
	}
	return nil
}

// begin opens a window that find did not find.
func (l *level) begin(start, due int64, delta bool) *window {
	w := l.unused(start)
	w.due, w.delta = due, delta
	if delta {
		l.deltas++
	}
	if l.first < 0 {
		l.first = start
	}
	at := len(l.open)
	for at > 0 && l.open[at-1].start > start {
		at--
	}
	if at > 0 && at == len(l.open) { // not late windows, which may be many and hold little
		w.reserve(&l.open[at-1].entries)
	}
	l.open = slices.Insert(l.open, at, w)
	return w
}

// unused returns an empty window that is not open.
func (l *level) unused(start int64) *window {
	var w *window
	if n := len(l.free); n > 0 {
		w, l.free = l.free[n-1], l.free[:n-1]
	} else {
		w = &window{slot: uint32(len(l.all)), flows: flow.Table{Budget: l.flowBudget}}
		l.all = append(l.all, w)
	}
	w.start, w.end = start, start+l.res
	return w
}

// end removes a closed window from the open ones and keeps it for reuse.
func (l *level) end(w *window) {
	if w.delta {
		l.deltas--
	}
	w.reset()
	l.open = slices.Delete(l.open, slices.Index(l.open, w), slices.Index(l.open, w)+1)
	l.free = append(l.free, w)
}

// nextDue returns the time at which the next window closes, math.MaxInt64 if none is open.
func (l *level) nextDue() int64 {
	due := int64(math.MaxInt64)
	for _, w := range l.open {
		due = min(due, w.due)
	}
	return due
}

// oldestDelta returns the delta window that is due first, or nil.
func (l *level) oldestDelta() *window {
	var oldest *window
	for _, w := range l.open {
		if w.delta && (oldest == nil || w.due < oldest.due) {
			oldest = w
		}
	}
	return oldest
}

func (l *level) bytes() (n uint64) {
	for _, w := range l.all {
		n += w.bytes() + w.flows.Bytes()
	}
	return n
}

// renumber gives the series in the open windows their new numbers.
func (l *level) renumber(seeds *flow.Seeds, renumbered []uint32, t *seriesTable) {
	for _, w := range l.open {
		w.renumber(renumbered, t)
		w.flows.Renumber(seeds, renumbered, t.cellOf)
	}
}
