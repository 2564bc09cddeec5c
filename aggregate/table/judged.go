package table

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// histories judges windows, cell by cell. A Memory's publishing lock guards it.
type histories struct {
	thresholds aggregate.Thresholds
	length     int64 // of a window, ns
	most       int   // cells
	of         map[aggregate.CellKey]*aggregate.History
	end        int64 // number of the window after the newest one
	untracked  uint64
	judged     []judgedCell                             // since the last standing
	vanished   map[aggregate.CellKey]struct{}           // cells whose newest rows were announced, and did not come
	held       map[aggregate.CellKey]aggregate.Snapshot // of the last standing
}

// judgedCell is a cell whose verdicts may have changed at the ends of all windows after this one.
type judgedCell struct {
	cell   aggregate.CellKey
	window int64 // number
}

// verdicts are the verdicts on cells at the end of a window, or of the last one of several. They never change.
type verdicts struct {
	end  int64                       // number of the window after it
	of   map[aggregate.CellKey]int32 // indexes of list
	list []cellVerdict
}

// cellVerdict holds the verdict on a cell, the number of judged windows, and the number of those at whose end the cell
// was congested. A cell without a history has the zero value.
type cellVerdict struct {
	aggregate.Snapshot
	judged, congested uint32
}

// at returns the verdict of a cell; nil if there is none.
func (v *verdicts) at(k aggregate.CellKey) *cellVerdict {
	if v == nil {
		return nil
	}
	i, ok := v.of[k]
	if !ok || v.list[i].IsZero() {
		return nil
	}
	return &v.list[i]
}

// judgement says how to judge the cells of rows: by the verdicts at the end of their last window.
// Without it, the rows are judged as one window.
type judgement struct {
	thresholds aggregate.Thresholds
	length     int64 // of a window, ns
	// windows are the verdicts at the ends of the rows' windows; of short windows, at those of the newest windows of 1 s.
	windows []*verdicts
	// seconds has the verdicts of the windows of 1 s, by which short windows are judged; nil for other windows.
	seconds *standing
}

// standing is the verdicts on all cells at a revision. It never changes.
type standing struct {
	length  int64       // of a window, ns
	windows []*verdicts // ascending
	// held are congested cells whose newest rows are not in the windows.
	held map[aggregate.CellKey]aggregate.Snapshot
	own  int // cells of copied windows, and held ones unless the revision before has the same
}

// verdict returns the verdict on a cell at the end of the newest window. The caller knows that no window that starts after
// last, Unix ns, has rows of the cell.
func (s *standing) verdict(k aggregate.CellKey, last int64) aggregate.Verdict {
	if s == nil || len(s.windows) == 0 {
		return aggregate.Verdict{}
	}
	end := s.windows[len(s.windows)-1].end
	for _, w := range slices.Backward(s.windows) {
		if (w.end-1)*s.length > last {
			continue
		}
		if v := w.at(k); v != nil {
			return v.Verdict(end, s.length)
		}
	}
	held := s.held[k]
	return held.Verdict(end, s.length)
}

// add judges the windows of a state that changed with it, and sets the verdicts at their ends.
func (h *histories) add(state *State, changed []*Window) {
	for _, w := range state.Windows {
		if n := w.Start.UnixNano() / h.length; w.Revision == state.Revision {
			h.judge(n, w)
		} else {
			h.wait(n, w, state.Coverage)
		}
	}
	maps.DeleteFunc(h.of, func(_ aggregate.CellKey, one *aggregate.History) bool { return one.End() <= h.end-aggregate.Horizon })
	for _, w := range changed {
		n, rows := w.Start.UnixNano()/h.length, w.Rows.rows
		all := &verdicts{end: n + 1, of: rows.index, list: make([]cellVerdict, len(rows.cells))}
		for i := range rows.cells {
			if one := h.of[rows.cells[i].cell]; one != nil {
				all.list[i] = h.verdict(one, n)
			}
		}
		w.Rows.judged = &judgement{thresholds: h.thresholds, length: h.length, windows: []*verdicts{all}}
	}
}

// verdict returns the verdict on a cell at the end of a window with rows of it.
func (h *histories) verdict(one *aggregate.History, n int64) cellVerdict {
	v := cellVerdict{Snapshot: one.Snapshot(n + 1)}
	if one.Get(n)&^aggregate.Loaded != aggregate.Unjudged {
		v.judged = 1
		if v.Verdict(n+1, h.length).Sustained {
			v.congested = 1
		}
	}
	return v
}

