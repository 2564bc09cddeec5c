package answers

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate/query/client"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
)

// serverColumns are those of cells that a server answers with.
var serverColumns = []string{
	"src_group", "dst_group", "kind", "state", "observations", "mean", "min", "max", "unit",
	"untouched", "trimmed", "heavy", "heavy_share", "mode", "mode_count", "mode_share", "runner_up", "runner_up_count",
}

// serverRow is a cell under serverColumns.
func serverRow(c *model.Cell) []any {
	row := []any{c.Src, c.Dst, c.Kind, c.State, c.Observations}
	row = append(row, valueRow(c.Mean, c.Min, c.Max)...)
	row = append(row, c.Untouched, c.Trimmed, c.Heavy, c.HeavyRatio)
	row = append(row, bottleneckRow(c.Mode, true)...)
	return append(row, bottleneckRow(c.RunnerUp, false)...)
}

func bottleneckRow(b *model.Bottleneck, withShare bool) []any {
	var row []any
	if b == nil {
		row = []any{nil, nil, nil}
	} else {
		row = []any{b.Location, b.Heavy, b.ShareRatio}
	}
	if !withShare {
		return row[:2]
	}
	return row
}

// valueRow are the values of some measures, and their unit.
func valueRow(list ...*model.Measure) []any {
	var row []any
	unit := any(nil)
	for _, m := range list {
		v, u, ok := m.Value()
		if !ok {
			row = append(row, nil)
			continue
		}
		row, unit = append(row, v), u
	}
	return append(row, unit)
}

// ServedCells asks a server for cells, of all pages.
func ServedCells(ctx context.Context, c *client.Client, parameters url.Values) (*tabular.Listing, error) {
	page, err := c.AllCells(ctx, parameters)
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: serverColumns}
	for i := range page.Values {
		t.Rows = append(t.Rows, serverRow(&page.Values[i]))
	}
	return t, nil
}

// ServedLocations asks a server for locations.
func ServedLocations(ctx context.Context, c *client.Client, parameters url.Values) (*tabular.Listing, error) {
	found, err := c.Locations(ctx, parameters)
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: []string{"location", "stage", "observations", "heavy", "heavy_mean", "unit", "cells"}}
	for _, l := range found.Values {
		t.Rows = append(t.Rows, append(locationRow(&l), l.Cells))
	}
	return t, nil
}

func locationRow(l *model.Location) []any {
	return append([]any{l.Location, orNil(l.Stage), l.Observations, l.Heavy}, valueRow(l.HeavyMean)...)
}

// ServedTimeline asks a server for locations by window.
func ServedTimeline(ctx context.Context, c *client.Client, parameters url.Values) (*tabular.Listing, error) {
	line, err := c.Timeline(ctx, parameters)
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: []string{
		"window_start", "completeness", "cells", "congested", "location", "stage", "observations", "heavy", "heavy_mean", "unit",
	}}
	for i := range line.Values {
		m := &line.Values[i]
		head := []any{stamp(m.Start), m.Completeness, m.Cells, m.Congested}
		if len(m.Locations) == 0 {
			t.Rows = append(t.Rows, append(head, nil, nil, m.Observations, m.Heavy, nil, nil))
		}
		for n := range m.Locations {
			t.Rows = append(t.Rows, append(head[:len(head):len(head)], locationRow(&m.Locations[n])...))
		}
	}
	return t, nil
}

// ServedFlows asks a server for flows, of the first page, of top rows.
func ServedFlows(ctx context.Context, c *client.Client, parameters url.Values) (*tabular.Listing, error) {
	found, err := c.Flows(ctx, topAsLimit(parameters))
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: flowColumns}
	for i := range found.Values {
		f := &found.Values[i]
		row := []any{"others", nil, "others", nil, nil}
		if !f.Others {
			row = []any{f.Src, f.SrcPort, f.Dst, f.DstPort, f.Proto}
		}
		row = append(row, f.SrcGroup, f.DstGroup, f.Kind, f.Observations, f.Bytes)
		row = append(row, valueRow(f.Mean, f.Min, f.Max)...)
		row = append(row, f.Heavy, f.Windows)
		t.Rows = append(t.Rows, append(row, bottleneckRow(f.Mode, false)...))
	}
	return t, nil
}

// ServedFindings asks a server for findings, likewise.
func ServedFindings(ctx context.Context, c *client.Client, parameters url.Values) (*tabular.Listing, error) {
	found, err := c.Findings(ctx, topAsLimit(parameters))
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: findingColumns}
	for i := range found.Values {
		f := &found.Values[i]
		t.Rows = append(t.Rows, []any{
			f.Severity, f.Kind, f.ID, stamp(f.First), stamp(f.Last), f.Count, orNil(f.Device), orNil(f.Port), orNil(f.Location), orNil(f.Evidence),
		})
	}
	return t, nil
}

// topAsLimit asks for the first page alone, of so many rows.
func topAsLimit(parameters url.Values) url.Values {
	if top, ok := parameters["top"]; ok {
		delete(parameters, "top")
		parameters["limit"] = top
	}
	return parameters
}

// Window are cells under the start of their window.
func Window(start time.Time, cells []model.Cell) *tabular.Listing {
	t := &tabular.Listing{Columns: append([]string{"window_start"}, serverColumns...)}
	for i := range cells {
		t.Rows = append(t.Rows, append([]any{stamp(start)}, serverRow(&cells[i])...))
	}
	return t
}

// Path is the cell of a path, before it what is left and what limits it.
func Path(p *model.Path) *tabular.Listing {
	t := &tabular.Listing{Columns: append([]string{"room", "limit", "candidates", "ports", "age_s", "completeness", "from", "to"}, serverColumns...)}
	row := []any{nil, nil, nil, nil, p.AgeSeconds, p.Completeness, stamp(p.From), stamp(p.To)}
	if v, _, ok := p.Room.Value(); ok {
		row[0] = v
	}
	if l := p.Limit; l != nil {
		row[1], row[2], row[3] = l.Location, l.CandidateCount, strings.Join(l.Candidates, " ")
	}
	t.Rows = [][]any{append(row, serverRow(&p.Cell)...)}
	return t
}
