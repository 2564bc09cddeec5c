package answers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/decode/csig"
)

// storedCellColumns also have the mode's stage and candidates, which a server does not name.
var storedCellColumns = append(slices.Clone(cellColumns), "mode_stage", "mode_candidates", "mode_ports")

// Cells are the cells over the range.
func (q *Question) Cells(ctx context.Context) (*tabular.Listing, error) {
	rows, err := q.store.Cells(ctx, q.query)
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: storedCellColumns}
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
	t := &tabular.Listing{Columns: append([]string{"window_start"}, storedCellColumns...)}
	for i := range rows {
		t.Rows = append(t.Rows, append([]any{stampNS(rows[i].Start)}, q.cell(&rows[i].CellStats)...))
	}
	return t, nil
}

// cell is a row under storedCellColumns.
func (q *Question) cell(c *aggregate.CellStats) []any {
	row := cell{
		src: q.group(c.Src), dst: q.group(c.Dst), kind: c.Kind.String(), state: c.State.String(), observations: c.Observations,
		values:    q.values(c.MeanValue(), c.MinValue(), c.MaxValue()),
		untouched: c.Untouched, trimmed: c.Trimmed, heavy: c.Heavy,
		mode: bottleneck{q.location(c.Mode), c.ModeCount}, runnerUp: bottleneck{q.location(c.RunnerUp), c.RunnerUpCount},
	}
	if c.ModeCount == 0 {
		return append(row.row(), nil, nil, nil)
	}
	l := q.places[c.Mode]
	return append(row.row(), l.Stage, l.CandidateCount, strings.Join(l.Candidates, " "))
}

func (q *Question) values(mean, least, most float64) values {
	return values{number(mean), number(least), number(most), q.query.Signal.Unit().String()}
}

// Locations are the locations that heavily loaded packets name most often, Top at most.
func (q *Question) Locations(ctx context.Context) (*tabular.Listing, error) {
	rows, err := q.store.TopLocations(ctx, q.query, q.params.Top)
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: append(slices.Clone(locationColumns), "candidates", "cells")}
	for i := range rows {
		t.Rows = append(t.Rows, append(q.place(&rows[i]), rows[i].Cells))
	}
	return t, nil
}

// Timeline is the same for each window of the range, of all locations.
func (q *Question) Timeline(ctx context.Context) (*tabular.Listing, error) {
	rows, err := q.store.LocationWindows(ctx, q.query)
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: append(append([]string{"window_start"}, locationColumns...), "candidates")}
	for i := range rows {
		t.Rows = append(t.Rows, append([]any{stampNS(rows[i].Start)}, q.place(&rows[i].LocationStats)...))
	}
	return t, nil
}

// place is a row under locationColumns, and how many ports the location may be.
func (q *Question) place(l *aggregate.LocationStats) []any {
	unit, name, stage, candidates := q.query.Signal.Unit(), q.location(l.Location), any(nil), any(nil)
	if p, ok := q.places[l.Location]; ok {
		name, stage, candidates = p.Name, p.Stage, p.CandidateCount
	}
	return []any{name, stage, l.Observations, l.Heavy, number(unit.FromStoredMean(l.HeavyMean())), unit.String(), candidates}
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

// Flows are those that were heavily loaded most often, Top at most.
func (q *Question) Flows(ctx context.Context) (*tabular.Listing, error) {
	query := store.FlowQuestion{Signal: q.query.Signal, From: q.query.From, To: q.query.To, Resolution: q.query.Resolution, Limit: q.params.Top}
	if q.query.Src != nil {
		query.SrcGroups = []aggregate.GroupID{*q.query.Src}
	}
	if q.query.Dst != nil {
		query.DstGroups = []aggregate.GroupID{*q.query.Dst}
	}
	rows, err := q.store.Flows(ctx, query)
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: flowColumns}
	for i := range rows {
		f := &rows[i]
		row := flow{
			srcGroup: q.group(f.SrcGroup), dstGroup: q.group(f.DstGroup), kind: f.Kind.String(), observations: f.Observations, bytes: f.Bytes,
			values: q.values(f.Mean, f.Min, f.Max), heavy: f.Heavy, windows: f.Windows, mode: bottleneck{q.location(f.Location), f.LocationHeavy},
		}
		if f.Src.IsValid() {
			row.src, row.srcPort, row.dst, row.dstPort, row.proto = f.Src.String(), f.SrcPort, f.Dst.String(), f.DstPort, f.Proto
		}
		t.Rows = append(t.Rows, row.row())
	}
	return t, nil
}

