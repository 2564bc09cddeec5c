package query

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/table"
)

// FromWindows reads windows in memory, ascending, as FromStore reads the same windows in a store;
// its LocationWindows also have the number of cells. above maps locations to their ancestors at a
// level; nil if all are their own. Cells may be left out; see
// table.State.Old.
func FromWindows(windows []*table.Window, above func(fabric.Level) func(aggregate.LocationID) aggregate.LocationID, without map[aggregate.CellKey]bool) Analytics {
	return &windowsReader{windows: windows, above: above, without: without}
}

type windowsReader struct {
	windows []*table.Window
	above   func(fabric.Level) func(aggregate.LocationID) aggregate.LocationID
	without map[aggregate.CellKey]bool

	mu     sync.Mutex
	summed []*table.Window // of sum
	sum    table.Rows
}

// whole returns the sum of windows. It keeps the last one: all questions of a verdict are about the same windows.
func (r *windowsReader) whole(windows []*table.Window) table.Rows {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(windows, r.summed) {
		r.summed, r.sum = windows, table.Merge(windows)
	}
	return r.sum
}

// chosen returns the windows in the question's range.
func (r *windowsReader) chosen(q *Question) []*table.Window {
	list := slices.Clone(r.windows)
	return slices.DeleteFunc(list, func(w *table.Window) bool { return w.Start.Before(q.From) || !w.Start.Before(q.To) })
}

// each calls f for the rows of each step, as parts of all rows.
func (r *windowsReader) each(q *Question, f func(start int64, rows table.Rows)) error {
	windows := r.chosen(q)
	if len(windows) == 0 {
		return nil
	}
	step := int64(q.Step)
	if length := int64(windows[0].End.Sub(windows[0].Start)); step <= 0 || step%length != 0 {
		return fmt.Errorf("%w: step %s is not a multiple of the windows in memory, of %d ns", ErrInvalid, q.Step, length)
	}
	whole := r.whole(windows)
	for len(windows) > 0 {
		start := floorTo(windows[0].Start.UnixNano(), step)
		n := 1
		for n < len(windows) && windows[n].Start.UnixNano() < start+step {
			n++
		}
		f(start, table.Merge(windows[:n]).Within(whole).Without(r.without))
		windows = windows[n:]
	}
	return nil
}

// cells returns the question's cells in the rows, by source and destination.
func (r *windowsReader) cells(q *Question, rows table.Rows) []aggregate.CellStats {
	var level func(aggregate.LocationID) aggregate.LocationID
	if q.Level != fabric.LevelLocation {
		level = r.above(q.Level)
	}
	return slices.DeleteFunc(rows.Cells(q.Signal, level), func(c aggregate.CellStats) bool {
		return !takes(q, c.Src, c.Dst)
	})
}

// takes reports whether the question includes a cell.
func takes(q *Question, src, dst aggregate.GroupID) bool {
	return (q.Src == nil || src == *q.Src) && (q.Dst == nil || dst == *q.Dst) &&
		(len(q.Among) == 0 || slices.Contains(q.Among, store.Cell{Src: src, Dst: dst}))
}

// Cells implements Analytics.
func (r *windowsReader) Cells(_ context.Context, q Question) ([]aggregate.CellStats, error) {
	windows := r.chosen(&q)
	if len(windows) == 0 {
		return nil, nil
	}
	rows := r.whole(windows).WithTrend(windows, aggregate.LaterHalf(q.From.UnixNano(), q.To.UnixNano()))
	return r.cells(&q, rows.Without(r.without)), nil
}

// CellWindows implements Analytics.
func (r *windowsReader) CellWindows(_ context.Context, q Question) (list []aggregate.CellWindow, err error) {
	err = r.each(&q, func(start int64, rows table.Rows) {
		for _, c := range r.cells(&q, rows) {
			c.Since, c.Lasted, c.JudgedWindows, c.CongestedWindows = 0, 0, 0, 0 // as in the store
			list = append(list, aggregate.CellWindow{Start: start, CellStats: c})
		}
	})
	return list, err
}

// EachCellWindow implements Analytics.
func (r *windowsReader) EachCellWindow(ctx context.Context, q Question, n int, f func(*aggregate.CellWindow) error) (more bool, err error) {
	rows, err := r.CellWindows(ctx, q)
	for i := range rows {
		if i == n {
			return true, nil
		}
		if err := f(&rows[i]); err != nil {
			return false, err
		}
	}
	return false, err
}

// LocationWindows implements Analytics.
func (r *windowsReader) LocationWindows(_ context.Context, q Question) (list []aggregate.LocationWindow, err error) {
	err = r.each(&q, func(start int64, rows table.Rows) {
		for _, l := range rows.Locations(q.Signal, r.above(q.Level)) {
			list = append(list, aggregate.LocationWindow{Start: start, LocationStats: l})
		}
	})
	return list, err
}

// TopLocations implements Analytics.
func (r *windowsReader) TopLocations(_ context.Context, q Question, n int) ([]aggregate.LocationStats, error) {
	windows := r.chosen(&q)
	if len(windows) == 0 {
		return nil, nil
	}
	list := r.whole(windows).Without(r.without).Locations(q.Signal, r.above(q.Level))
	return list[:min(n, len(list))], nil
}

// CellLocations implements Analytics.
func (r *windowsReader) CellLocations(_ context.Context, q Question) ([]aggregate.CellLocation, error) {
	windows := r.chosen(&q)
	if len(windows) == 0 {
		return nil, nil
	}
	list := r.whole(windows).Without(r.without).CellLocationsOf(windows, q.Signal, aggregate.LaterHalf(q.From.UnixNano(), q.To.UnixNano()))
	return slices.DeleteFunc(list, func(c aggregate.CellLocation) bool { return !takes(&q, c.Src, c.Dst) }), nil
}
