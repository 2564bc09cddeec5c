package table

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// MemoryOptions bound a Memory. Zero values mean the defaults.
type MemoryOptions struct {
	Resolution time.Duration // of the kept blocks; default aggregate.LiveResolution
	// Lateness is how long producers keep a window open after its end: no window is final earlier,
	// unless every present producer closed it. Default two windows, at least 50 ms.
	Lateness time.Duration
	// Windows is the maximum number of windows, the newest; default DefaultWindows, and with a long
	// lateness as many as it takes until they are final.
	Windows int
	// MaxRows bounds the rows of all windows together, one for each cell and location, of about 200
	// bytes, and separately those in the log of revisions. Past it, windows overflow and the oldest
	// are forgotten early, as in every sliding table. Default DefaultMaxRows.
	MaxRows int
	// MaxAge is the maximum age of data that describes the present: after such a silence, windows
	// without rows follow the clock, and cells without rows in the windows of that time have no
	// data. It is rounded down to whole windows, at least one; default DefaultMaxAge.
	MaxAge time.Duration
	// MaxLag bounds how far the end of the newest window may be behind Now, once there has been a
	// window: if producers send older data, such as from a spool, windows follow the clock at this
	// distance. 0: no bound.
	MaxLag time.Duration
	// Ahead is the largest distance after Now at which a window may begin; the memory refuses later
	// ones. Default aggregate.MaxAhead. A negative one is for captures, which are replayed by their
	// own clock: every window is shown at once, whatever its time.
	Ahead time.Duration
	// Log is the number of revisions that a watcher may be behind before it has to start again, and
	// for which a State remains available. Default 64: a window has at least two.
	Log int
	// Epoch identifies this memory among those of earlier processes. Default random.
	Epoch uint64
	// Thresholds decide when cells are congested. Default aggregate.DefaultThresholds.
	Thresholds aggregate.Thresholds
	Now        func() time.Time // default time.Now
}

const (
	// DefaultWindows is MemoryOptions.Windows.
	DefaultWindows = 60
	// DefaultMaxAge is MemoryOptions.MaxAge, in windows.
	DefaultMaxAge = 3
	// DefaultMaxRows is MemoryOptions.MaxRows.
	DefaultMaxRows = 1 << 20
)

// presentWindows is how long after its last block a producer is awaited, in windows.
const presentWindows = 3

