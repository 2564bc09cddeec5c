package table

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// State holds everything at one revision. It never changes, apart from its Memo: when windows
// become durable, another State of the same revision replaces it.
type State struct {
	Epoch      uint64 // of the memory: revisions of different epochs are not comparable
	Revision   uint64 // 0 before the first window and the first expected producer
	Resolution time.Duration
	Published  time.Time
	// Windows are ascending. Those of a memory with a clock follow each other without a gap;
	// otherwise, windows without observations are left out.
	Windows  []*Window
	Coverage *Coverage
	Memo     *Memo

	log      []change
	durable  uint64 // Memory.durable
	standing *standing
	next     chan struct{}
}

// change holds the changes of a revision.
type change struct {
	state   *State
	windows []*Window
	rows    int // held by this revision alone; windows with the same rows and other verdicts count with their cells
}

// Newest returns the last window, nil if there is none.
func (s *State) Newest() *Window {
	if len(s.Windows) == 0 {
		return nil
	}
	return s.Windows[len(s.Windows)-1]
}

// Last returns the windows within the time of the last n windows.
func (s *State) Last(n int) []*Window {
	newest := s.Newest()
	if newest == nil {
		return nil
	}
	from, _ := slices.BinarySearchFunc(s.Windows, newest.Start.Add(-time.Duration(n-1)*s.Resolution), func(w *Window, at time.Time) int { return w.Start.Compare(at) })
	return s.Windows[from:]
}

// Old returns the cells whose rows in the windows, which belong to the state, are too old to
// describe the present: for Rows.Without and Flows. It is nil if there are none.
func (s *State) Old(windows []*Window) map[aggregate.CellKey]bool {
	if len(windows) == 0 || windows[0].Start.UnixNano() >= s.Coverage.current {
		return nil
	}
	old := s.Coverage.old()
	if s.Resolution >= aggregate.LiveResolution || old == nil {
		return old
	}
	// A short window has rows of a cell before the 1 s window that covers it.
	old = maps.Clone(old)
	for _, w := range windows {
		for i := range w.Rows.rows.cells {
			if w.Start.UnixNano() >= s.Coverage.current {
				delete(old, w.Rows.rows.cells[i].cell)
			}
		}
	}
	return old
}

// Parts returns the windows, which are the state's last ones, as parts of their sum: each cell uses the kind
// of observations that it uses in all of them. Old tags do not count beside reflections that are not old.
// A window whose cells use these kinds anyway is its own part.
func (s *State) Parts(windows []*Window) []*Window {
	type key struct{ windows int }
	list, _ := s.Memo.Get(key{len(windows)}, func() any { return parts(windows, s.Old(windows)) }).([]*Window)
	return list
}

func parts(windows []*Window, old map[aggregate.CellKey]bool) []*Window {
	var tagged, reflected bool
	for _, w := range windows {
		for i := range w.Rows.rows.cells {
			reflects := w.Rows.rows.cells[i].cell.Kind == decode.Reflection
			tagged, reflected = tagged || !reflects, reflected || reflects
		}
	}
	if !tagged || !reflected {
		return windows
	}
	seen := make(map[aggregate.CellKey]bool, 2*len(windows[len(windows)-1].Rows.rows.cells))
	for _, w := range windows {
		for i := range w.Rows.rows.cells {
			seen[w.Rows.rows.cells[i].cell] = true
		}
	}
	list := make([]*Window, len(windows))
	for n, w := range windows {
		list[n] = w
		same, mask := true, make([]byte, len(w.Rows.rows.cells))
		for i := range w.Rows.rows.cells {
			k := w.Rows.rows.cells[i].cell
			tags, reflections := k, k
			tags.Kind, reflections.Kind = decode.Tag, decode.Reflection
			uses := seen[tags] && (!old[tags] || !seen[reflections] || old[reflections]) // tags
			if uses == (k.Kind != decode.Reflection) {
				mask[i] = 1
			}
			same = same && w.Rows.takes(i) == (mask[i] == 1)
		}
		if !same {
			list[n] = w.part(string(mask))
		}
	}
	return list
}

// Durable reports whether all rows of the windows, which belong to the state, are on disk.
func (s *State) Durable(windows []*Window) bool {
	return !slices.ContainsFunc(windows, func(w *Window) bool { return w.last > s.durable })
}

// Final reports whether all of the windows are final.
func Final(windows []*Window) bool {
	return !slices.ContainsFunc(windows, func(w *Window) bool { return !w.Final })
}

// At returns the State of an earlier revision, if it is still available.
func (s *State) At(revision uint64) (*State, bool) {
	if revision == s.Revision {
		return s, true
	}
	for _, c := range s.log {
		if c.state.Revision == revision {
			at := *c.state
			at.durable = s.durable
			return &at, true
		}
	}
	return nil, false
}

