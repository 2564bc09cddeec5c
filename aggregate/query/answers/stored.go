package answers

import (
	"context"
	"strings"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/decode/csig"
)

var cellColumns = []string{
	"src_group", "dst_group", "kind", "state", "observations", "mean", "min", "max", "unit",
	"untouched", "trimmed", "heavy", "heavy_share",
	"mode", "mode_count", "mode_share", "mode_stage", "mode_candidates", "mode_ports",
	"runner_up", "runner_up_count",
}

// Cells are the cells over the range.
func (q *Question) Cells(ctx context.Context) (*tabular.Listing, error) {
	rows, err := q.store.Cells(ctx, q.query)
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: cellColumns}
	for i := range rows {
		t.Rows = append(t.Rows, q.cell(&rows[i]))
	}
	return t, nil
}

// Windows are the cells of each window of the range.
func (q *Question) Windows(ctx context.Context) (*tabular.Listing, error) {
	rows, err := q.store.CellWindows(ctx, q.query)
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: append([]string{"window_start"}, cellColumns...)}
	for i := range rows {
		t.Rows = append(t.Rows, append([]any{stamp(rows[i].Window)}, q.cell(&rows[i].CellRow)...))
	}
	return t, nil
}

// cell is a row under cellColumns; what a cell has no value for is nil.
func (q *Question) cell(c *store.CellRow) []any {
	unit := q.query.Signal.Unit()
	row := []any{
		q.group(c.Src), q.group(c.Dst), c.Kind.String(), c.State, c.Observations, number(c.Mean), nil, nil, unit.String(),
		c.Untouched, c.Trimmed, c.Heavy, number(float64(c.Heavy) / float64(c.Observations)),
	}
	if c.Measured > 0 {
		row[6], row[7] = unit.FromStored(c.Min), unit.FromStored(c.Max)
	}
	row = append(row, q.mode(c)...)
	if c.RunnerUpCount == 0 {
		return append(row, nil, nil)
	}
	return append(row, q.location(c.RunnerUp), c.RunnerUpCount)
}

func (q *Question) mode(c *store.CellRow) []any {
	if c.ModeCount == 0 {
		return make([]any, 6)
	}
	l := q.places[c.Mode]
	return []any{
		q.location(c.Mode), c.ModeCount, number(float64(c.ModeCount) / float64(c.Heavy)),
		l.Stage, l.CandidateCount, strings.Join(l.Candidates, " "),
	}
}

// Locations are the locations that heavily loaded packets name most often, Top at most.
func (q *Question) Locations(ctx context.Context) (*tabular.Listing, error) {
	rows, err := q.store.TopLocations(ctx, q.query, q.params.Top)
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: []string{"location", "stage", "candidates", "observations", "heavy", "heavy_mean", "unit", "cells"}}
	for _, r := range rows {
		t.Rows = append(t.Rows, append(q.place(r.Location), r.Observations, r.Heavy, q.heavyMean(r.HeavySum, r.Heavy), q.query.Signal.Unit().String(), r.Cells))
	}
	return t, nil
}

// Timeline is the same for each window of the range, of all locations.
func (q *Question) Timeline(ctx context.Context) (*tabular.Listing, error) {
	rows, err := q.store.LocationWindows(ctx, q.query)
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: []string{"window_start", "location", "stage", "candidates", "observations", "heavy", "heavy_mean", "unit"}}
	for _, r := range rows {
		row := append([]any{stamp(r.Window)}, q.place(r.Location)...)
		t.Rows = append(t.Rows, append(row, r.Observations, r.Heavy, q.heavyMean(r.HeavySum, r.Heavy), q.query.Signal.Unit().String()))
	}
	return t, nil
}

func (q *Question) place(id aggregate.LocationID) []any {
	l, ok := q.places[id]
	if !ok {
		return []any{q.location(id), nil, nil}
	}
	return []any{l.Name, l.Stage, l.CandidateCount}
}

// heavyMean is the mean of heavy observations in the signal's unit, nil without any.
func (q *Question) heavyMean(sum, heavy uint64) any {
	if heavy == 0 {
		return nil
	}
	return float64(sum) / float64(heavy) * q.query.Signal.Unit().PerStored()
}

// Extent is what is stored, with the captures of which only a part is.
func Extent(e store.Extent, incomplete []string) *tabular.Listing {
	var resolutions []string
	for _, r := range e.Resolutions {
		resolutions = append(resolutions, r.String())
	}
	return &tabular.Listing{
		Columns: []string{"first", "last", "signals", "resolutions", "observations", "heavy", "incomplete"},
		Rows: [][]any{{
			stampOrNil(e.First), stampOrNil(e.Last), strings.Join(csig.SignalNames(e.Signals), " "), strings.Join(resolutions, " "), e.Observations, e.Heavy,
			orNil(strings.Join(incomplete, ", ")),
		}},
	}
}
