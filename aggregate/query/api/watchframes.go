package api

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

// inFrames is the encoding of a watch whose cells come as query.FramesHead says.
const inFrames = "frames"

// asFrames puts cells of a window, or of several that begin then, into an event.
func asFrames(cells []aggregate.CellStats, start, end time.Time, into *[]byte) (size int, err error) {
	rows := make([]query.CellRow, len(cells))
	for i := range cells {
		rows[i] = frameRow(&cells[i], start.UnixNano())
	}
	if *into, err = query.EncodeFrames(int64(end.Sub(start)), rows, false); err != nil {
		return 0, fmt.Errorf("encode cells: %w", err)
	}
	return len(*into), nil
}

func frameRow(c *aggregate.CellStats, window int64) query.CellRow {
	r := query.CellRow{
		Window: window, Src: c.Src, Dst: c.Dst, Kind: c.Kind, Observations: c.Observations,
		Mean: math.NaN(), Min: math.NaN(), Max: math.NaN(),
		Untouched: c.Untouched, Trimmed: c.Trimmed, Heavy: c.Heavy,
		Mode: c.Mode, ModeCount: c.ModeCount, RunnerUp: c.RunnerUp, RunnerUpCount: c.RunnerUpCount,
	}
	if unit := c.Signal.Unit(); c.Measured > 0 && unit != csig.UnitNone {
		r.Mean, r.Min, r.Max = c.Mean()*unit.PerStored(), unit.FromStored(c.Min), unit.FromStored(c.Max)
	}
	return r
}

// only are the chosen cells.
func (v *view) only(chosen []int) []aggregate.CellStats {
	if len(chosen) == len(v.cells) {
		return v.cells
	}
	list := make([]aggregate.CellStats, len(chosen))
	for n, i := range chosen {
		list[n] = v.cells[i]
	}
	return list
}

// base is the window that a watcher was told of last in an event of its own, of those that
// were the newest then. The zero value is none.
type base struct {
	window *table.Window
	is     baseIs
}

// baseIs tells bases apart, without keeping their windows. names is the version of the names
// that the window was told under.
type baseIs struct {
	revision uint64
	start    int64 // Unix ns
	names    uint64
}

func baseOf(w *table.Window, names uint64) base {
	return base{w, baseIs{w.Revision, w.Start.UnixNano(), names}}
}

// windowFrames puts the cells of a window into its event: those that differ from the base,
// where it has one and that is less than all of them.
func (w *watch) windowFrames(ctx context.Context, into *model.WindowEvent, v *view, f *filter, is baseIs) (content, error) {
	cells := v.only(v.chosen(f))
	// Under other names, cells would not be compared with what was told.
	if last := w.base; last.window != nil && last.is == is && is.names == v.names.version {
		before, err := w.api.windowView(ctx, last.window, w.key.signal, w.key.level)
		if err != nil {
			return content{}, w.api.answerable(ctx, err)
		}
		changed, few := changes(before.only(before.chosen(f)), cells, len(cells)/2)
		if few && before.names == v.names {
			cells, into.Base = changed, &last.window.Start
		}
	}
	into.Values = []model.Cell{} // which are in the frames
	size, err := asFrames(cells, into.Start, into.End, &into.Frames)
	return content{value: into, bytes: size}, err
}

// changes are the cells that are not as they were before, and those that have gone, without
// observations; few is false where they are more than most. All are ordered by source and
// destination.
func changes(before, now []aggregate.CellStats, most int) (list []aggregate.CellStats, few bool) {
	for len(before) > 0 || len(now) > 0 {
		if len(list) > most {
			return nil, false
		}
		order := 1 // where there are none before any more
		if len(before) > 0 {
			order = -1
			if len(now) > 0 {
				order = cmp.Or(cmp.Compare(before[0].Src, now[0].Src), cmp.Compare(before[0].Dst, now[0].Dst))
			}
		}
		switch {
		case order < 0:
			gone := aggregate.CellStats{Src: before[0].Src, Dst: before[0].Dst, Signal: before[0].Signal, Kind: before[0].Kind}
			list, before = append(list, gone), before[1:]
		case order > 0:
			list, now = append(list, now[0]), now[1:]
		default:
			if before[0] != now[0] {
				list = append(list, now[0])
			}
			before, now = before[1:], now[1:]
		}
	}
	return list, len(list) <= most
}
