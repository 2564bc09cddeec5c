package table

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// Config bounds a Memory. Zero values take the defaults.
type Config struct {
	Resolution time.Duration // of the blocks that are kept; default 1 s
	Windows    int           // kept at most, the newest; default 60
	// MaxRows bounds the rows of a cell and a location in all windows together, each of
	// about 200 bytes, and as many again for the log of revisions. Past a quarter of it, a
	// window adds up in overflow rows; past all of it the oldest windows are forgotten
	// early. Default 1 << 20.
	MaxRows int
	// Settle is how long a revision waits at most for further blocks of the same moment, such
	// as those of other taps: no longer than until all have told of the newest window that
	// are known, and as much as of the one before. Default 10 ms.
	Settle time.Duration
	// Log is how many revisions a watcher may be behind before it has to begin anew, and
	// for how many revisions a State stays at hand. Default 32.
	Log int
	// Epoch identifies this memory among those of earlier processes. Default random.
	Epoch uint64
	Now   func() time.Time // default time.Now
}

func (c Config) withDefaults() Config {
	if c.Resolution <= 0 {
		c.Resolution = time.Second
	}
	if c.Windows <= 0 {
		c.Windows = 60
	}
	if c.MaxRows <= 0 {
		c.MaxRows = 1 << 20
	}
	if c.Settle <= 0 {
		c.Settle = 10 * time.Millisecond
	}
	if c.Log <= 0 {
		c.Log = 32
	}
	if c.Epoch == 0 {
		c.Epoch = rand.Uint64() | 1
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Memory keeps the last windows. It is an aggregate.Sink, safe for concurrent use.
//
// Writers share a lock that no reader takes: readers take the State of the latest
// revision, which never changes.
type Memory struct {
	cfg   Config
	dirty chan struct{} // holds one when there is something to publish

	mu        sync.Mutex // of what follows
	windows   []*filling // ascending by start
	producers map[uint64]int64
	whole     bool // all that is awaited of the newest window is there, since the last revision

	publishing sync.Mutex // held while a revision is made
	state      atomic.Pointer[State]

	old, dropped atomic.Uint64
}

// filling is a window that blocks are added to.
type filling struct {
	start     int64
	sum       *Summary
	producers map[uint64]int // blocks of each
	awaited   awaited
	changed   bool // since the last revision
	shared    bool // sum is part of a State, and has to be copied before it changes
	known     *Window
}

// New makes an empty Memory at revision 0.
func New(cfg Config) *Memory {
	m := &Memory{cfg: cfg.withDefaults(), dirty: make(chan struct{}, 1), producers: make(map[uint64]int64)}
	m.state.Store(&State{
		Epoch: m.cfg.Epoch, Resolution: m.cfg.Resolution, Published: m.cfg.Now(), next: make(chan struct{}), Memo: NewMemo(),
	})
	return m
}

// WriteBlock implements aggregate.Sink. It adds the block's rows to its window, if it is of
// the memory's resolution. It never fails and waits for no reader.
func (m *Memory) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	if b.Resolution != int64(m.cfg.Resolution) || b.WindowStart < 0 || b.Len() == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.at(b.WindowStart)
	if w == nil {
		m.old.Add(1)
		return nil
	}
	if w.shared {
		w.sum, w.shared = w.sum.Clone(), false
	}
	if err := w.sum.WriteBlock(ctx, b); err != nil {
		return err
	}
	m.meet(w, b.Producer)
	w.awaited.met(b.Producer, w.producers[b.Producer])
	w.changed = true
	m.trim()
	if w.isWhole(len(m.producers)) {
		m.whole = true
	}
	select {
	case m.dirty <- struct{}{}:
	default:
	}
	return nil
}

// at is the window of that start, made if need be; nil for one older than all that are
// kept.
func (m *Memory) at(start int64) *filling {
	i, found := slices.BinarySearchFunc(m.windows, start, func(w *filling, t int64) int {
		switch {
		case w.start < t:
			return -1
		case w.start > t:
			return 1
		}
		return 0
	})
	if found {
		return m.windows[i]
	}
	if i == 0 && len(m.windows) >= m.cfg.Windows {
		return nil
	}
	w := &filling{
		start: start, sum: NewSummary(m.cfg.Resolution, max(m.cfg.MaxRows/4, 1)),
		producers: make(map[uint64]int),
	}
	if i > 0 { // the window before is likely to be much like it
		w.sum.Reserve(m.windows[i-1].sum)
		if i == len(m.windows) && len(m.producers) < maxProducers {
			w.awaited = awaiting(m.windows[i-1].producers)
		}
	}
	m.windows = slices.Insert(m.windows, i, w)
	return w
}

// maxProducers bounds the producers that completeness is reckoned of.
const maxProducers = 1 << 12

// meet notes that a producer has told of a window.
func (m *Memory) meet(w *filling, producer uint64) {
	if _, known := m.producers[producer]; !known && len(m.producers) >= maxProducers {
		return
	}
	w.producers[producer]++
	m.producers[producer] = max(m.producers[producer], w.start)
}

// trim forgets the oldest windows past the bounds, but never the newest one, and producers
// that no window is left of.
func (m *Memory) trim() {
	rows := 0
	for i := len(m.windows) - 1; i >= 0; i-- {
		rows += m.windows[i].sum.Len()
		kept := len(m.windows) - i
		if kept == 1 || kept <= m.cfg.Windows && rows <= m.cfg.MaxRows {
			continue
		}
		if kept <= m.cfg.Windows {
			m.dropped.Add(uint64(i + 1))
		}
		m.windows = slices.Delete(m.windows, 0, i+1)
		break
	}
	for p, last := range m.producers {
		if last < m.windows[0].start {
			delete(m.producers, p)
		}
	}
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
		settle.Reset(m.cfg.Settle)
		for over := false; !over && !m.isWhole(); {
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

func (m *Memory) isWhole() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.whole
}

// Publish makes a revision of what has changed since the last one, if anything has.
func (m *Memory) Publish() {
	m.publishing.Lock()
	defer m.publishing.Unlock()
	last := m.state.Load()
	s := &State{
		Epoch: last.Epoch, Revision: last.Revision + 1, Resolution: last.Resolution, Published: m.cfg.Now(),
		next: make(chan struct{}), Memo: NewMemo(),
	}
	var changed []*Window
	m.mu.Lock()
	for _, f := range m.windows {
		if f.changed || f.known == nil {
			f.known = &Window{
				Start: time.Unix(0, f.start).UTC(), End: time.Unix(0, f.start+int64(m.cfg.Resolution)).UTC(), Revision: s.Revision,
				Producers: len(f.producers), Expected: len(m.producers), summary: f.sum, Memo: NewMemo(),
			}
			f.changed, f.shared = false, true
			changed = append(changed, f.known)
		}
		s.Windows = append(s.Windows, f.known)
	}
	m.whole = false
	select {
	case <-m.dirty: // all of that is in this revision
	default:
	}
	m.mu.Unlock()
	if len(changed) == 0 {
		return
	}
	s.log = m.logged(last.log, s, changed)
	m.state.Store(s)
	close(last.next)
	// Who waits makes what it asks for itself, beside this.
	for _, w := range changed {
		w.warm()
	}
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
			rows += w.summary.Len()
		}
		if kept := len(log) - i; kept > 1 && (kept > m.cfg.Log || rows > m.cfg.MaxRows) {
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
	return Counts{OldBlocks: m.old.Load(), DroppedWindows: m.dropped.Load()}
}
