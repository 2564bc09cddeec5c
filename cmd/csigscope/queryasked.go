package main

import (
	"context"
	"net/url"

	"github.com/csigscope/csigscope/aggregate/query/client"
	"github.com/csigscope/csigscope/aggregate/query/model"
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

func askCells(ctx context.Context, c *client.Client, parameters url.Values) (*table, error) {
	page, err := c.AllCells(ctx, parameters)
	if err != nil {
		return nil, err
	}
	t := &table{columns: serverColumns}
	for i := range page.Values {
		t.rows = append(t.rows, serverRow(&page.Values[i]))
	}
	return t, nil
}

func askLocations(ctx context.Context, c *client.Client, parameters url.Values) (*table, error) {
	found, err := c.Locations(ctx, parameters)
	if err != nil {
		return nil, err
	}
	t := &table{columns: []string{"location", "stage", "observations", "heavy", "heavy_mean", "unit", "cells"}}
	for _, l := range found.Values {
		t.rows = append(t.rows, append(locationRow(&l), l.Cells))
	}
	return t, nil
}

func locationRow(l *model.Location) []any {
	return append([]any{l.Location, orNil(l.Stage), l.Observations, l.Heavy}, valueRow(l.HeavyMean)...)
}

func askTimeline(ctx context.Context, c *client.Client, parameters url.Values) (*table, error) {
	line, err := c.Timeline(ctx, parameters)
	if err != nil {
		return nil, err
	}
	t := &table{columns: []string{
		"window_start", "completeness", "cells", "congested", "location", "stage", "observations", "heavy", "heavy_mean", "unit",
	}}
	for i := range line.Values {
		m := &line.Values[i]
		head := []any{stamp(m.Start), m.Completeness, m.Cells, m.Congested}
		if len(m.Locations) == 0 {
			t.rows = append(t.rows, append(head, nil, nil, m.Observations, m.Heavy, nil, nil))
		}
		for n := range m.Locations {
			t.rows = append(t.rows, append(head[:len(head):len(head)], locationRow(&m.Locations[n])...))
		}
	}
	return t, nil
}

func askFlows(ctx context.Context, c *client.Client, parameters url.Values) (*table, error) {
	found, err := c.Flows(ctx, topAsLimit(parameters))
	if err != nil {
		return nil, err
	}
	t := &table{columns: flowColumns}
	for i := range found.Values {
		f := &found.Values[i]
		row := []any{"others", nil, "others", nil, nil}
		if !f.Others {
			row = []any{f.Src, f.SrcPort, f.Dst, f.DstPort, f.Proto}
		}
		row = append(row, f.SrcGroup, f.DstGroup, f.Kind, f.Observations, f.Bytes)
		row = append(row, valueRow(f.Mean, f.Min, f.Max)...)
		row = append(row, f.Heavy, f.Windows)
		t.rows = append(t.rows, append(row, bottleneckRow(f.Mode, false)...))
	}
	return t, nil
}

func askFindings(ctx context.Context, c *client.Client, parameters url.Values) (*table, error) {
	found, err := c.Findings(ctx, topAsLimit(parameters))
	if err != nil {
		return nil, err
	}
	t := &table{columns: findingColumns}
	for i := range found.Values {
		f := &found.Values[i]
		t.rows = append(t.rows, []any{
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

// orNil is text, or nil where there is none.
func orNil(text string) any {
	if text == "" {
		return nil
	}
	return text
}
