package api

import (
	"context"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/table"
)

// maxSide bounds the rows of a matrix.
const maxSide = 512

type matrixInput struct {
	SignalInput
	RangeInput
	WaitInput
	GroupInput
}

func (a *API) matrix(ctx context.Context, s *table.State, in *matrixInput) (*answer, error) {
	chosen := FilterInput{GroupInput: in.GroupInput}
	if s == nil {
		q, err := a.question(ctx, &in.SignalInput, &in.TimesInput)
		if err != nil {
			return nil, err
		}
		cells, err := a.pastCells(ctx, q, &chosen)
		if err != nil {
			return nil, err
		}
		n, err := a.history(ctx)
		if err != nil {
			return nil, err
		}
		return n.matrix(nil, pastAbout(q), cells)
	}
	v, k, err := a.asked(ctx, s, &in.SignalInput, in.Windows)
	if err != nil {
		return nil, err
	}
	f, err := chosen.filter(v.names, k.signal)
	if err != nil {
		return nil, err
	}
	return v.names.matrix(s, about(s, k), v.models(v.chosen(&f)))
}

// matrix puts cells in rows and columns.
func (n *names) matrix(s *table.State, about model.About, cells []model.Cell) (*answer, error) {
	axis := n.axis(cells)
	side := len(axis)
	if side > maxSide {
		return nil, wrong("src", nil, "the matrix has %d groups, at most %d: name src and dst, or ask for cells", side, maxSide)
	}
	// Without cells there are no rows, which JSON has to say as an empty list.
	m := model.Matrix{
		About: about, Groups: axis, Mean: make([][]*float64, 0, side), Heavy: make([][]*float64, 0, side), Mode: make([][]*string, 0, side), State: make([][]model.CellState, 0, side),
	}
	place := make(map[string]int, side)
	for i, name := range axis {
		place[name] = i
		m.Mean, m.Heavy = append(m.Mean, make([]*float64, side)), append(m.Heavy, make([]*float64, side))
		m.Mode = append(m.Mode, make([]*string, side))
		m.State = append(m.State, slices.Repeat([]model.CellState{model.CellState(aggregate.NoData.String())}, side))
	}
	for i := range cells {
		c := &cells[i]
		row, column := place[c.Src], place[c.Dst]
		m.State[row][column], m.Heavy[row][column] = model.CellState(c.State), &c.HeavyRatio
		if mean, _, ok := c.Mean.Value(); ok {
			m.Mean[row][column] = &mean
		}
		if c.Mode != nil {
			m.Mode[row][column] = &c.Mode.Location
		}
	}
	return of(s, &m)
}

// axis are the groups of cells in the catalog's order.
func (n *names) axis(cells []model.Cell) []string {
	missing := make(map[string]bool)
	for i := range cells {
		missing[cells[i].Src], missing[cells[i].Dst] = true, true
	}
	axis := make([]string, 0, len(missing))
	add := func(name string) {
		if missing[name] {
			axis = append(axis, name)
			delete(missing, name)
		}
	}
	for _, g := range n.groups {
		add(g.Name)
	}
	for i := range cells {
		add(cells[i].Src)
		add(cells[i].Dst)
	}
	return axis
}
