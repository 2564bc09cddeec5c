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
	// as those of other taps: no longer than until every present producer wrote the newest
	// window, as many blocks as of the one before. Default 10 ms.
	Settle time.Duration
	// Ahead is how far a window may begin after Now; the memory refuses later ones. Default
	// aggregate.MaxAhead. A negative one is for captures, which are replayed by their own clock:
	// every window is shown at once, whatever its time.
	Ahead time.Duration
	// Log is how many revisions a watcher may be behind before it has to start again, and
	// for how many revisions a State stays at hand. Default 32.
	Log int
	// Epoch identifies this memory among those of earlier processes. Default random.
	Epoch uint64
	Now   func() time.Time // default time.Now
}

// presentWindows is for how many windows' time after its last block a producer is present.
const presentWindows = 3

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
	if o.Ahead == 0 {
		o.Ahead = aggregate.MaxAhead
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
// The newest window is the median of what the present producers wrote last (the later one of
// two), so that no single clock decides what is late. A producer is present for three windows'
// time after its last block. Windows after the newest are ahead: the memory keeps them, within
// the bounds of sliding tables, and shows them once the newest window reaches them.
//
// Writers share a lock that no reader takes: readers take the State of the latest
// revision, which never changes.
type Memory struct {
	opts  MemoryOptions
	dirty chan struct{} // holds one when there is something to publish

	mu        sync.Mutex // of the fields up to durable
	table     tableSteps
	windows   map[int64]*openWindow // of the table's steps, by their start
	producers map[uint64]*producer  // that wrote a window that is kept
	expected  map[uint64]string     // names of those that should write; see Expect
	present   int                   // of them, as of the last time that newest was chosen
	complete  bool                  // a window became complete since the last revision
	counts    Counts
	written   uint64 // blocks that are counted
	durable   uint64 // of them, the first that are on disk

	publishing sync.Mutex // held while a state is made
	state      atomic.Pointer[State]
}

// producer is what a Memory knows of one that writes.
type producer struct {
	newest int64     // start of the newest window that it wrote
	wrote  time.Time // its last block
}

// openWindow is what a Memory knows of a window beside its step.
type openWindow struct {
	step *tableStep
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
		opts: o, dirty: make(chan struct{}, 1), producers: make(map[uint64]*producer), windows: make(map[int64]*openWindow),
		table: newTableSteps(Bounds{Resolution: o.Resolution, Steps: o.Windows, Rows: o.MaxRows, Sliding: true}),
	}
	if m.isLive() {
		m.table.newest = noWindow
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

// noWindow is before all windows.
const noWindow = -1

// isLive reports whether windows have to do with Now.
func (m *Memory) isLive() bool { return m.opts.Ahead > 0 }

// WriteBlock implements aggregate.Sink. It adds the block's rows to its window, if it is of
// the memory's resolution, and the memory has not counted the block before. It never fails and
// waits for no reader. Where there is a log, the log takes the block first: see Sync.
func (m *Memory) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if !m.table.takes(b) || b.Len() == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.opts.Now()
	if m.isLive() {
		limit := now.Add(m.opts.Ahead).UnixNano()
		if b.WindowStart > limit {
			m.counts.AheadBlocks++
			return nil
		}
		if m.table.newest > limit {
			m.setBack(limit)
		}
	}
	s := m.table.at(b.WindowStart)
	if s == nil {
		if b.WindowStart > m.table.newest {
			m.counts.AheadBlocks++
		} else {
			m.counts.OldBlocks++
		}
		return nil
	}
	switch m.table.admit(s, b) {
	case repeated:
		m.counts.RepeatedBlocks++
		return nil
	case crowded:
		m.counts.CrowdedBlocks++
		return nil
	}
	m.count(now, b)
	w := m.open(s, now)
	if s.start < m.table.floor { // the newest window went on, and the table forgot this one
		m.counts.OldBlocks++
		return nil
	}
	m.written++
	w.last, w.changed = m.written, true
	writeBlock(&m.table, s, b)
	m.forget()
	if want, ok := w.pending[b.Producer]; ok && s.blocks[b.Producer].len() >= want {
		delete(w.pending, b.Producer)
	}
	if w.becomesComplete(m.present) {
		m.complete = true
	}
	select {
	case m.dirty <- struct{}{}:
	default:
	}
	return nil
}

// setBack begins again after the clock was set back: windows after the limit, Unix ns, are of
// a future that did not come.
func (m *Memory) setBack(limit int64) {
	t := &m.table
	if t.newest = noWindow; t.floor > limit {
		t.floor = 0
	}
	for n := len(t.list); n > 0 && t.list[n-1].start > limit; n-- {
		delete(m.windows, t.list[n-1].start)
		t.forget(n - 1)
	}
	clear(m.producers)
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

// count notes that a producer wrote a window.
func (m *Memory) count(now time.Time, b *aggregate.Block) {
	p := m.producers[b.Producer]
	if p == nil {
		if _, expected := m.expected[b.Producer]; len(m.producers) >= maxProducers && !expected {
			return
		}
		p = &producer{}
		m.producers[b.Producer] = p
	}
	p.newest, p.wrote = max(p.newest, b.WindowStart), now
}

// open returns the window of a step in the table, a new one if need be.
func (m *Memory) open(s *tableStep, now time.Time) *openWindow {
	w := m.windows[s.start]
	if w != nil {
		return w
	}
	w = &openWindow{step: s}
	m.windows[s.start] = w
	if i := slices.Index(m.table.list, s); i > 0 && (s.start > m.table.newest || i == len(m.table.list)-1) {
		w.pending = make(map[uint64]int)
		for id, blocks := range m.table.list[i-1].blocks {
			w.pending[id] = blocks.len()
		}
	}
	m.chooseNewest(now)
	return w
}

// chooseNewest finds the newest window that is shown, and forgets what is too old then.
func (m *Memory) chooseNewest(now time.Time) {
	m.present = len(m.producers)
	if !m.isLive() {
		return
	}
	var last []int64
	for _, p := range m.producers {
		if now.Sub(p.wrote) < presentWindows*m.opts.Resolution {
			last = append(last, p.newest)
		}
	}
	if m.present = len(last); m.present == 0 { // nobody to wait for
		if n := len(m.table.list); n > 0 {
			last = append(last, m.table.list[n-1].start)
		}
	}
	if len(last) > 0 {
		slices.Sort(last)
		m.table.newest = max(m.table.newest, last[len(last)/2])
	}
	m.table.slide()
	m.forget()
}

// becomesComplete reports, once, that the window has all pending blocks, and one of every
// present producer.
func (w *openWindow) becomesComplete(present int) bool {
	if w.pending == nil || len(w.pending) > 0 || len(w.step.blocks) < present {
		return false
	}
	w.pending = nil
	return true
}

// forget drops windows that the table forgot, and producers that wrote no later one.
func (m *Memory) forget() {
	if len(m.windows) <= len(m.table.list) {
		return
	}
	oldest := m.table.list[0].start
	maps.DeleteFunc(m.windows, func(start int64, _ *openWindow) bool { return start < oldest })
	maps.DeleteFunc(m.producers, func(_ uint64, p *producer) bool { return p.newest < oldest })
}

// Run publishes a revision when windows have changed, until ctx ends.
func (m *Memory) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-m.dirty:
			m.settle(ctx)
			m.Publish()
		case <-m.presenceEnds():
			m.Publish()
		}
	}
	return nil
}

