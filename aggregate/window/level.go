package window

import (
	"math"
	"slices"

	"github.com/csigscope/csigscope/aggregate/flow"
)

// maxDeltas bounds the reopened windows of a level: past it, the one that has been open longest is
// closed first.
const maxDeltas = 64

// level holds the open windows of one resolution.
type level struct {
	res, lateness int64
	live          bool      // live views keep its windows, which so have provisional rows
	announced     int64     // windows that ended by then have had provisional rows
	first         int64     // start of the window that was opened first, -1 if none was
	open          []*window // by start
	all           []*window // by slot
	free          []*window
	refs          []entryRef // by series
	owner         *window    // refs locate all of its entries; nil for none
	gen           uint32
	keys          *keyCache // caches entries of the finest level, nil elsewhere
	deltas        int
	flowBudget    int
	touched       uint32 // keeps prefetching reads alive
}

// entryRef is the window and entry in which a series was counted last. It saves a look-up in the
// window's index for folds and for keys that are new in a window; a window that is open alone needs
// no index.
type entryRef struct {
	gen, entry uint32
}

// refer makes room for the entryRefs of n series, at most one more than before.
func (l *level) refer(n int) {
	if n > len(l.refs) {
		l.refs = extend(l.refs)
		l.refs[n-1] = entryRef{}
	}
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
	w.start, w.end, w.gen = start, start+l.res, l.nextGen()
	l.owner = w
	return w
}

// nextGen skips 0, the generation of an entryRef that refers to nothing.
func (l *level) nextGen() uint32 {
	l.gen++
	if l.gen == 0 {
		clear(l.refs)
		l.owner = nil
		if l.keys != nil {
			l.keys.clear()
		}
		l.gen = 1
	}
	return l.gen
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

// entry returns the current entry of the series in the window.
func (l *level) entry(w *window, id uint32, s *series) uint32 {
	ref := &l.refs[id]
	if ref.gen == w.gen {
		return ref.entry
	}
	if w == l.owner {
		*ref = entryRef{w.gen, w.add(id, s)}
		return ref.entry
	}
	l.owner = nil
	slot, found := w.indexed().at(id)
	if !found {
		*slot = w.add(id, s)
	}
	*ref = entryRef{w.gen, *slot}
	return *slot
}

// seal starts a new entry for the series' next observations.
func (l *level) seal(w *window, id uint32, s *series) uint32 {
	if w != l.owner {
		l.owner = nil
	}
	l.refs[id] = entryRef{w.gen, w.add(id, s)}
	return l.refs[id].entry
}

// forgetKeys makes keys look up their entries in the window again.
func (l *level) forgetKeys(w *window) {
	w.gen, l.owner = l.nextGen(), nil
}

// fold adds the fine window to the window w of this level, without its flows.
func (l *level) fold(w, fine *window, t *seriesTable) {
	for i := range fine.compact {
		if i%touchAhead == 0 {
			l.touched |= l.touch(w, fine.compact[i:min(i+touchAhead, len(fine.compact))])
		}
		e := &fine.compact[i]
		to := l.entry(w, e.series, &t.list[e.series])
		if !w.fits(to, fine, uint32(i)) {
			to = l.seal(w, e.series, &t.list[e.series])
		}
		if !w.merge(to, fine, uint32(i)) {
			l.seal(w, e.series, &t.list[e.series])
		}
	}
	for i := range fine.wide {
		e := &fine.wide[i]
		to := l.entry(w, e.series, &t.list[e.series])
		if w.wide[to].count > math.MaxUint32-1-e.count {
			to = l.seal(w, e.series, &t.list[e.series])
		}
		w.wide[to].merge(e)
		w.dist.merge(to, &fine.dist, uint32(i))
	}
}

// touch prefetches the existing entries of window w into which entries of a finer one will be
// folded.
func (l *level) touch(w *window, fine []compactEntry) (touched uint32) {
	for i := range fine {
		if ref := l.refs[fine[i].series]; ref.gen == w.gen {
			touched |= w.compact[ref.entry].used
		}
	}
	return touched
}

func (l *level) bytes() uint64 {
	n := uint64(cap(l.refs)) * 8
	for _, w := range l.all {
		n += w.bytes()
	}
	return n
}

// renumber gives new numbers below n to the series, all of which are in open windows.
func (l *level) renumber(seeds *flow.Seeds, renumbered []uint32, t *seriesTable) {
	l.refs, l.owner = make([]entryRef, len(t.list)), nil
	for _, w := range l.open {
		w.renumber(renumbered)
		w.flows.Renumber(seeds, renumbered, t.cellOf)
	}
}
