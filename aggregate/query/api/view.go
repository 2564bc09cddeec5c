package api

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

// view is the cells of one signal in some windows, with modes at a level, by source and
// destination. It never changes.
type view struct {
	names  *names
	cells  []aggregate.CellStats
	covers []table.CellCoverage // of the cells
	texts  func() [][]byte      // as JSON, encoded on first use
}

// viewKey identifies a view of a state's last windows.
type viewKey struct {
	signal  csig.Signal
	level   fabric.Level
	windows int
	length  time.Duration // of a window
}

// viewOf is a view of certain windows: of the last ones of a revision, or of the one window that
// a revision added, by its start in Unix ns, and its kinds if it is a part of others.
type viewOf struct {
	viewKey
	revision uint64
	start    int64
	kinds    string
}

// view returns the view, computed once per revision. Cells without recent observations are
// included, with empty numbers. Of short windows they are left out, since most cells are missing there.
func (a *API) view(ctx context.Context, s *table.State, k viewKey) (*view, error) {
	windows := s.Last(k.windows)
	if len(windows) == 0 {
		n, err := a.names.get(ctx)
		if err != nil {
			return nil, err
		}
		return newView(n, nil, nil), nil
	}
	cells := func(n *names) []aggregate.CellStats { return a.sum(s, windows).Cells(k.signal, n.at(k.level)) }
	if len(windows) == 1 {
		v, err := a.windowView(ctx, windows[0], k.signal, k.level)
		if err != nil {
			return nil, err
		}
		if windows[0].Coverage == s.Coverage && (isFine(s) || len(s.Coverage.All(v.cells, k.signal)) == len(v.cells)) {
			return v, nil
		}
		cells = func(n *names) []aggregate.CellStats { return cellsIn(windows[0], n, k.signal, k.level) }
	}
	k.windows = len(windows)
	return a.makeView(ctx, viewOf{k, s.Revision, 0, ""}, func(n *names) ([]aggregate.CellStats, []table.CellCoverage) {
		list := cells(n)
		if !isFine(s) {
			list = s.Coverage.All(list, k.signal)
		}
		return list, s.Coverage.Of(list, k.signal)
	})
}

// sum adds up the last windows of a state, without cells whose rows are too old.
func (a *API) sum(s *table.State, windows []*table.Window) table.Rows {
	type sumOf struct {
		revision uint64
		windows  int
		length   time.Duration
	}
	sum, _ := getOrCompute(a.cache, sumOf{s.Revision, len(windows), s.Resolution}, func() (table.Rows, int, error) {
		later := aggregate.LaterHalf(windows[0].Start.UnixNano(), s.Newest().End.UnixNano())
		sum := table.Merge(windows).WithTrend(windows, later).Without(s.Old(windows))
		return sum, sum.Len() * rowBytes, nil
	})
	return sum
}

// windowView is the view of one window, for itself or as a part of others.
func (a *API) windowView(ctx context.Context, w *table.Window, s csig.Signal, level fabric.Level) (*view, error) {
	return a.makeView(ctx, viewOf{viewKey{s, level, 1, w.End.Sub(w.Start)}, w.Revision, w.Start.UnixNano(), w.Kinds()}, func(n *names) ([]aggregate.CellStats, []table.CellCoverage) {
		list := cellsIn(w, n, s, level)
		return list, w.Coverage.Of(list, s)
	})
}

// cellsIn returns the cells of one window.
func cellsIn(w *table.Window, n *names, s csig.Signal, level fabric.Level) []aggregate.CellStats {
	if level == fabric.LevelLocation {
		return w.Cells(s)
	}
	return w.Rows.Cells(s, n.at(level))
}

// makeView computes a view once for each version of the names. cells returns its cells with
// names.
func (a *API) makeView(ctx context.Context, of viewOf, cells func(*names) ([]aggregate.CellStats, []table.CellCoverage)) (*view, error) {
	n, err := a.names.get(ctx)
	if err != nil {
		return nil, err
	}
	type named struct {
		viewOf
		names uint64
	}
	return getOrCompute(a.cache, named{of, n.version}, func() (*view, int, error) {
		list, covers := cells(n)
		later, err := a.names.knowing(ctx, func(n *names) bool { return n.know(list) })
		if err != nil {
			return nil, 0, err
		}
		if later != n {
			list, covers = cells(later)
		}
		v := newView(later, list, covers)
		return v, v.size(), nil
	})
}

// Approximate sizes in memory, in bytes.
const (
	cellBytes = 336 // of aggregate.CellStats, its coverage, and references to its text
	textBytes = 570 // of its text
	rowBytes  = 270 // of table.Rows, with a verdict for each
)

// size is the approximate memory of the view with its texts.
func (v *view) size() int { return len(v.cells) * (cellBytes + textBytes) }