// stand returns the verdicts at the ends of all windows, after add has judged those of the revision. If the judgement of a cell
// in one of them has changed, the windows after it still have old verdicts on it. stand replaces such windows in the state by
// copies with the new verdicts, and returns the copies in which a verdict has changed for readers, as of the revision.
func (h *histories) stand(state *State) (s *standing, mended []*Window) {
	s = &standing{length: h.length}
	windows := state.Windows
	for _, w := range windows {
		s.windows = append(s.windows, w.Rows.judged.windows[0])
	}
	differs := make(map[int]bool) // by index of a copy: whether a verdict has changed for readers
	for _, c := range h.judged {
		one := h.of[c.cell]
		if one == nil {
			continue
		}
		later := sort.Search(len(windows), func(i int) bool { return s.windows[i].end-1 > c.window })
		for i := later; i < len(windows); i++ {
			differed, copied := differs[i]
			if windows[i].Revision == state.Revision && !copied { // judged with all changes
				continue
			}
			at, ok := s.windows[i].of[c.cell]
			if !ok {
				continue
			}
			end := s.windows[i].end
			was, now := s.windows[i].list[at], h.verdict(one, end-1)
			if was == now { // the next ones follow from this one and their own judgement
				break
			}
			if !copied {
				w, all := *windows[i], *s.windows[i]
				all.list = slices.Clone(all.list)
				w.Rows.judged = &judgement{thresholds: h.thresholds, length: h.length, windows: []*verdicts{&all}}
				w.Memo = newMemo()
				windows[i], s.windows[i] = &w, &all
				s.own += len(all.list)
			}
			differs[i] = differed || was.Verdict(end, h.length) != now.Verdict(end, h.length)
			s.windows[i].list[at] = now
		}
	}
	for i, w := range windows {
		if differs[i] {
			w.Revision, w.Coverage, w.Durable = state.Revision, state.Coverage, w.last <= state.durable
			mended = append(mended, w)
		}
	}
	h.judged = nil
	h.hold(s)
	return s, mended
}

// hold adds congested cells whose newest rows are not in the windows.
func (h *histories) hold(s *standing) {
	if len(s.windows) == 0 {
		return
	}
	first, end := s.windows[0].end-1, s.windows[len(s.windows)-1].end
	s.held = make(map[aggregate.CellKey]aggregate.Snapshot)
	hold := func(k aggregate.CellKey, one *aggregate.History) {
		if v := one.Snapshot(end); v.Verdict(end, h.length).Sustained {
			s.held[k] = v
		}
	}
	for k, one := range h.of {
		if one.End() <= first {
			hold(k, one)
		}
	}
	for k := range h.vanished {
		if one := h.of[k]; one != nil && one.End() > first {
			hold(k, one)
		} else {
			delete(h.vanished, k)
		}
	}
	if maps.Equal(s.held, h.held) {
		s.held = h.held
	} else {
		s.own += len(s.held)
	}
	h.held = s.held
}

// waits reports whether a judgement of window number n must not end the congestion of a cell yet: a producer that lacks
// rows of the window may see the congestion.
func (h *histories) waits(one *aggregate.History, k aggregate.CellKey, n int64, j aggregate.Judgement, by *Coverage, lacking map[uint64]*producer) bool {
	return j&^aggregate.Loaded == aggregate.Below && one.Verdict(n, h.length).Sustained && by.isWrittenBy(k, lacking)
}

// rewind forgets the judgements of windows that start after a time, Unix ns: the memory dropped them when its clock was
// set back.
func (h *histories) rewind(last int64) {
	end := last/h.length + 1
	h.end = min(h.end, end)
	for k, one := range h.of {
		if one.End() <= end {
			continue
		}
		left := &aggregate.History{}
		for n := max(end-aggregate.HistoryWindows, 0); n < end; n++ {
			if j := one.Get(n); j != aggregate.Unjudged {
				left.Set(n, j)
			}
		}
		h.of[k] = left
	}
}

// wait judges a window again for the cells whose judgements in windows before it have changed.
func (h *histories) wait(n int64, w *Window, by *Coverage) {
	if !w.Lacks() {
		return
	}
	for _, c := range h.judged {
		one := h.of[c.cell]
		if one == nil {
			continue
		}
		if j := one.Get(n); h.waits(one, c.cell, n, j, by, w.lacking) {
			one.Set(n, j&aggregate.Loaded|aggregate.Undecided)
			h.judged = append(h.judged, judgedCell{c.cell, n - 1})
		}
	}
}