// Findings are what broke the protocol or the configuration in a range, the most severe
// first.
func Findings(ctx context.Context, db *store.Store, q store.FindingQuestion) (*tabular.Listing, error) {
	rows, err := db.Findings(ctx, q)
	if err != nil {
		return nil, err
	}
	locations, err := db.Locations(ctx)
	if err != nil {
		return nil, err
	}
	names := make(map[aggregate.LocationID]string, len(locations))
	for _, l := range locations {
		names[l.ID] = l.Name
	}
	t := &tabular.Listing{Columns: findingColumns}
	for _, f := range rows {
		at := orNil(names[f.Location])
		if at == nil && f.Location != aggregate.NoLocation {
			at = fmt.Sprintf("location %016x", uint64(f.Location))
		}
		t.Rows = append(t.Rows, []any{
			f.Severity, f.Kind, fmt.Sprintf("%016x", f.ID), stampNS(f.From), stampNS(f.To), f.Count,
			orNil(f.Device), orNil(f.Port), at, orNil(f.Evidence),
		})
	}
	return t, nil
}

// CoverageWindows is how much of each window of the range is known, over all signals.
func (q *Question) CoverageWindows(ctx context.Context) (*tabular.Listing, error) {
	rows, err := q.store.CoverageWindows(ctx, q.query)
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: []string{
		"window_start", "observations", "tags", "reflections", "untouched", "trimmed", "overflow", "producers", "lost", "gap_seconds", "gap_share",
	}}
	for _, c := range rows {
		t.Rows = append(t.Rows, []any{
			stamp(c.Window), c.Observations, c.Tags, c.Reflections, c.Untouched, c.Trimmed, c.Overflow, c.Producers,
			c.Lost, time.Duration(c.GapNS).Seconds(), c.GapShare,
		})
	}
	return t, nil
}

// CoverageCells is how much of the range is known of each cell, the least first.
func (q *Question) CoverageCells(ctx context.Context) (*tabular.Listing, error) {
	rows, err := q.store.CoverageCells(ctx, q.query)
	if err != nil {
		return nil, err
	}
	t := &tabular.Listing{Columns: []string{
		"src_group", "dst_group", "covered", "observations", "tags", "reflections", "untouched", "trimmed", "overflow", "producers",
	}}
	for _, c := range rows {
		t.Rows = append(t.Rows, []any{
			q.group(c.Src), q.group(c.Dst), c.Covered, c.Observations, c.Tags, c.Reflections, c.Untouched, c.Trimmed, c.Overflow, c.Producers,
		})
	}
	return t, nil
}

// Taps are what each tap took in, and what became of it.
func Taps(rows []store.TapTotal) *tabular.Listing {
	t := &tabular.Listing{Columns: []string{
		"tap", "place", "interface", "link", "timestamps", "tick_ns", "first", "last", "runs", "packets", "bytes", "frames",
		"observations", "tags", "reflections", "stored", "overflow", "late", "rejected", "untouched", "trimmed",
		"kernel_drops", "freezes", "super_frames", "lost", "skew_ns",
	}}
	for i := range rows {
		r := &rows[i]
		t.Rows = append(t.Rows, []any{
			r.Name, r.Place, r.Interface, r.Link, r.Timestamps, r.TickNS, stampNS(r.From), stampNS(r.To), r.Runs,
			r.Packets, r.Bytes, countsText(r.Frames), r.Observations, r.Tags, r.Reflections, r.Stored, r.Overflow, r.Late, countsText(r.Rejected),
			r.Untouched, r.Trimmed, r.KernelDrops, r.Freezes, r.SuperFrames, r.Lost, r.SkewNS,
		})
	}
	return t
}

// countsText is counts by name as one value, the most first.
func countsText(counts map[string]uint64) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return cmp.Compare(counts[b], counts[a])
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s=%d", name, counts[name])
	}
	return strings.Join(names, " ")
}