func newView(n *names, cells []aggregate.CellStats, covers []table.CellCoverage) *view {
	return &view{n, cells, covers, sync.OnceValue(func() [][]byte { return n.texts(cells, covers) })}
}

// texts are cells as JSON, parts of one buffer.
func (n *names) texts(cells []aggregate.CellStats, covers []table.CellCoverage) [][]byte {
	all := make([]byte, 0, textBytes*len(cells))
	ends := make([]int, len(cells))
	for i := range cells {
		all = n.appendCell(all, &cells[i], &covers[i])
		ends[i] = len(all)
	}
	list := make([][]byte, len(cells))
	from := 0
	for i, end := range ends {
		list[i] = all[from:end:end]
		from = end
	}
	return list
}

// messages are the chosen cells.
func (v *view) messages(chosen []int) []*wire.Cell {
	list := make([]*wire.Cell, len(chosen))
	for n, i := range chosen {
		list[n] = v.names.cell(&v.cells[i], &v.covers[i])
	}
	return list
}

// asked returns the view for a question.
func (a *API) asked(ctx context.Context, s *table.State, in subject, windows int) (*view, viewKey, error) {
	k, err := stateKey(s, in, windows)
	if err != nil {
		return nil, k, err
	}
	a.lately.note(k, a.Now(), func(ctx context.Context, s *table.State) error {
		_, err := a.view(ctx, s, k)
		return err
	})
	v, err := a.view(ctx, s, k)
	return v, k, err
}

// lately records recently requested results, which are computed for each revision before the next
// request.
type lately struct {
	mu   sync.Mutex
	list map[any]wish
}

// wish is one such result.
type wish struct {
	at   time.Time // of the last request
	make func(context.Context, *table.State) error
}

const (
	// maxWishes bounds the results computed for each revision.
	maxWishes = 16
	// wishedFor is how long after its last request a result is computed.
	wishedFor = time.Minute
)

// note records a request, and how to compute its result for another revision.
func (l *lately) note(key any, now time.Time, again func(context.Context, *table.State) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.list == nil {
		l.list = make(map[any]wish)
	}
	if _, ok := l.list[key]; ok || len(l.list) < maxWishes {
		l.list[key] = wish{now, again}
	}
}

func (l *lately) wishes(now time.Time) (list []wish) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, w := range l.list {
		if now.Sub(w.at) > wishedFor {
			delete(l.list, key)
			continue
		}
		list = append(list, w)
	}
	return list
}

// prepare computes recently requested results. After a failure, the next request gets the error.
func (a *API) prepare(ctx context.Context, s *table.State) {
	for _, w := range a.lately.wishes(a.Now()) {
		_ = recovering(func() error { return w.make(ctx, s) })
	}
}

// filter selects cells. Empty lists select all; lists are sorted without duplicates.
type filter struct {
	src, dst  []aggregate.GroupID
	locations []aggregate.LocationID
	states    []aggregate.State
	minHeavy  float64 // share
	minRoom   optional
	maxRoom   optional
}

// among reports whether a sorted list contains an id; an empty one contains all.
func among[T cmp.Ordered](list []T, id T) bool {
	_, found := slices.BinarySearch(list, id)
	return found || len(list) == 0
}

func (f *filter) takes(c *aggregate.CellStats) bool {
	switch {
	case !among(f.src, c.Src), !among(f.dst, c.Dst):
		return false
	case len(f.states) > 0 && !slices.Contains(f.states, c.State):
		return false
	case len(f.locations) > 0 && (c.ModeCount == 0 || !among(f.locations, c.Mode)):
		return false
	case f.minHeavy > 0 && !(c.HeavyShare() >= f.minHeavy):
		return false
	}
	if !f.minRoom.set && !f.maxRoom.set {
		return true
	}
	room := c.MeanValue()
	// A cell without a value has an unknown mean: neither bound accepts NaN.
	return (!f.minRoom.set || room >= f.minRoom.value) && (!f.maxRoom.set || room <= f.maxRoom.value)
}

// chosen returns the indexes of the cells that the filter accepts.
func (v *view) chosen(f *filter) []int {
	list := make([]int, 0, len(v.cells))
	for i := range v.cells {
		if f.takes(&v.cells[i]) {
			list = append(list, i)
		}
	}
	return list
}

// about describes an answer from the last windows, as of now.
func (a *API) about(s *table.State, k viewKey) *wire.About {
	return a.aboutWindows(s, k, s.Last(k.windows))
}

