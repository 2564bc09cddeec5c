package table

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// MemoryOptions bound a Memory. Zero values take the defaults.
type MemoryOptions struct {
	Resolution time.Duration // of the blocks that are kept; default 1 s
	Windows    int           // kept at most, the newest; default 60
	// MaxRows bounds the rows of a cell and a location in all windows together, each of
	// about 200 bytes, and as many again for the log of revisions: past it, windows overflow
	// and the oldest are forgotten early, as in every sliding table. Default 1 << 20.
	MaxRows int
	// Settle is how long a revision waits at most for further blocks of the same moment, such
	// as those of other taps: no longer than until every known producer wrote the newest
	// window, as many blocks as of the one before. Default 10 ms.
	Settle time.Duration
	// Log is how many revisions a watcher may be behind before it has to start again, and
	// for how many revisions a State stays at hand. Default 32.
	Log int
	// Epoch identifies this memory among those of earlier processes. Default random.
	Epoch uint64
	Now   func() time.Time // default time.Now
}

func (o MemoryOptions) withDefaults() MemoryOptions {
	if o.Resolution <= 0 {
		o.Resolution = time.Second
	}
	if o.Windows <= 0 {
		o.Windows = 60
	}
	if o.MaxRows <= 0 {
		o.MaxRows = 1 << 20
	}
	if o.Settle <= 0 {
		o.Settle = 10 * time.Millisecond
	}
	if o.Log <= 0 {
		o.Log = 32
	}
	if o.Epoch == 0 {
		o.Epoch = rand.Uint64() | 1
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Memory keeps the last windows: a sliding table, a step a window. It is an aggregate.Sink,
// safe for concurrent use.
//
// Writers share a lock that no reader takes: readers take the State of the latest
// revision, which never changes.
type Memory struct {
	opts  MemoryOptions
	dirty chan struct{} // holds one when there is something to publish

	mu        sync.Mutex // of the fields up to durable
	table     tableSteps
	windows   map[int64]*openWindow // of the table's steps, by their start
	producers map[uint64]int64      // the newest window that each wrote
	complete  bool                  // the newest window became complete since the last revision
	old       uint64                // blocks
	written   uint64                // blocks, without old ones
	durable   uint64                // of them, the first that are on disk

	publishing sync.Mutex // held while a state is made
	state      atomic.Pointer[State]
}

// openWindow is what a Memory knows of a window beside its rows.
type openWindow struct {
	producers map[uint64]int // blocks of each
	// pending is how many blocks of each producer the window needs before it is complete: as
	// many as the window before it had. It is nil where the window waits for nobody.
	pending map[uint64]int
	last    uint64  // Memory.written after its last block
	changed bool    // since the last revision
	known   *Window // of the last revision
}

// NewMemory makes an empty Memory at revision 0.
func NewMemory(o MemoryOptions) *Memory {
	o = o.withDefaults()
	m := &Memory{
		opts: o, dirty: make(chan struct{}, 1), producers: make(map[uint64]int64), windows: make(map[int64]*openWindow),
		table: newTableSteps(Bounds{Resolution: o.Resolution, Steps: o.Windows, Rows: o.MaxRows, Sliding: true}),
	}
	m.state.Store(m.newState(0))
	return m
}

func (m *Memory) newState(revision uint64) *State {
	return &State{
		Epoch: m.opts.Epoch, Revision: revision, Resolution: m.opts.Resolution, Published: m.opts.Now(),
		next: make(chan struct{}), Memo: NewMemo(),
	}
}

// WriteBlock implements aggregate.Sink. It adds the block's rows to its window, if it is of
// the memory's resolution. It never fails and waits for no reader. Where there is a log, the
// log takes the block first: see Sync.
func (m *Memory) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if !m.table.takes(b) || b.Len() == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.table.at(b.WindowStart)
	if s == nil {
		m.old++
		return nil
	}
	w := m.open(s.start)
	m.written++
	w.last = m.written
	writeBlock(&m.table, s, b)
	m.count(w, b)
	m.forget()
	if w.becomesComplete(len(m.producers)) {
		m.complete = true
	}
	select {
	case m.dirty <- struct{}{}:
	default:
	}
	return nil
}

// Sync calls flush, which returns nil once all blocks that the log took before are on disk.
// Windows are durable then if the memory had all of their blocks before the call. Without
// Sync, no window ever is.
func (m *Memory) Sync(ctx context.Context, flush func(context.Context) error) error {
	m.mu.Lock()
	written := m.written
	m.mu.Unlock()
	if err := flush(ctx); err != nil {
		return err
	}
	m.publishing.Lock()
	defer m.publishing.Unlock()
	m.mu.Lock()
	m.durable = max(m.durable, written)
	written = m.durable
	m.mu.Unlock()
	if last := m.state.Load(); written > last.durable {
		s := *last // the same revision
		s.durable, s.next = written, make(chan struct{})
		m.state.Store(&s)
		close(last.next)
	}
	return nil
}

// maxProducers bounds the producers that completeness is computed from.
const maxProducers = 1 << 12

// open returns the window of a step in the table, a new one if need be.
func (m *Memory) open(start int64) *openWindow {
	w := m.windows[start]
	if w != nil {
		return w
	}
	w = &openWindow{producers: make(map[uint64]int)}
	m.windows[start] = w
	list := m.table.list
	if n := len(list); n > 1 && start == list[n-1].start && len(m.producers) < maxProducers {
		w.pending = maps.Clone(m.windows[list[n-2].start].producers)
	}
	return w
}

// count notes that a producer wrote a block of a window.
func (m *Memory) count(w *openWindow, b *aggregate.Block) {
	w.changed = true
	if last, known := m.producers[b.Producer]; known || len(m.producers) < maxProducers {
		w.producers[b.Producer]++
		m.producers[b.Producer] = max(last, b.WindowStart)
	}
	if want, ok := w.pending[b.Producer]; ok && w.producers[b.Producer] >= want {
		delete(w.pending, b.Producer)
	}
}

// becomesComplete reports, once, that the window has all pending blocks, and one of every
// known producer.
func (w *openWindow) becomesComplete(known int) bool {
	if w.pending == nil || len(w.pending) > 0 || len(w.producers) < known {
		return false
	}
	w.pending = nil
	return true
}

// forget drops windows that the table forgot, and producers that wrote no later one.
func (m *Memory) forget() {
	oldest := m.table.list[0].start
	if len(m.windows) > len(m.table.list) {
		maps.DeleteFunc(m.windows, func(start int64, _ *openWindow) bool { return start < oldest })
	}
	maps.DeleteFunc(m.producers, func(_ uint64, last int64) bool { return last < oldest })
}

// Run publishes a revision when windows have changed, until ctx ends.
func (m *Memory) Run(ctx context.Context) error {
	settle := time.NewTimer(0)
	defer settle.Stop()
	<-settle.C
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.dirty:
		}
		settle.Reset(m.opts.Settle)
		for over := false; !over && !m.isComplete(); {
			select {
			case <-ctx.Done():
				return nil
			case <-settle.C:
				over = true
			case <-m.dirty:
			}
		}
		m.Publish()
	}
}

