package answers

import (
	"math"
	"time"
)

// Rows that a store and a server both have, and their columns. What has no value is nil.

// cellColumns are those of a cell.
var cellColumns = []string{
	"src_group", "dst_group", "kind", "state", "observations", "mean", "min", "max", "unit",
	"untouched", "trimmed", "heavy", "heavy_share", "mode", "mode_count", "mode_share", "runner_up", "runner_up_count",
}

// cell is a row under cellColumns.
type cell struct {
	src, dst, kind, state     string
	observations              uint64
	values                    values
	untouched, trimmed, heavy uint64
	mode, runnerUp            bottleneck
}

func (c *cell) row() []any {
	row := append([]any{c.src, c.dst, c.kind, c.state, c.observations}, c.values[:]...)
	row = append(row, c.untouched, c.trimmed, c.heavy, number(float64(c.heavy)/float64(c.observations)))
	row = append(row, c.mode.row(c.heavy)...)
	return append(row, c.runnerUp.row(c.heavy)[:2]...)
}

// values are the mean, the least and the largest, and their unit.
type values [4]any

// bottleneck is a location and the heavy observations that name it; the zero value is none.
type bottleneck struct {
	location string
	heavy    uint64
}

// row has the location, its heavy observations, and their share of so many.
func (b bottleneck) row(of uint64) []any {
	if b.heavy == 0 {
		return []any{nil, nil, nil}
	}
	return []any{b.location, b.heavy, number(float64(b.heavy) / float64(of))}
}

// locationColumns are those of a location.
var locationColumns = []string{"location", "stage", "observations", "heavy", "heavy_mean", "unit"}

// flowColumns are those of a flow.
var flowColumns = []string{
	"src", "src_port", "dst", "dst_port", "proto", "src_group", "dst_group", "kind", "observations", "bytes",
	"mean", "min", "max", "unit", "heavy", "windows", "location", "location_heavy",
}

// flow is a row under flowColumns. Without a source it is what all others come to.
type flow struct {
	src, dst                 string
	srcPort, dstPort         uint16
	proto                    uint8
	srcGroup, dstGroup, kind string
	observations, bytes      uint64
	values                   values
	heavy, windows           uint64
	mode                     bottleneck
}

func (f *flow) row() []any {
	row := []any{"others", nil, "others", nil, nil}
	if f.src != "" {
		row = []any{f.src, f.srcPort, f.dst, f.dstPort, f.proto}
	}
	row = append(row, f.srcGroup, f.dstGroup, f.kind, f.observations, f.bytes)
	row = append(append(row, f.values[:]...), f.heavy, f.windows)
	return append(row, f.mode.row(f.heavy)[:2]...)
}

// findingColumns are those of a finding.
var findingColumns = []string{"severity", "kind", "id", "first", "last", "count", "device", "port", "location", "evidence"}

// number is v, or nil where there is none.
func number(v float64) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return v
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// stampNS is stamp of Unix ns.
func stampNS(ns int64) string { return stamp(time.Unix(0, ns)) }

// stampOrNil is a time, or nil for none.
func stampOrNil(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return stamp(t)
}

// orNil is text, or nil where there is none.
func orNil(text string) any {
	if text == "" {
		return nil
	}
	return text
}
