package api

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/recent"
	"github.com/csigscope/csigscope/decode/csig"
)

// view is the cells of one signal, of some windows, with modes at a level: as numbers, and
// each as JSON. It never changes.
type view struct {
	names *names
	cells []aggregate.CellStats
	text  [][]byte
}

// viewKey says which view of the last windows of a state.
type viewKey struct {
	signal  csig.Signal
	level   fabric.Level
	windows int
}

// view gives the view, made once for each revision.
func (a *API) view(ctx context.Context, s *recent.State, k viewKey) (*view, error) {
	windows := s.Last(k.windows)
	if len(windows) == 0 {
		n, err := a.names.get(ctx)
		return &view{names: n}, err
	}
	if len(windows) == 1 {
		return a.windowView(ctx, windows[0], k.signal, k.level)
	}
	type sumKey struct{ windows int }
	sum, _ := s.Memo.Get(sumKey{len(windows)}, func() any { return recent.Merge(windows) }).(*aggregate.Summary)
	return a.makeView(ctx, s.Memo, k, sum, nil)
}

// windowView is the view of one window.
func (a *API) windowView(ctx context.Context, w *recent.Window, s csig.Signal, level fabric.Level) (*view, error) {
	return a.makeView(ctx, w.Memo, viewKey{s, level, 1}, w.Summary(), w)
}

func (a *API) makeView(ctx context.Context, memo *recent.Memo, k viewKey, sum *aggregate.Summary, w *recent.Window) (*view, error) {
	n, err := a.names.get(ctx)
	if err != nil {
		return nil, err
	}
	type cellsKey struct {
		viewKey
		names uint64
	}
	list := func(n *names) []aggregate.CellStats {
		if w != nil && k.level == fabric.LevelLocation {
			return w.Cells(k.signal)
		}
		cells, _ := memo.Get(cellsKey{k, n.version}, func() any { return sum.Cells(k.signal, n.at(k.level)) }).([]aggregate.CellStats)
		return cells
	}
	if n, err = a.names.knowing(ctx, list(n)); err != nil {
		return nil, err
	}
	type textKey cellsKey
	v, _ := memo.Get(textKey{k, n.version}, func() any { return newView(n, list(n)) }).(*view)
	return v, nil
}

func newView(n *names, cells []aggregate.CellStats) *view {
	v := &view{names: n, cells: cells, text: make([][]byte, len(cells))}
	const typical = 420
	all := make([]byte, 0, typical*len(cells))
	ends := make([]int, len(cells))
	for i := range cells {
		all = n.appendCell(all, &cells[i])
		ends[i] = len(all)
	}
	from := 0
	for i, end := range ends {
		v.text[i] = all[from:end:end]
		from = end
	}
	return v
}

// models are the chosen cells as values of the model.
func (v *view) models(chosen []int) []model.Cell {
	list := make([]model.Cell, len(chosen))
	for n, i := range chosen {
		list[n] = v.names.cell(&v.cells[i])
	}
	return list
}

// asked is the view that a question is about.
func (a *API) asked(ctx context.Context, s *recent.State, in *SignalInput, windows int) (*view, viewKey, error) {
	k, err := in.key(windows, s.Signals())
	if err != nil {
		return nil, k, err
	}
	a.used.note(k, a.Now())
	v, err := a.view(ctx, s, k)
	return v, k, err
}

// usedViews are the views that were asked for lately.
type usedViews struct {
	mu   sync.Mutex
	last map[viewKey]time.Time
}

const (
	// maxUsed bounds the views that are prepared for each revision.
	maxUsed = 16
	// usedFor is how long a view is prepared after it was asked for.
	usedFor = time.Minute
)

func (u *usedViews) note(k viewKey, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last == nil {
		u.last = make(map[viewKey]time.Time)
	}
	if _, ok := u.last[k]; ok || len(u.last) < maxUsed {
		u.last[k] = now
	}
}

func (u *usedViews) list(now time.Time) (keys []viewKey) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for k, t := range u.last {
		if now.Sub(t) > usedFor {
			delete(u.last, k)
			continue
		}
		keys = append(keys, k)
	}
	return keys
}

// prepare makes the views that were asked for lately.
func (a *API) prepare(ctx context.Context, s *recent.State) {
	for _, k := range a.used.list(a.Now()) {
		if _, err := a.view(ctx, s, k); err != nil {
			return // whoever asks is told
		}
	}
}

// filter chooses cells. Empty lists choose all.
type filter struct {
	src, dst  []aggregate.GroupID
	locations []aggregate.LocationID
	states    []aggregate.State
	minHeavy  float64 // share
	minRoom   optional[float64]
	maxRoom   optional[float64]
}

func (f *filter) takes(c *aggregate.CellStats) bool {
	switch {
	case len(f.src) > 0 && !slices.Contains(f.src, c.Src), len(f.dst) > 0 && !slices.Contains(f.dst, c.Dst):
		return false
	case len(f.states) > 0 && !slices.Contains(f.states, c.State):
		return false
	case len(f.locations) > 0 && (c.ModeCount == 0 || !slices.Contains(f.locations, c.Mode)):
		return false
	case f.minHeavy > 0 && !(c.HeavyShare() >= f.minHeavy):
		return false
	}
	if !f.minRoom.set && !f.maxRoom.set {
		return true
	}
	room := c.Mean() * c.Signal.Unit().PerStored()
	// A cell without a value has no room that is known: neither bound takes it.
	return (!f.minRoom.set || room >= f.minRoom.value) && (!f.maxRoom.set || room <= f.maxRoom.value) && c.Measured > 0
}

// chosen are the indexes of the cells that the filter takes.
func (v *view) chosen(f *filter) []int {
	list := make([]int, 0, len(v.cells))
	for i := range v.cells {
		if f.takes(&v.cells[i]) {
			list = append(list, i)
		}
	}
	return list
}

// about says what an answer of the last windows is of.
func about(s *recent.State, k viewKey) model.About {
	out := model.About{
		Source: "memory", Revision: token(s), Signal: csig.SignalNames([]csig.Signal{k.signal})[0],
		Unit: k.signal.Unit().String(), Level: k.level.String(),
	}
	if windows := s.Last(k.windows); len(windows) > 0 {
		newest := windows[len(windows)-1]
		out.From, out.To, out.Windows, out.Completeness = windows[0].Start, newest.End, len(windows), newest.Completeness()
	}
	return out
}
