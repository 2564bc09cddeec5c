package answers

import (
	"context"
	"time"

	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/store"
)

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
			r.Name, r.Place, r.Interface, r.Link, r.Timestamps, r.TickNS, stamp(time.Unix(0, r.From)), stamp(time.Unix(0, r.To)), r.Runs,
			r.Packets, r.Bytes, countsText(r.Frames), r.Observations, r.Tags, r.Reflections, r.Stored, r.Overflow, r.Late, countsText(r.Rejected),
			r.Untouched, r.Trimmed, r.KernelDrops, r.Freezes, r.SuperFrames, r.Lost, r.SkewNS,
		})
	}
	return t
}
