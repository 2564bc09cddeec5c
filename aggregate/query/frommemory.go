package query

import (
	"context"
	"fmt"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/table"
)

// FromWindows reads windows in memory, ascending, as FromStore reads the same windows in a
// store, except that the locations of single windows have their number of cells. above maps
// locations to those that stand for them at a level; nil where all stand for themselves.
func FromWindows(windows []*table.Window, above func(fabric.Level) func(aggregate.LocationID) aggregate.LocationID) Analytics {
	return windowsReader{windows, above}
}

type windowsReader struct {
	windows []*table.Window
	above   func(fabric.Level) func(aggregate.LocationID) aggregate.LocationID
}

// chosen are the windows that the question is about.
func (r windowsReader) chosen(q *Question) []*table.Window {
	list := slices.Clone(r.windows)
	return slices.DeleteFunc(list, func(w *table.Window) bool { return w.Start.Before(q.From) || !w.Start.Before(q.To) })
}

// each calls f for the rows of each step, as parts of all rows.
func (r windowsReader) each(q *Question, f func(start int64, rows table.Rows)) error {
	windows := r.chosen(q)
	if len(windows) == 0 {
		return nil
	}
	step := int64(q.Step)
	if length := int64(windows[0].End.Sub(windows[0].Start)); step <= 0 || step%length != 0 {
		return fmt.Errorf("%w: step %s is not a multiple of the windows in memory, of %d ns", ErrInvalid, q.Step, length)
	}
	whole := table.Merge(windows)
	for len(windows) > 0 {
		start := floorTo(windows[0].Start.UnixNano(), step)
		n := 1
		for n < len(windows) && windows[n].Start.UnixNano() < start+step {
			n++
		}
		f(start, table.Merge(windows[:n]).Within(whole))
		windows = windows[n:]
	}
	return nil
}

// cells are those of the rows that the question is about, by source and destination.
func (r windowsReader) cells(q *Question, rows table.Rows) []aggregate.CellStats {
	return slices.DeleteFunc(rows.Cells(q.Signal, r.above(q.Level)), func(c aggregate.CellStats) bool {
		return q.Src != nil && c.Src != *q.Src || q.Dst != nil && c.Dst != *q.Dst ||
			len(q.Among) > 0 && !slices.Contains(q.Among, store.Cell{Src: c.Src, Dst: c.Dst})
	})
}

// Cells implements Analytics.
func (r windowsReader) Cells(_ context.Context, q Question) ([]aggregate.CellStats, error) {
	windows := r.chosen(&q)
	if len(windows) == 0 {
		return nil, nil
	}
	return r.cells(&q, table.Merge(windows)), nil
}

// CellWindows implements Analytics.
func (r windowsReader) CellWindows(_ context.Context, q Question) (list []aggregate.CellWindow, err error) {
	err = r.each(&q, func(start int64, rows table.Rows) {
		for _, c := range r.cells(&q, rows) {
			list = append(list, aggregate.CellWindow{Start: start, CellStats: c})
		}
	})
	return list, err
}

// EachCellWindow implements Analytics.
func (r windowsReader) EachCellWindow(ctx context.Context, q Question, n int, f func(*aggregate.CellWindow) error) (more bool, err error) {
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
func (r windowsReader) LocationWindows(_ context.Context, q Question) (list []aggregate.LocationWindow, err error) {
	err = r.each(&q, func(start int64, rows table.Rows) {
		for _, l := range rows.Locations(q.Signal, r.above(q.Level)) {
			list = append(list, aggregate.LocationWindow{Start: start, LocationStats: l})
		}
	})
	return list, err
}

// TopLocations implements Analytics.
func (r windowsReader) TopLocations(_ context.Context, q Question, n int) ([]aggregate.LocationStats, error) {
	windows := r.chosen(&q)
	if len(windows) == 0 {
		return nil, nil
	}
	list := table.Merge(windows).Locations(q.Signal, r.above(q.Level))
	return list[:min(n, len(list))], nil
}