func (m *Memory) isComplete() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.complete
}

// Publish makes a revision of what has changed since the last one, if anything has.
func (m *Memory) Publish() {
	// Waiting clients compute their answers themselves, at the same time.
	for _, w := range m.publish() {
		w.warm()
	}
}

// publish returns the windows of the revision, none without one.
func (m *Memory) publish() (changed []*Window) {
	m.publishing.Lock()
	defer m.publishing.Unlock()
	last := m.state.Load()
	s := m.newState(last.Revision + 1)
	m.mu.Lock()
	s.durable = m.durable
	for _, step := range m.table.list {
		w := m.windows[step.start]
		if w.changed {
			w.changed, w.known = false, &Window{
				Start: time.Unix(0, step.start).UTC(), End: time.Unix(0, step.start+int64(m.opts.Resolution)).UTC(), Revision: s.Revision,
				Producers: len(w.producers), Expected: len(m.producers), Rows: Rows{rows: step.share(), most: m.table.stepRows()}, Memo: NewMemo(),
				Durable: w.last <= s.durable, last: w.last,
			}
			changed = append(changed, w.known)
		}
		s.Windows = append(s.Windows, w.known)
	}
	m.complete = false
	select {
	case <-m.dirty: // all of that is in this revision
	default:
	}
	m.mu.Unlock()
	if len(changed) == 0 {
		return nil
	}
	s.log = m.logged(last.log, s, changed)
	m.state.Store(s)
	close(last.next)
	return changed
}

// logged is the log with a further revision, within the bounds on revisions and rows. Its
// states have no log of their own, or none would ever be forgotten.
func (m *Memory) logged(log []change, s *State, changed []*Window) []change {
	apart := *s
	apart.log = nil
	log = append(slices.Clone(log), change{state: &apart, windows: changed})
	rows := 0
	for i := len(log) - 1; i >= 0; i-- {
		for _, w := range log[i].windows {
			rows += w.Rows.Len()
		}
		if kept := len(log) - i; kept > 1 && (kept > m.opts.Log || rows > m.opts.MaxRows) {
			return slices.Delete(log, 0, i+1)
		}
	}
	return log
}

// State is what is known at the latest revision.
func (m *Memory) State() *State { return m.state.Load() }

// Counts is what was not kept.
type Counts struct {
	OldBlocks      uint64 // of windows before all that are kept
	DroppedWindows uint64 // forgotten early, past the bound on rows
}

// Counts is what was not kept so far.
func (m *Memory) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Counts{OldBlocks: m.old, DroppedWindows: m.table.forgotten}
}