func (o MemoryOptions) withDefaults() MemoryOptions {
	o.Resolution = cmp.Or(max(o.Resolution, 0), aggregate.LiveResolution)
	o.Lateness = cmp.Or(max(o.Lateness, 0), max(2*o.Resolution, 50*time.Millisecond))
	o.MaxAge = cmp.Or(max(o.MaxAge, 0), DefaultMaxAge*o.Resolution)
	o.MaxAge = max(o.MaxAge.Truncate(o.Resolution), o.Resolution)
	o.Windows = cmp.Or(max(o.Windows, 0), max(DefaultWindows, int(o.Lateness/o.Resolution)+2*presentWindows))
	o.MaxRows = cmp.Or(max(o.MaxRows, 0), DefaultMaxRows)
	o.Ahead = cmp.Or(o.Ahead, aggregate.MaxAhead)
	o.Log = cmp.Or(max(o.Log, 0), 64)
	if o.Epoch == 0 {
		o.Epoch = rand.Uint64() | 1
	}
	if o.Thresholds == (aggregate.Thresholds{}) {
		o.Thresholds = aggregate.DefaultThresholds()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Memory keeps the latest windows: a sliding table, with one step for each window. It is an
// aggregate.Sink, safe for concurrent use.
//
// The newest window is the median of the latest windows of the present producers (the later one of
// two), so that no single clock decides what is late. A producer is present for three windows' time
// after its last block. Windows after the newest are ahead: the memory keeps them, within the
// bounds of sliding tables, and shows them once the newest window reaches them.
//
// Windows follow each other without a gap, including those without rows. If no later window came
// for MemoryOptions.MaxAge, they follow the clock.
//
// Rows that producers announce before they close a window are shown with the others, within their
// own bounds, until the final rows come.
//
// Writers share a lock that no reader takes: readers take the State of the latest revision, which
// never changes.
type Memory struct {
	opts  MemoryOptions
	dirty chan struct{} // holds one when there is something to publish

	mu        sync.Mutex // of the fields up to early
	table     tableSteps
	flows     flowSteps             // of the same windows
	windows   map[int64]*openWindow // of the table's steps, by their start
	producers map[uint64]*producer  // that wrote a kept window
	expected  map[uint64]string     // names of those that should write; see Expect
	cells     cellProducers
	heard     int64     // start of the newest window that producers agree on; noWindow before the first
	heardAt   time.Time // when it became the newest
	present   int       // number of present producers at the last choice of the newest window
	complete  bool      // a window became complete since the last revision
	epoch     uint64    // of states from the next revision on
	counts    Counts
	written   uint64 // number of counted blocks
	durable   uint64 // how many of them, from the first, are on disk
	early     provisional
	seconds   *Memory // of a memory of short windows: see NewFineMemory

	publishing sync.Mutex // held while a state is made
	histories  histories  // of the cells, for states that outlast the windows
	state      atomic.Pointer[State]
}

// producer is a Memory's state about a producer.
type producer struct {
	name      string    // empty if Expect never named it
	newest    int64     // start of the newest window that it announced or wrote
	closed    int64     // start of the newest window of which it wrote a block; noWindow for none
	run       uint64    // its latest incarnation
	wrote     time.Time // its last block or announcement
	announces bool      // it announces rows before it closes a window
	owes      bool      // its run announced rows of a window and did not close it in time, nor a later one
}

// openWindow is a Memory's state about a window, besides its step.
type openWindow struct {
	step *tableStep
	// pending has, for each producer whose blocks are incomplete, the number that the window needs from it
	// in all: as many as the previous window had. It is nil if the window waits for nobody.
	pending map[uint64]int
	last    uint64  // Memory.written after its last block; 0 before the first
	lost    bool    // rows of it did not reach the disk; see ErrLost
	changed bool    // since the last revision
	known   *Window // as of the last revision

	provisional map[uint64][]provisionalRows // by producer
	announced   bool                         // as isAnnounced reported
	final       bool
}

// NewMemory makes an empty Memory at revision 0.
func NewMemory(o MemoryOptions) *Memory {
	o = o.withDefaults()
	m := &Memory{
		opts: o, dirty: make(chan struct{}, 1), producers: make(map[uint64]*producer), windows: make(map[int64]*openWindow),
		early: provisional{of: make(map[uint64]int)}, heard: noWindow, cells: newCellProducers(o.MaxRows / 4),
		table: newTableSteps(Bounds{Resolution: o.Resolution, Steps: o.Windows, Rows: o.MaxRows, Sliding: true}),
		flows: newFlowSteps(&o),
		// A history has somewhat more than twice the size of a row, without the cells of answers.
		histories: histories{
			thresholds: o.Thresholds, length: int64(o.Resolution), most: max(o.MaxRows/4, 1), of: make(map[aggregate.CellKey]*aggregate.History),
			vanished: make(map[aggregate.CellKey]struct{}),
		},
	}
	if m.isLive() {
		m.table.newest, m.flows.newest = noWindow, noWindow
	}
	m.epoch = o.Epoch
	s := m.newState(0)
	s.Epoch, s.Coverage = m.epoch, m.coverage()
	m.state.Store(s)
	return m
}

func (m *Memory) newState(revision uint64) *State {
	return &State{
		Revision: revision, Resolution: m.opts.Resolution, Published: m.opts.Now(),
		next: make(chan struct{}), Memo: newMemo(),
	}
}

// noWindow is before all windows.
const noWindow = -1

// isLive reports whether windows follow Now.
func (m *Memory) isLive() bool { return m.opts.Ahead > 0 }

// WriteBlock implements aggregate.Sink. It adds the block's rows to its window, if the block has
// the memory's resolution and was not counted before. It never fails and never waits for readers.
// If there is a log, write the block to the log first: see Sync.
func (m *Memory) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if !m.table.takes(b) || b.Len() == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.opts.Now()
	if m.isAhead(now, b.WindowStart) {
		m.counts.AheadBlocks++
		return nil
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
	if p := m.count(now, b); p != nil {
		closed := b.WindowStart
		if b.More {
			closed-- // earlier windows: their missing blocks are lost
		}
		p.closed = max(p.closed, closed)
		if now.Sub(m.closes(b.WindowStart)) < m.presence() { // windows wait for so long
			p.owes = false
		}
	}
	w := m.open(s, now)
	if s.start < m.table.floor { // the newest window advanced, and the table forgot this one
		m.counts.OldBlocks++
		return nil
	}
	if w.last == 0 {
		m.awaitOthers(w)
	}
	m.written++
	w.last = m.written
	writeBlock(&m.table, s, b)
	m.writeCells(b)
	m.writeFlows(b)
	m.ended(b)
	m.forget(now)
	if want, ok := w.pending[b.Producer]; ok && s.blocks[b.Producer].len() >= want {
		delete(w.pending, b.Producer)
	}
	if w.becomesComplete(m.present) {
		m.complete = true
	}
	m.change(w)
	return nil
}

// change marks the window for the next revision.
func (m *Memory) change(w *openWindow) {
	w.changed = true
	select {
	case m.dirty <- struct{}{}:
	default:
	}
}

// isAhead reports whether a window, by its start, is too far ahead of the clock.
func (m *Memory) isAhead(now time.Time, start int64) bool {
	if m.isLive() && start > now.Add(m.opts.Ahead).UnixNano() {
		return true
	}
	m.followClock(now)
	return false
}

// followClock starts again if the clock was set back: it drops the windows that are too far ahead
// of it, and begins another epoch, so that no client takes the next windows for late ones.
func (m *Memory) followClock(now time.Time) {
	t, limit := &m.table, now.Add(m.opts.Ahead).UnixNano()
	if !m.isLive() || t.newest <= limit {
		return
	}
	m.epoch++
	if t.newest = noWindow; t.floor > limit {
		t.floor = 0
	}
	for n := len(t.list); n > 0 && t.list[n-1].start > limit; n-- {
		m.dropAll(m.windows[t.list[n-1].start])
		delete(m.windows, t.list[n-1].start)
		t.forget(n - 1)
	}
	f := &m.flows
	if f.newest = noWindow; f.floor > limit {
		f.floor = 0
	}
	for n := len(f.list); n > 0 && f.list[n-1].start > limit; n-- {
		f.forget(n - 1)
	}
	clear(m.producers)
	m.cells, m.heard = newCellProducers(m.cells.most), noWindow
}

// ErrLost is an error of a flush: blocks that the log took did not reach the disk. Their windows never become
// durable, even if the sender of a block sends it again.
var ErrLost = errors.New("rows did not reach the disk")

// lose keeps the windows with blocks that are not durable from becoming so.
func (m *Memory) lose() {
	m.mu.Lock()
	for _, w := range m.windows {
		if w.last > m.durable {
			w.lost = true
			m.change(w)
		}
	}
	m.mu.Unlock()
	m.Publish()
}

// Sync calls flush, which returns nil once all blocks that the log took earlier are on disk. Then the
// blocks that the memory had before the call are durable, and so is each window that has no other
// blocks. Without Sync, no window is ever durable. Its error is that of flush.
func (m *Memory) Sync(ctx context.Context, flush func(context.Context) error) error {
	m.mu.Lock()
	written := m.written
	m.mu.Unlock()
	if err := flush(ctx); err != nil {
		if errors.Is(err, ErrLost) {
			m.lose()
		}
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

// count records that a producer wrote or announced a window. It returns nil if there are too many
// producers to add this one.
func (m *Memory) count(now time.Time, b *aggregate.Block) *producer {
	p := m.producers[b.Producer]
	if p == nil {
		name, expected := m.expected[b.Producer]
		if len(m.producers) >= maxProducers && !expected && !m.makeRoom() {
			return nil
		}
		p = &producer{name: name, closed: noWindow}
		m.producers[b.Producer] = p
	}
	if b.Incarnation > p.run {
		p.run, p.owes = b.Incarnation, false
	}
	p.newest, p.wrote = max(p.newest, b.WindowStart), now
	return p
}

// presence returns how long after its last block a producer is present.
func (m *Memory) presence() time.Duration {
	if m.seconds != nil {
		return m.seconds.fineAwaited()
	}
	return presentWindows * m.opts.Resolution
}

// isPresent reports whether a producer wrote recently.
func (m *Memory) isPresent(p *producer, now time.Time) bool { return now.Sub(p.wrote) < m.presence() }

// open returns the window of a step in the table, a new one if need be.
func (m *Memory) open(s *tableStep, now time.Time) *openWindow {
	w := m.windows[s.start]
	if w != nil {
		return w
	}
	w = &openWindow{step: s}
	m.windows[s.start] = w
	m.chooseNewest(now)
	return w
}

// awaitOthers makes a window, at its first block, wait for other producers if no later window has
// blocks.
func (m *Memory) awaitOthers(w *openWindow) {
	i := slices.Index(m.table.list, w.step)
	if i == 0 || slices.ContainsFunc(m.table.list[i+1:], func(s *tableStep) bool { return s.start <= m.table.newest && len(s.blocks) > 0 }) {
		return
	}
	w.pending = make(map[uint64]int)
	for id, blocks := range m.table.list[i-1].blocks {
		w.pending[id] = blocks.len()
	}
}

// chooseNewest finds the newest window to show, and forgets windows that are then too old.
func (m *Memory) chooseNewest(now time.Time) {
	m.followClock(now)
	m.present = len(m.producers)
	switch {
	case !m.isLive():
		return
	case m.seconds != nil:
		m.table.newest = m.newestByClock(now)
	default:
		m.table.newest = max(m.table.newest, m.newestByProducers(now))
	}
	m.flows.newest = m.table.newest
	m.table.slide()
	m.flows.slide()
	m.forget(now)
}

// newestByProducers returns the start of the median of the latest windows of present producers, or
// of the one that follows by the clock, if that is later.
func (m *Memory) newestByProducers(now time.Time) int64 {
	var last []int64
	for _, p := range m.producers {
		if m.isPresent(p, now) {
			last = append(last, p.newest)
		}
	}
	if m.present = len(last); m.present == 0 { // no producer to wait for
		newest := int64(noWindow)
		for _, p := range m.producers {
			newest = max(newest, p.newest)
		}
		last = append(last, newest)
	}
	slices.Sort(last)
	if agreed := last[len(last)/2]; agreed > m.heard {
		m.heard, m.heardAt = agreed, now
	}
	newest := m.heard + m.silence(now)
	if m.opts.MaxLag > 0 && m.heard != noWindow {
		last := now.Add(-m.opts.MaxLag - m.opts.Resolution).UnixNano()
		newest = max(newest, last-last%int64(m.opts.Resolution))
	}
	return newest
}

// silence returns how long expected windows have been missing, in whole windows, ns; 0 below
// MaxAge.
func (m *Memory) silence(now time.Time) int64 {
	quiet := now.Sub(m.heardAt)
	if !m.isLive() || m.heard == noWindow || quiet < m.opts.MaxAge {
		return 0
	}
	return int64(quiet.Truncate(m.opts.Resolution))
}

// nextSilence returns the time at which the next window follows by the clock if nobody writes until
// then.
func (m *Memory) nextSilence(now time.Time) (at time.Time, ok bool) {
	if !m.isLive() || m.heard == noWindow {
		return at, false
	}
	if quiet := now.Sub(m.heardAt); quiet >= m.opts.MaxAge {
		return m.heardAt.Add(quiet.Truncate(m.opts.Resolution) + m.opts.Resolution), true
	}
	return m.heardAt.Add(m.opts.MaxAge), true
}

// fill adds the windows without observations up to the newest, so that the last windows always
// cover the last seconds.
func (m *Memory) fill() {
	t := &m.table
	if !m.isLive() || t.newest == noWindow {
		return
	}
	from := t.newest
	if len(t.list) > 0 {
		from = t.list[0].start
	}
	if t.floor > 0 {
		from = min(from, t.floor)
	}
	from = max(from, t.newest-int64(m.opts.Windows-1)*t.width)
	for start := t.newest; start >= from; start -= t.width {
		if m.windows[start] == nil {
			m.windows[start] = &openWindow{step: t.insert(start), changed: true}
		}
	}
	t.slide()
}

// becomesComplete reports, once, that the window has all pending blocks, and one of every present
// producer.
func (w *openWindow) becomesComplete(present int) bool {
	if w.pending == nil || len(w.pending) > 0 || len(w.step.blocks) < present {
		return false
	}
	w.pending = nil
	return true
}

// forget drops windows that the table forgot, and producers that are no longer expected.
func (m *Memory) forget(now time.Time) {
	if len(m.windows) <= len(m.table.list) {
		return
	}
	oldest := m.table.list[0].start
	maps.DeleteFunc(m.windows, func(start int64, w *openWindow) bool {
		if start < oldest {
			m.dropAll(w)
		}
		return start < oldest
	})
	m.forgetProducers(now, oldest)
}

// Counts are the blocks and windows that a Memory did not keep, and the cells of which it knows less. Those
// blocks, but for repeated ones, and windows are missing from its states.
type Counts struct {
	RepeatedBlocks uint64 // counted before: a push or a peer brought them again
	OldBlocks      uint64 // of windows before all kept ones
	AheadBlocks    uint64 // of windows after MemoryOptions.Ahead, or too many windows ahead
	CrowdedBlocks  uint64 // past the bound on blocks of a window and a producer
	UncoveredCells uint64 // shown cells whose producers are not remembered: past a bound on cells
	DroppedWindows uint64 // forgotten early, past the bound on rows or blocks
	UntrackedCells uint64 // cells of windows whose states cover that window alone, past the bound on histories

	Provisional ProvisionalCounts
}

// ProvisionalCounts are sets of provisional rows, each of a window and a part of a producer, by
// outcome. All but the taken ones are missing until the final rows come.
type ProvisionalCounts struct {
	Taken   uint64
	Late    uint64 // their window is final, or their part closed it
	Ahead   uint64 // of windows after MemoryOptions.Ahead, or too many windows ahead
	Crowded uint64 // past the bounds on provisional rows and parts
	Expired uint64 // taken, and dropped when their window became final without their block
}

// Add adds the counts of another Memory.
func (c *Counts) Add(o Counts) {
	c.RepeatedBlocks += o.RepeatedBlocks
	c.OldBlocks += o.OldBlocks
	c.AheadBlocks += o.AheadBlocks
	c.CrowdedBlocks += o.CrowdedBlocks
	c.UncoveredCells += o.UncoveredCells
	c.DroppedWindows += o.DroppedWindows
	c.UntrackedCells += o.UntrackedCells
	c.Provisional.Taken += o.Provisional.Taken
	c.Provisional.Late += o.Provisional.Late
	c.Provisional.Ahead += o.Provisional.Ahead
	c.Provisional.Crowded += o.Provisional.Crowded
	c.Provisional.Expired += o.Provisional.Expired
}

// Counts returns the blocks and windows that were not kept so far.
func (m *Memory) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.counts
	c.DroppedWindows, c.UncoveredCells = m.table.forgotten, m.cells.full
	return c
}
