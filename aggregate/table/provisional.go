package table

import (
	"iter"
	"math"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// Bounds of the provisional rows in a Memory, besides those of final rows. There are at most as many
// as rows of one step (see stepRows), and of short windows at most half of MemoryOptions.MaxRows.
const (
	producerShare    = 4       // a producer may have this fraction of them
	maxParts         = 1 << 14 // of all producers, in all windows
	maxProducerParts = 1 << 8  // of a producer in one window
	// closingTime is how long after a window's lateness the final rows of announcing producers may
	// still be on the way.
	closingTime = 50 * time.Millisecond
)

// provisionalRows are the rows of one part of a producer in a window.
type provisionalRows struct {
	incarnation, part uint64
	keys              []tableKey
	sums              []aggregate.Sums
}

// provisional counts the provisional rows of a Memory. The memory's lock guards it.
type provisional struct {
	rows, parts int            // of all windows
	of          map[uint64]int // rows by producer
}

// WriteProvisional implements aggregate.ProvisionalSink. The rows replace earlier ones of their
// part in the window, until the part's final block comes. They count for nothing else: neither as a
// block that is counted once nor as rows on disk.
func (m *Memory) WriteProvisional(p *aggregate.Provisional) {
	b := (*aggregate.Block)(p)
	if !m.isLive() || !m.table.takes(b) || b.Len() == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, counts := m.opts.Now(), &m.counts.Provisional
	if m.isAhead(now, b.WindowStart) {
		counts.Ahead++
		return
	}
	w := m.windows[b.WindowStart]
	if b.WindowStart < m.table.floor || now.Sub(m.closes(b.WindowStart)) >= m.presence() || w != nil && w.final || m.isClosed(b) {
		counts.Late++
		return
	}
	if !m.hasRoom(w, b) {
		counts.Crowded++
		return
	}
	s := m.table.at(b.WindowStart)
	if s == nil {
		counts.Ahead++
		return
	}
	if producer := m.count(now, b); producer != nil {
		producer.announces = true
	}
	if w = m.open(s, now); s.start < m.table.floor { // the newest window advanced, and the table forgot this one
		counts.Late++
		return
	}
	counts.Taken++
	m.writeCells(b)
	m.replace(w, b)
	m.change(w)
	if m.isAnnounced(w, now) {
		m.complete = true
	}
}

// isClosed reports whether a part wrote a block of the window or of a later one.
func (m *Memory) isClosed(b *aggregate.Block) bool {
	for start, w := range m.windows {
		if start >= b.WindowStart && w.step.has(b.Producer, b.Incarnation, b.Part()) {
			return true
		}
	}
	return false
}

// has reports whether a part of a producer wrote a block.
func (s *step[K, V]) has(producer, incarnation, part uint64) bool {
	ids, ok := s.blocks[producer]
	of := func(id blockID) bool { return id.incarnation == incarnation && id.part() == part }
	if !ok || of(ids.first) {
		return ok
	}
	for id := range ids.more {
		if of(id) {
			return true
		}
	}
	return false
}

// hasRoom reports whether rows fit into the bounds, in a window that may be nil.
func (m *Memory) hasRoom(w *openWindow, b *aggregate.Block) bool {
	added := b.Len()
	parts := 0
	if w != nil {
		for _, r := range w.provisional[b.Producer] {
			if parts++; r.incarnation == b.Incarnation && r.part == b.Part() {
				added -= len(r.keys)
				parts--
			}
		}
	}
	most := m.table.stepRows()
	if m.seconds != nil { // many windows wait for their blocks
		most = m.table.bounds.Rows / 2
	}
	return m.early.rows+added <= most && m.early.of[b.Producer]+added <= max(most/producerShare, 1) &&
		m.early.parts < maxParts && parts < maxProducerParts
}

// replace stores rows and drops earlier ones of their part.
func (m *Memory) replace(w *openWindow, b *aggregate.Block) {
	r := provisionalRows{
		incarnation: b.Incarnation, part: b.Part(), keys: make([]tableKey, b.Len()), sums: make([]aggregate.Sums, b.Len()),
	}
	for i := range b.Len() {
		r.keys[i], r.sums[i] = tableKey{b.Cell(i), aggregate.LocationID(b.Location[i])}, b.Sums(i)
	}
	if w.provisional == nil {
		w.provisional = make(map[uint64][]provisionalRows)
	}
	m.drop(w, b.Producer, func(o *provisionalRows) bool { return o.incarnation == r.incarnation && o.part == r.part })
	w.provisional[b.Producer] = append(w.provisional[b.Producer], r)
	m.early.rows += len(r.keys)
	m.early.of[b.Producer] += len(r.keys)
	m.early.parts++
}

// drop removes a producer's rows in a window, and returns the number of their parts.
func (m *Memory) drop(w *openWindow, producer uint64, of func(*provisionalRows) bool) (parts int) {
	list := w.provisional[producer]
	rows := 0
	kept := slices.DeleteFunc(list, func(r provisionalRows) bool {
		if !of(&r) {
			return false
		}
		rows += len(r.keys)
		parts++
		return true
	})
	if w.provisional[producer] = kept; len(kept) == 0 {
		delete(w.provisional, producer)
	}
	m.early.rows -= rows
	m.early.parts -= parts
	if m.early.of[producer] -= rows; m.early.of[producer] == 0 {
		delete(m.early.of, producer)
	}
	return parts
}

// dropAll removes all provisional rows of a window.
func (m *Memory) dropAll(w *openWindow) (parts int) {
	for producer := range w.provisional {
		parts += m.drop(w, producer, func(*provisionalRows) bool { return true })
	}
	return parts
}

// ended removes the provisional rows that a block replaces: those of its part, of its incarnation
// and earlier ones. A part closes its windows in order, so rows of earlier windows wait for a block
// that was lost.
func (m *Memory) ended(b *aggregate.Block) {
	for start, w := range m.windows {
		if start > b.WindowStart || w.provisional[b.Producer] == nil {
			continue
		}
		if start == b.WindowStart && b.More {
			m.shrink(w, b)
			continue
		}
		if m.drop(w, b.Producer, func(r *provisionalRows) bool { return r.incarnation <= b.Incarnation && r.part == b.Part() }) > 0 {
			w.changed = true
		}
	}
}

// shrink removes the provisional rows that a block replaces if further blocks of its part follow. Rows of a key in several encodings
// come in the same order as they were announced.
func (m *Memory) shrink(w *openWindow, b *aggregate.Block) {
	for i := range w.provisional[b.Producer] {
		r := &w.provisional[b.Producer][i]
		if r.incarnation > b.Incarnation || r.part != b.Part() {
			continue
		}
		final := make(map[tableKey]int, b.Len())
		for i := range b.Len() {
			final[tableKey{b.Cell(i), aggregate.LocationID(b.Location[i])}]++
		}
		kept := 0
		for j, k := range r.keys {
			if final[k] > 0 {
				final[k]--
				continue
			}
			r.keys[kept], r.sums[kept] = k, r.sums[j]
			kept++
		}
		m.early.rows -= len(r.keys) - kept
		m.early.of[b.Producer] -= len(r.keys) - kept
		r.keys, r.sums = r.keys[:kept], r.sums[:kept]
	}
}

// isAnnounced reports, once, that no present producer is lacking.
func (m *Memory) isAnnounced(w *openWindow, now time.Time) bool {
	if w.announced || len(w.step.blocks)+len(w.provisional) < m.present { // most calls: some producer has no rows
		return false
	}
	for range m.lacking(w, now) {
		return false
	}
	w.announced = true
	return true
}

// producers returns the number of producers with rows in the window.
func (w *openWindow) producers() int {
	n := len(w.step.blocks)
	for id := range w.provisional {
		if _, final := w.step.blocks[id]; !final {
			n++
		}
	}
	return n
}

// lacking yields the present producers with more blocks of a window and, until it is final, those without rows in it, or
// with fewer parts than in one of the last windows: the previous one may lack the same part.
func (m *Memory) lacking(w *openWindow, now time.Time) iter.Seq2[uint64, *producer] {
	var before []*openWindow
	for n := range int64(presentWindows) {
		if b := m.windows[w.step.start-(n+1)*int64(m.opts.Resolution)]; b != nil {
			before = append(before, b)
		}
	}
	return func(yield func(uint64, *producer) bool) {
		for id, p := range m.producers {
			if !m.isPresent(p, now) {
				continue
			}
			parts := w.parts(id, p)
			lacks := w.hasMore(id, p) || !w.final && (parts == 0 || slices.ContainsFunc(before, func(b *openWindow) bool { return parts < b.parts(id, p) }))
			if lacks && !yield(id, p) {
				return
			}
		}
	}
}

// hasMore reports whether a producer wrote blocks of the window, but not the last one.
func (w *openWindow) hasMore(id uint64, p *producer) bool {
	_, wrote := w.step.blocks[id]
	return wrote && p.closed < w.step.start
}

// parts returns the number of parts of a producer that have blocks or provisional rows in the window. Of a producer
// that never announces rows each block counts: it may send a window in several, such as batches of decoded tags.
func (w *openWindow) parts(id uint64, p *producer) int {
	ids, ok := w.step.blocks[id]
	if ok && !p.announces {
		return ids.len()
	}
	var most [16]uint64
	list := most[:0]
	for i := range w.provisional[id] {
		list = append(list, w.provisional[id][i].part)
	}
	if ok {
		list = append(list, ids.first.part())
		for id := range ids.more { // late packets make further blocks of a part
			list = append(list, id.part())
		}
	}
	slices.Sort(list)
	return len(slices.Compact(list))
}

// rows returns the final and the provisional rows of a window. Later changes do not affect them.
func (m *Memory) rows(w *openWindow) Rows {
	most := m.table.stepRows()
	if len(w.provisional) == 0 {
		return Rows{rows: w.step.share(), most: most}
	}
	t := newTableSteps(Bounds{Rows: most})
	s := &tableStep{rows: w.step.rows.clone()}
	t.list, t.held = append(t.list, s), len(s.rows.list)
	for _, parts := range w.provisional {
		for i := range parts {
			for j, k := range parts[i].keys {
				t.add(s, k, &parts[i].sums[j])
			}
		}
	}
	return Rows{rows: s.rows, most: most}
}

// lastWritten returns Memory.written after the last block of a window; provisional and lost rows are never
// on disk.
func (w *openWindow) lastWritten() uint64 {
	if len(w.provisional) > 0 || w.lost {
		return math.MaxUint64
	}
	return w.last
}

// closes returns the end of the lateness of a window that starts at start, Unix ns.
func (m *Memory) closes(start int64) time.Time {
	return time.Unix(0, start).Add(m.opts.Resolution + m.opts.Lateness)
}

// becomesFinal reports, once, that a window has no provisional rows left and no present producer
// has more rows. It waits for presence() after its lateness, then drops the rows of
// producers that never closed it. It waits for these producers again once they close windows in time.
func (m *Memory) becomesFinal(w *openWindow, now time.Time) bool {
	if w.final {
		return false
	}
	closed := now.Sub(m.closes(w.step.start))
	if m.isLive() && closed < closingTime && len(w.step.blocks) == 0 { // a producer may be back
		return false
	}
	if m.isLive() && closed < m.presence() && (m.awaits(w, now, closed < closingTime) || m.isOwed(w, closed < closingTime)) {
		return false
	}
	for id, parts := range w.provisional {
		if p := m.producers[id]; p != nil && slices.ContainsFunc(parts, func(r provisionalRows) bool { return r.incarnation == p.run }) {
			p.owes = true
		}
	}
	m.counts.Provisional.Expired += uint64(m.dropAll(w))
	w.final = true
	return true
}

// isOwed reports whether a window waits for the block that ends its provisional rows.
func (m *Memory) isOwed(w *openWindow, open bool) bool {
	for id := range w.provisional {
		if p := m.producers[id]; open || p != nil && !p.owes {
			return true
		}
	}
	return false
}

// awaits reports whether a present producer may have rows of a window without having announced any:
// any producer until the window closes, and one that never announces rows, or has more blocks, until it writes the last
// block of this window or a later one. No producer has to have rows of short windows.
func (m *Memory) awaits(w *openWindow, now time.Time, open bool) bool {
	if m.seconds != nil {
		return open
	}
	for id, p := range m.producers {
		if m.isPresent(p, now) && p.closed < w.step.start && (open || !p.announces || w.hasMore(id, p)) {
			return true
		}
	}
	return false
}

// nextFinal returns the time at which a window may become final without a write; false if all shown
// ones are final. The caller holds mu.
func (m *Memory) nextFinal(now time.Time) (at time.Time, ok bool) {
	for _, s := range m.table.list[:m.table.upToNewest()] {
		w := m.windows[s.start]
		if w.final || w.changed { // a revision of changed ones comes soon
			continue
		}
		next := m.closes(s.start).Add(closingTime)
		if !next.After(now) {
			next = m.closes(s.start).Add(m.presence())
		}
		if !ok || next.Before(at) {
			at, ok = next, true
		}
	}
	return at, ok
}