// Merge adds up windows, at least one.
func Merge(windows []*Window) Rows {
	rows := sum(windows, func(w *Window) Rows { return w.Rows })
	if len(windows) > 1 {
		rows.judged = mergedJudgement(windows, rows.rows)
	}
	return rows
}

// Signals returns the signals that have values in any of the windows, ascending.
func (s *State) Signals() []csig.Signal {
	list, _ := s.Memo.Get("signals", func() any {
		var all []csig.Signal
		for _, w := range s.Windows {
			all = append(all, w.Signals()...)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}).([]csig.Signal)
	return list
}

// Window is one window that has ended. It never changes: final rows, which replace provisional
// ones, and later deltas make another Window with the same start.
type Window struct {
	Start, End time.Time
	Revision   uint64    // in which watchers last got it: its rows or the verdicts on its cells changed
	Producers  int       // number that wrote this window
	Coverage   *Coverage // as of that revision
	// Final says that the memory waits for no more rows: every present producer closed the window, or the
	// wait is over. Later packets may still change it.
	Final bool
	// Durable says whether all of its rows were on disk when it was published; State.Durable
	// reports whether they are now.
	Durable bool
	Rows    Rows
	Memo    *Memo

	lacking        map[uint64]*producer // those that may still have rows
	last           uint64               // Memory.written after its last block
	flows          *flowRows
	flowsForgotten bool
}

// Completeness returns the share of the expected producers that wrote the window.
func (w *Window) Completeness() float64 {
	if w.Coverage.Expected == 0 {
		return 0
	}
	return min(float64(w.Producers)/float64(w.Coverage.Expected), 1)
}

// Lacks reports whether a present producer may still have rows of the window.
func (w *Window) Lacks() bool { return len(w.lacking) > 0 }

// LacksRowsOf reports whether such a producer has recently written the cell.
func (w *Window) LacksRowsOf(k aggregate.CellKey) bool { return w.Coverage.isWrittenBy(k, w.lacking) }

// Signals returns the signals that have values, ascending.
func (w *Window) Signals() []csig.Signal {
	list, _ := w.Memo.Get("signals", func() any { return w.Rows.Signals() }).([]csig.Signal)
	return list
}

// Cells returns the cells of the window's rows, with modes at locations. They belong to the window.
func (w *Window) Cells(s csig.Signal) []aggregate.CellStats {
	type key csig.Signal
	list, _ := w.Memo.Get(key(s), func() any { return w.Rows.Cells(s, nil) }).([]aggregate.CellStats)
	return list
}

// Locations returns the locations of the window's rows, as in Rows.Locations. They belong to the
// window.
func (w *Window) Locations(s csig.Signal) []aggregate.LocationStats {
	type key csig.Signal
	list, _ := w.Memo.Get(key(s), func() any { return w.Rows.Locations(s, nil) }).([]aggregate.LocationStats)
	return list
}

// Kinds identifies the kind of observations that each cell of a window from State.Parts uses. It is
// empty for a window whose cells choose it themselves.
func (w *Window) Kinds() string { return w.Rows.kinds }

// part returns the window as a part in which the cells of the mask count. It keeps the last such part.
func (w *Window) part(mask string) *Window {
	last, _ := w.Memo.Get("part", func() any { return new(atomic.Pointer[Window]) }).(*atomic.Pointer[Window])
	if part := last.Load(); part != nil && part.Rows.kinds == mask {
		return part
	}
	part := *w
	part.Rows.kinds, part.Memo = mask, newMemo()
	last.Store(&part)
	return &part
}

// warm computes the cells that most clients need, in advance.
func (w *Window) warm() {
	for _, s := range w.Signals() {
		w.Cells(s)
	}
}

// Wait waits for a revision after the given one, until ctx ends or the memory's epoch differs. It
// always returns the latest State, and whether it is later.
func (m *Memory) Wait(ctx context.Context, epoch, after uint64) (*State, bool) {
	for {
		s := m.State()
		if s.Epoch != epoch || s.Revision > after {
			return s, true
		}
		select {
		case <-s.next:
		case <-ctx.Done():
			return s, false
		}
	}
}

// maxMemo bounds the values of a Memo.
const maxMemo = 128

// Memo caches values computed from immutable data, each computed once. It is safe for concurrent
// use.
type Memo struct {
	mu   sync.Mutex
	made map[any]func() any
}

// newMemo makes an empty Memo.
func newMemo() *Memo { return &Memo{made: make(map[any]func() any)} }

// Get returns the value of the key, and calls make for it the first time. Past a bound it calls
// make each time.
func (m *Memo) Get(key any, make func() any) any {
	m.mu.Lock()
	get, ok := m.made[key]
	if !ok {
		get = sync.OnceValue(make)
		if len(m.made) < maxMemo {
			m.made[key] = get
		}
	}
	m.mu.Unlock()
	return get()
}

// Step is the next event of a Watcher.
type Step struct {
	Kind  StepKind
	State *State
	// Before is the state of the revision before a Changed step, nil if it is not available.
	Before *State
	// Windows belong to a Changed or Durable step. Missed is the number of skipped revisions in a
	// Lagging or Gap step of the same epoch.
	Windows []*Window
	Missed  uint64
}

// StepKind is the kind of a Step.
type StepKind uint8

// The kinds. A Snapshot follows Lagging and Gap.
const (
	Snapshot StepKind = iota // everything, at the state's revision
	Changed                  // new or changed windows
	Lagging                  // the watcher was too slow, and missed revisions
	Gap                      // the watcher resumes from a revision that is not available, or of another epoch
	// Durable is for windows of an earlier step that are on disk now. A window that changes again
	// before that comes with its later rows. After Resume the first Durable step has all windows
	// that are on disk.
	Durable
)

// Watcher follows the revisions of a Memory, at its own speed: it holds a revision, no state and no
// queue, so that a slow watcher costs the memory nothing. It serves one goroutine.
type Watcher struct {
	memory   *Memory
	epoch    uint64
	revision uint64
	durable  uint64 // Memory.durable of the last Snapshot or Durable step
	lost     *Step  // a Gap or Lagging step that comes next, without its state
	restarts bool   // a Snapshot comes next, after lost
	maxLag   int
}

// Watch follows the memory, beginning with a snapshot. A watcher that is more than maxLag revisions
// behind has to start again. maxLag is below MemoryOptions.Log; 0 is the largest possible one.
func (m *Memory) Watch(maxLag int) *Watcher {
	return &Watcher{memory: m, maxLag: m.lag(maxLag), restarts: true}
}

// Resume follows the memory from a revision on: with a Gap and a snapshot if that is not available.
func (m *Memory) Resume(maxLag int, epoch, revision uint64) *Watcher {
	w := &Watcher{memory: m, maxLag: m.lag(maxLag), epoch: epoch, revision: revision}
	s := m.State()
	_, known := s.At(revision)
	if s.Epoch == epoch && known && s.Revision-revision <= uint64(w.maxLag) {
		return w
	}
	w.lost, w.restarts = &Step{Kind: Gap}, true
	if s.Epoch == epoch && revision < s.Revision {
		w.lost.Missed = s.Revision - revision
	}
	return w
}

func (m *Memory) lag(n int) int {
	if n <= 0 || n >= m.opts.Log {
		return m.opts.Log - 1
	}
	return n
}

// Lose makes the watcher start again: a Lagging step comes next. Call it after a Changed step whose
// windows the reader did not keep, if the memory has dropped them.
func (w *Watcher) Lose() {
	w.lag(w.memory.State().Revision - (w.revision - 1))
}

func (w *Watcher) lag(behind uint64) {
	w.lost, w.restarts = &Step{Kind: Lagging, Missed: behind}, true
}

// Next waits for the next step, until ctx ends.
func (w *Watcher) Next(ctx context.Context) (Step, error) {
	for {
		s := w.memory.State()
		if s.Epoch != w.epoch && !w.restarts {
			w.lost, w.restarts = &Step{Kind: Gap}, true
		}
		switch {
		case w.lost != nil:
			step := *w.lost
			w.lost, step.State = nil, s
			return step, nil
		case w.restarts:
			w.restarts, w.epoch, w.revision, w.durable = false, s.Epoch, s.Revision, s.durable
			return Step{Kind: Snapshot, State: s}, nil
		case s.Revision != w.revision:
			if step, ok := w.changed(s); ok {
				return step, nil
			}
			continue
		}
		if list := w.becameDurable(s); len(list) > 0 {
			return Step{Kind: Durable, State: s, Windows: list}, nil
		}
		select {
		case <-s.next:
		case <-ctx.Done():
			return Step{}, ctx.Err()
		}
	}
}

// changed returns the step after the watcher's revision; not ok if it has to start again.
func (w *Watcher) changed(s *State) (step Step, ok bool) {
	behind := s.Revision - w.revision
	if behind > uint64(w.maxLag) || behind > uint64(len(s.log)) {
		w.lag(behind)
		return Step{}, false
	}
	at := len(s.log) - int(behind)
	step = Step{Kind: Changed, State: s.log[at].state, Windows: s.log[at].windows}
	if at > 0 {
		step.Before = s.log[at-1].state
	}
	w.revision = step.State.Revision
	return step, true
}

// becameDurable returns the windows, all of which the watcher knows, that reached the disk since
// the last call.
func (w *Watcher) becameDurable(s *State) (list []*Window) {
	for _, window := range s.Windows {
		if !window.Durable && window.last > w.durable && window.last <= s.durable {
			list = append(list, window)
		}
	}
	w.durable = s.durable
	return list
}