// clear removes the judgements on cells that a window no longer has: their provisional rows were not followed by final ones.
func (h *histories) clear(n int64, rows *tableRows) {
	for k, one := range h.of {
		last := one.End() == n+1
		if !last && one.Get(n) == aggregate.Unjudged {
			continue
		}
		if _, ok := rows.index[k]; ok {
			continue
		}
		one.Set(n, aggregate.Unjudged)
		if last {
			h.vanished[k] = struct{}{}
		} else {
			h.judged = append(h.judged, judgedCell{k, n})
		}
	}
}

// judge judges the cells of a window.
func (h *histories) judge(n int64, w *Window) {
	rows := w.Rows.rows
	if n < h.end { // perhaps again
		h.clear(n, rows)
	}
	h.end = max(h.end, n+1)
	for i := range rows.cells {
		c := &rows.cells[i]
		one := h.of[c.cell]
		if one == nil {
			if len(h.of) >= h.most {
				h.untracked++
				continue
			}
			one = &aggregate.History{}
			h.of[c.cell] = one
		}
		var total aggregate.Sums
		for at := c.first; at >= 0; at = rows.list[at].next {
			total.Merge(&rows.list[at].value)
		}
		j := h.thresholds.Judge(total.Observations, total.Samples, total.Heavy, total.Unjudged)
		if h.waits(one, c.cell, n, j, w.Coverage, w.lacking) {
			j = j&aggregate.Loaded | aggregate.Undecided
		}
		if one.End() <= n+1 {
			delete(h.vanished, c.cell)
		} else if one.Get(n) != j {
			h.judged = append(h.judged, judgedCell{c.cell, n})
		}
		one.Set(n, j)
	}
}

// judge sets the state of a cell of the rows.
func (r Rows) judge(k aggregate.CellKey, c *aggregate.CellStats) {
	if r.judged == nil {
		c.Judge(aggregate.DefaultThresholds())
		return
	}
	for _, w := range r.judged.windows {
		if v := w.at(k); v != nil {
			c.Verdict = v.Verdict(w.end, r.judged.length)
			c.JudgedWindows += uint64(v.judged)
			c.CongestedWindows += uint64(v.congested)
		}
	}
	if r.judged.seconds == nil {
		c.Judge(r.judged.thresholds)
		return
	}
	c.Verdict = r.judged.seconds.verdict(k, math.MaxInt64)
	c.State = r.judged.thresholds.State(c.Verdict, c.Observations, c.Samples, 0, c.Observations) // by the verdict alone
}

// Verdict returns the verdict on a cell at the end of the newest window, whether or not that window has rows of it. The
// caller knows that no window that starts after last, Unix ns, has rows of the cell. If no window has any, the verdict is
// the zero value unless the cell is congested.
func (s *State) Verdict(k aggregate.CellKey, last int64) aggregate.Verdict {
	return s.standing.verdict(k, last)
}

// mergedJudgement returns the judgement of the rows of several windows.
func mergedJudgement(windows []*Window, rows *tableRows) *judgement {
	out := &judgement{}
	all := &verdicts{of: rows.index, list: make([]cellVerdict, len(rows.cells))}
	for _, w := range windows {
		of := w.Rows.judged
		if of == nil {
			return nil
		}
		out.thresholds, out.length, out.seconds = of.thresholds, of.length, of.seconds
		if out.seconds != nil {
			for _, v := range of.windows {
				at, found := slices.BinarySearchFunc(out.windows, v.end, func(o *verdicts, end int64) int { return cmp.Compare(o.end, end) })
				if !found {
					out.windows = slices.Insert(out.windows, at, v)
				}
				out.windows[at] = v
			}
			continue
		}
		all.end = of.windows[0].end
		for i := range w.Rows.rows.cells {
			at, ok := rows.index[w.Rows.rows.cells[i].cell]
			if one := &of.windows[0].list[i]; ok && !one.IsZero() {
				sum := &all.list[at]
				sum.Snapshot, sum.judged, sum.congested = one.Snapshot, sum.judged+one.judged, sum.congested+one.congested
			}
		}
	}
	if out.seconds == nil {
		out.windows = []*verdicts{all}
	}
	return out
}