// aboutWindows describes an answer from some windows of a state, as of now.
func (a *API) aboutWindows(s *table.State, k viewKey, windows []*table.Window) *wire.About {
	now := a.Now()
	out := &wire.About{
		Source: "memory", Revision: token(s), Signal: csig.SignalNames([]csig.Signal{k.signal})[0],
		Unit: k.signal.Unit().String(), Level: k.level.String(), AsOf: timestamppb.New(now), AgeS: ageOf(s.Coverage, now),
		OnsetRatio: a.Thresholds.Onset, ClearRatio: a.Thresholds.Clear,
		ExpectedProducers: uint32(s.Coverage.Expected), PresentProducers: uint32(s.Coverage.Present()),
	}
	if len(windows) > 0 {
		newest := windows[len(windows)-1]
		out.From, out.To = timestamppb.New(windows[0].Start), timestamppb.New(newest.End)
		out.Windows, out.CompletenessRatio = uint32(len(windows)), newest.Completeness()
		out.Durable, out.Final = s.Durable(windows), table.Final(windows)
	}
	return out
}

// explainUnjudged adds to the description of an answer how its cells could be judged, if some are
// not.
func explainUnjudged(about *wire.About, s csig.Signal, cells []*wire.Cell) {
	if slices.ContainsFunc(cells, func(c *wire.Cell) bool { return c.State == wire.State_STATE_NOT_JUDGED }) {
		about.NotJudgedHint = aggregate.HowToJudge(s)
	}
}

// explainUnjudged is explainUnjudged for chosen cells of the view.
func (v *view) explainUnjudged(about *wire.About, s csig.Signal, chosen []int) {
	if slices.ContainsFunc(chosen, func(i int) bool { return v.cells[i].State == aggregate.NotJudged }) {
		about.NotJudgedHint = aggregate.HowToJudge(s)
	}
}

// ageOf is the age of the newest rows in memory, in seconds, nil before the first.
func ageOf(c *table.Coverage, now time.Time) *float64 {
	if c.Newest.IsZero() {
		return nil
	}
	return age(c.Newest, now)
}

// age is the time from the end of a window until now, in seconds.
func age(end, now time.Time) *float64 {
	s := now.Sub(end).Seconds()
	return &s
}

// cache holds results for revisions and windows, which never change. It computes each
// result once for equal requests, and drops the least recently used ones. It is safe for
// concurrent use.
type cache struct {
	most int // bytes

	mu    sync.Mutex
	known map[any]*list.Element // of *entry
	order *list.List            // most recently used in front
	bytes int
}

// entry is one cached result. size is set once it is computed.
type entry struct {
	key   any
	once  sync.Once
	value any
	size  int
	err   error
}

// errPanicked is the error of results whose computation panicked: a sync.Once is done after that.
var errPanicked = errors.New("an equal request panicked")

// leastSize is the minimum size that is charged for a result, in bytes.
const leastSize = 512

func newCache(most int) *cache {
	return &cache{most: most, known: make(map[any]*list.Element), order: list.New()}
}

// getOrCompute returns the result for the key, computing it if needed; f also returns its approximate
// size in bytes. After a failure each waiting caller computes it again for itself: it may have
// failed because one of them left.
func getOrCompute[T any](m *cache, key any, f func() (value T, size int, err error)) (T, error) {
	t := m.at(key)
	mine := false
	t.once.Do(func() {
		mine = true
		size := 0
		t.err = errPanicked // unless f returns
		defer func() { m.weigh(t, max(size, leastSize)) }()
		t.value, size, t.err = f()
	})
	if t.err != nil && !mine {
		value, _, err := f()
		return value, err
	}
	value, _ := t.value.(T)
	return value, t.err
}

// at returns the entry for the key, computed or not.
func (m *cache) at(key any) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.known[key]; ok {
		m.order.MoveToFront(e)
		return e.Value.(*entry)
	}
	t := &entry{key: key}
	m.known[key] = m.order.PushFront(t)
	return t
}

// weigh charges the size of a result, and drops others beyond the bound. A result that failed, or
// is larger than the whole cache, is dropped itself.
func (m *cache) weigh(t *entry, size int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, held := m.known[t.key]
	if !held || e.Value != t {
		return // it was dropped already
	}
	if t.err != nil || size > m.most {
		m.forget(e)
		return
	}
	t.size = size
	m.bytes += size
	for m.bytes > m.most {
		m.forget(m.order.Back())
	}
}

// forget drops an entry; one that is not computed yet has no size. The caller holds mu.
func (m *cache) forget(e *list.Element) {
	t := m.order.Remove(e).(*entry)
	delete(m.known, t.key)
	m.bytes -= t.size
}

// lazily is a value that is computed once, on first use.
type lazily[T any] struct {
	once  sync.Once
	value T
	err   error
}

func (l *lazily[T]) get(f func() (T, error)) (T, error) {
	l.once.Do(func() {
		l.err = errPanicked // unless f returns
		l.value, l.err = f()
	})
	return l.value, l.err
}