// settle waits for further blocks of the same moment.
func (m *Memory) settle(ctx context.Context) {
	settled := time.NewTimer(m.opts.Settle)
	defer settled.Stop()
	for !m.isComplete() {
		select {
		case <-ctx.Done():
			return
		case <-settled.C:
			return
		case <-m.dirty:
		}
	}
}

// presenceEnds fires when those that the windows ahead wait for are present no more, should
// nobody write until then. It never does where no window is ahead.
func (m *Memory) presenceEnds() <-chan time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.table.upToNewest() == len(m.table.list) {
		return nil
	}
	return time.After(presentWindows * m.opts.Resolution)
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
	m.chooseNewest(s.Published)
	known := m.known()
	for _, step := range m.table.list[:m.table.upToNewest()] {
		w := m.windows[step.start]
		if w.changed {
			w.changed, w.known = false, &Window{
				Start: time.Unix(0, step.start).UTC(), End: time.Unix(0, step.start+int64(m.opts.Resolution)).UTC(), Revision: s.Revision,
				Producers: len(step.blocks), Expected: known, Rows: Rows{rows: step.share(), most: m.table.stepRows()}, Memo: NewMemo(),
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

// Counts are the blocks and windows that a Memory did not keep. All but repeated blocks are
// missing in what it shows.
type Counts struct {
	RepeatedBlocks uint64 // counted before: a push or a peer brought them again
	OldBlocks      uint64 // of windows before all that are kept
	AheadBlocks    uint64 // of windows after MemoryOptions.Ahead, or too many windows ahead
	CrowdedBlocks  uint64 // past the bound on blocks of a window and a producer
	DroppedWindows uint64 // forgotten early, past the bound on rows or blocks
}

// Counts are the blocks and windows that were not kept so far.
func (m *Memory) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.counts
	c.DroppedWindows = m.table.forgotten
	return c
}
