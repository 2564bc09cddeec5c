package query

import (
	"fmt"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
)

func (b *builder) signalData(raw rawSignal, axes *axes, places *places) (SignalData, error) {
	var d SignalData
	var err error
	if d.Cells, err = b.cellColumns(raw.cells, true, axes, places); err != nil {
		return d, err
	}
	if d.Total, err = b.cellColumns(raw.totals, false, axes, places); err != nil {
		return d, err
	}
	for i := range d.Total.Src {
		d.Sum.Observations = aggregate.AddSat(d.Sum.Observations, d.Total.Observations[i])
		d.Sum.Untouched = aggregate.AddSat(d.Sum.Untouched, d.Total.Untouched[i])
		d.Sum.Trimmed = aggregate.AddSat(d.Sum.Trimmed, d.Total.Trimmed[i])
		d.Sum.Heavy = aggregate.AddSat(d.Sum.Heavy, d.Total.Heavy[i])
	}
	n := len(raw.locations)
	d.Locations = LocationColumns{
		Window: make([]int, 0, n), Location: make([]int, 0, n),
		Observations: make([]uint64, 0, n), Heavy: make([]uint64, 0, n),
	}
	l := &d.Locations
	for _, row := range raw.locations {
		w, err := b.windowIndex(row.Window)
		if err != nil {
			return d, err
		}
		l.Window = append(l.Window, w)
		l.Location = append(l.Location, places.index(row.Location))
		l.Observations = append(l.Observations, row.Observations)
		l.Heavy = append(l.Heavy, row.Heavy)
	}
	return d, nil
}

// cellColumns turns rows into columns. The numbers that no level changes come from
// the first level; the modes of the others are joined by key, since a live store
// may have taken in more between two reads.
func (b *builder) cellColumns(levels [][]CellRow, windowed bool, axes *axes, places *places) (Cells, error) {
	c := newCells(len(levels[0]))
	for _, row := range levels[0] {
		if windowed {
			w, err := b.windowIndex(row.Window)
			if err != nil {
				return c, err
			}
			c.Window = append(c.Window, w)
		}
		c.Src = append(c.Src, axes.index[row.Src])
		c.Dst = append(c.Dst, axes.index[row.Dst])
		c.Kind = append(c.Kind, int(row.Kind))
		c.Observations = append(c.Observations, row.Observations)
		c.Mean = append(c.Mean, row.Mean)
		c.Min = append(c.Min, row.Min)
		c.Max = append(c.Max, row.Max)
		c.Untouched = append(c.Untouched, row.Untouched)
		c.Trimmed = append(c.Trimmed, row.Trimmed)
		c.Heavy = append(c.Heavy, row.Heavy)
	}
	for i, level := range b.options.Levels {
		c.Modes[level.String()] = modeColumns(levels[0], levels[i], places)
	}
	return c, nil
}

// newCells has room for n rows, and columns that are empty rather than null in JSON.
func newCells(n int) Cells {
	return Cells{
		Window: make([]int, 0, n), Src: make([]int, 0, n), Dst: make([]int, 0, n), Kind: make([]int, 0, n),
		Observations: make([]uint64, 0, n),
		Mean:         make(Values, 0, n), Min: make(Values, 0, n), Max: make(Values, 0, n),
		Untouched: make([]uint64, 0, n), Trimmed: make([]uint64, 0, n), Heavy: make([]uint64, 0, n),
		Modes: map[string]*ModeColumns{},
	}
}

func modeColumns(base, rows []CellRow, places *places) *ModeColumns {
	n := len(base)
	m := &ModeColumns{
		Mode: make([]int, 0, n), ModeCount: make([]uint64, 0, n),
		RunnerUp: make([]int, 0, n), RunnerUpCount: make([]uint64, 0, n),
	}
	for _, cell := range base {
		at, found := slices.BinarySearchFunc(rows, cell, compareCells)
		var row CellRow
		if found {
			row = rows[at]
		}
		m.Mode = append(m.Mode, places.index(row.Mode))
		m.ModeCount = append(m.ModeCount, row.ModeCount)
		m.RunnerUp = append(m.RunnerUp, places.index(row.RunnerUp))
		m.RunnerUpCount = append(m.RunnerUpCount, row.RunnerUpCount)
	}
	return m
}

// windowIndex refuses rows off the grid: they would be drawn at a wrong time.
func (b *builder) windowIndex(start int64) (int, error) {
	if start < b.plan.from || start >= b.plan.to || (start-b.plan.from)%b.plan.step != 0 {
		return 0, fmt.Errorf("place window %d: not one of the %d windows of %d ns from %d",
			start, b.plan.windows(), b.plan.step, b.plan.from)
	}
	return int((start - b.plan.from) / b.plan.step), nil
}

// visit calls f for every location that the rows name.
func (s rawSignal) visit(f func(aggregate.LocationID)) {
	for _, rows := range slices.Concat(s.cells, s.totals) {
		for _, row := range rows {
			f(row.Mode)
			f(row.RunnerUp)
		}
	}
	for _, row := range s.locations {
		f(row.Location)
	}
}
