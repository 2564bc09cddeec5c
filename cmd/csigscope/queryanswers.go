package main

import (
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/decode/csig"
)

var cellColumns = []string{
	"src_group", "dst_group", "kind", "state", "observations", "mean", "min", "max", "unit",
	"untouched", "trimmed", "heavy", "heavy_share",
	"mode", "mode_count", "mode_share", "mode_stage", "mode_candidates", "mode_ports",
	"runner_up", "runner_up_count",
}

func (q *question) cells() (*table, error) {
	rows, err := q.db.store.Cells(q.cmd.Context(), q.query)
	if err != nil {
		return nil, err
	}
	t := &table{columns: cellColumns}
	for i := range rows {
		t.rows = append(t.rows, q.cell(&rows[i]))
	}
	return t, nil
}

func (q *question) windows() (*table, error) {
	rows, err := q.db.store.CellWindows(q.cmd.Context(), q.query)
	if err != nil {
		return nil, err
	}
	t := &table{columns: append([]string{"window_start"}, cellColumns...)}
	for i := range rows {
		t.rows = append(t.rows, append([]any{stamp(rows[i].Window)}, q.cell(&rows[i].CellRow)...))
	}
	return t, nil
}

// cell is a row under cellColumns; what a cell has no value for is nil.
func (q *question) cell(c *store.CellRow) []any {
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

func (q *question) mode(c *store.CellRow) []any {
	if c.ModeCount == 0 {
		return make([]any, 6)
	}
	l := q.places[c.Mode]
	return []any{
		q.location(c.Mode), c.ModeCount, number(float64(c.ModeCount) / float64(c.Heavy)),
		l.Stage, l.CandidateCount, strings.Join(l.Candidates, " "),
	}
}

func (q *question) locations() (*table, error) {
	rows, err := q.db.store.TopLocations(q.cmd.Context(), q.query, q.top)
	if err != nil {
		return nil, err
	}
	t := &table{columns: []string{"location", "stage", "candidates", "observations", "heavy", "heavy_mean", "unit", "cells"}}
	for _, r := range rows {
		t.rows = append(t.rows, append(q.place(r.Location), r.Observations, r.Heavy, q.heavyMean(r.HeavySum, r.Heavy), q.query.Signal.Unit().String(), r.Cells))
	}
	return t, nil
}

func (q *question) timeline() (*table, error) {
	rows, err := q.db.store.LocationWindows(q.cmd.Context(), q.query)
	if err != nil {
		return nil, err
	}
	t := &table{columns: []string{"window_start", "location", "stage", "candidates", "observations", "heavy", "heavy_mean", "unit"}}
	for _, r := range rows {
		row := append([]any{stamp(r.Window)}, q.place(r.Location)...)
		t.rows = append(t.rows, append(row, r.Observations, r.Heavy, q.heavyMean(r.HeavySum, r.Heavy), q.query.Signal.Unit().String()))
	}
	return t, nil
}

func (q *question) place(id aggregate.LocationID) []any {
	l, ok := q.places[id]
	if !ok {
		return []any{q.location(id), nil, nil}
	}
	return []any{l.Name, l.Stage, l.CandidateCount}
}

// heavyMean is the mean of heavy observations in the signal's unit, nil without any.
func (q *question) heavyMean(sum, heavy uint64) any {
	if heavy == 0 {
		return nil
	}
	return float64(sum) / float64(heavy) * q.query.Signal.Unit().PerStored()
}

func newQueryExtent() *cobra.Command {
	var dsn, output string
	cmd := &cobra.Command{Use: "extent", Short: "What is stored: time range, signals, resolutions", Args: usageArgs(cobra.NoArgs)}
	addStoreFlag(cmd, &dsn)
	addOutputFlag(cmd, &output)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		db, err := openForReading(cmd, dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		e, err := db.store.Extent(cmd.Context())
		if err != nil {
			return err
		}
		partial, err := notePartial(cmd.Context(), cmd.ErrOrStderr(), db)
		if err != nil {
			return err
		}
		incomplete := any(nil)
		if len(partial) > 0 {
			incomplete = strings.Join(partial, ", ")
		}
		signals := csig.SignalNames(e.Signals)
		var resolutions []string
		for _, r := range e.Resolutions {
			resolutions = append(resolutions, r.String())
		}
		t := table{columns: []string{"first", "last", "signals", "resolutions", "observations", "heavy", "incomplete"}}
		t.rows = [][]any{{stamp(e.First), stamp(e.Last), strings.Join(signals, " "), strings.Join(resolutions, " "), e.Observations, e.Heavy, incomplete}}
		return t.write(cmd.OutOrStdout(), output)
	}
	return cmd
}

// number is v, or nil where there is none.
func number(v float64) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return v
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