// Judged judges the cells of captures by their windows of one length, in whatever order these come:
// taps that are read one after the other may see the same windows. It is an aggregate.Sink, safe
// for concurrent use.
type Judged struct {
	thresholds aggregate.Thresholds
	length     int64 // of a window, ns
	most       int   // windows of all cells together

	mu         sync.Mutex
	cells      map[aggregate.CellKey][]windowSums // ascending
	held       int
	full       bool
	first, end int64 // numbers of the first window and of the one after the last; equal without any
}

// windowSums are the sums by which a window of a cell is judged.
type windowSums struct {
	number                                 int64
	observations, samples, heavy, unjudged uint64
}

// NewJudged makes a Judged that holds at most that many windows of all cells. Past that a cell
// forgets its first window, and a cell without one is judged by its sums alone.
func NewJudged(t aggregate.Thresholds, length time.Duration, most int) *Judged {
	return &Judged{thresholds: t, length: int64(length), most: most, cells: make(map[aggregate.CellKey][]windowSums)}
}

// WriteBlock adds the block's rows, if its window has the length. It never fails.
func (j *Judged) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if b.Resolution != j.length || b.Len() == 0 {
		return nil
	}
	n := b.WindowStart / j.length
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.first == j.end {
		j.first, j.end = n, n
	}
	j.first, j.end = min(j.first, n), max(j.end, n+1)
	var of aggregate.CellKey
	var w *windowSums // of the cell
	for i := range b.Len() {
		if k := b.Cell(i); i == 0 || k != of {
			of, w = k, j.window(k, n)
		}
		if w != nil {
			w.observations, w.samples = aggregate.AddSat(w.observations, b.Observations[i]), aggregate.AddSat(w.samples, b.Samples[i])
			w.heavy, w.unjudged = aggregate.AddSat(w.heavy, b.Heavy[i]), aggregate.AddSat(w.unjudged, b.Unjudged[i])
		}
	}
	return nil
}

// window finds or makes the sums of a cell in a window. It returns nil if there is no room.
func (j *Judged) window(k aggregate.CellKey, n int64) *windowSums {
	list := j.cells[k]
	at, found := slices.BinarySearchFunc(list, n, func(w windowSums, n int64) int { return cmp.Compare(w.number, n) })
	if found {
		return &list[at]
	}
	full := j.held >= j.most
	j.full = j.full || full
	if full || len(list) == aggregate.Horizon {
		if at == 0 {
			return nil
		}
		copy(list, list[1:at])
		at--
	} else {
		list = slices.Insert(list, at, windowSums{})
		j.cells[k] = list
		j.held++
	}
	list[at] = windowSums{number: n}
	return &list[at]
}

// Full reports whether cells had to forget windows that would have counted.
func (j *Judged) Full() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.full
}

// Judge sets the judgement of rows to that at the end of the last window. The rows must be those of
// all blocks.
func (j *Judged) Judge(r Rows) Rows {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := &verdicts{end: j.end, of: r.rows.index, list: make([]cellVerdict, len(r.rows.cells))}
	for i := range r.rows.cells {
		if list := j.cells[r.rows.cells[i].cell]; len(list) > 0 {
			all.list[i] = j.verdict(list)
		}
	}
	r.judged = &judgement{thresholds: j.thresholds, length: j.length, windows: []*verdicts{all}}
	return r
}

// verdict judges the last windows of a cell. The caller holds mu.
func (j *Judged) verdict(list []windowSums) (v cellVerdict) {
	var last aggregate.History
	congested := false
	for i := range list {
		w := &list[i]
		result := j.thresholds.Judge(w.observations, w.samples, w.heavy, w.unjudged)
		last.Set(w.number, result)
		if w.number < j.end-aggregate.Horizon {
			continue
		}
		switch result &^ aggregate.Loaded {
		case aggregate.Unjudged:
			continue
		case aggregate.Onset:
			congested = true
		case aggregate.Below:
			congested = false
		}
		v.judged++
		if congested {
			v.congested++
		}
	}
	v.Snapshot = last.Snapshot(j.end)
	return v
}

// Extent returns the start of the first window and the end of the last one; both are the zero Time
// if there are none.
func (j *Judged) Extent() (from, to time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.first == j.end {
		return from, to
	}
	return time.Unix(0, j.first*j.length).UTC(), time.Unix(0, j.end*j.length).UTC()
}
