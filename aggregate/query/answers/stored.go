package answers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/decode/csig"
)

// Extent lists the extent of a store, and the captures that are only partly stored.
func Extent(e store.Extent, incomplete []string) *tabular.Listing {
	var resolutions []string
	for _, r := range e.Resolutions {
		resolutions = append(resolutions, r.String())
	}
	return &tabular.Listing{
		Columns: []string{"first", "last", "signals", "resolutions", "observations", "heavy", "incomplete"}, Show: show,
		Rows: [][]any{{
			stampOrNil(e.First), stampOrNil(e.Last), strings.Join(csig.SignalNames(e.Signals), " "), strings.Join(resolutions, " "), e.Observations, e.Heavy,
			OrNil(strings.Join(incomplete, ", ")),
		}},
	}
}

// CoverageWindows lists the coverage of each window of the range, over all signals.
func (q *Question) CoverageWindows(ctx context.Context) (*tabular.Listing, error) {
	rows, err := q.store.CoverageWindows(ctx, q.query)
	if err != nil {
		return nil, err
	}
	t := newListing([]string{
		"window_start", "observations", "tags", "reflections", "untouched", "trimmed", "overflow", "producers", "lost", "gap_s", "gap_ratio",
	}, nil)
	for _, c := range rows {
		t.Rows = append(t.Rows, []any{
			stamp(c.Window), c.Observations, c.Tags, c.Reflections, c.Untouched, c.Trimmed, c.Overflow, c.Producers,
			c.Lost, time.Duration(c.GapNS).Seconds(), c.GapShare,
		})
	}
	return t, nil
}

// CoverageCells lists the coverage of each cell over the range, the lowest first.
func (q *Question) CoverageCells(ctx context.Context) (*tabular.Listing, error) {
	rows, err := q.store.CoverageCells(ctx, q.query)
	if err != nil {
		return nil, err
	}
	t := newListing([]string{
		"src", "dst", "covered_ratio", "observations", "tags", "reflections", "untouched", "trimmed", "overflow", "producers",
	}, nil)
	for _, c := range rows {
		t.Rows = append(t.Rows, []any{
			q.group(c.Src), q.group(c.Dst), c.Covered, c.Observations, c.Tags, c.Reflections, c.Untouched, c.Trimmed, c.Overflow, c.Producers,
		})
	}
	return t, nil
}

// Taps lists the packets of each tap, and their fate.
func Taps(rows []store.TapTotal) *tabular.Listing {
	t := newListing([]string{
		"tap", "place", "interface", "link", "timestamps", "tick_ns", "first", "last", "runs", "packets", "bytes", "frames",
		"observations", "tags", "reflections", "stored", "overflow", "late", "rejected", "untouched", "trimmed",
		"kernel_drops", "freezes", "super_frames", "lost", "skew_ns",
	}, []string{"tap", "place", "link", "first", "last", "packets", "observations", "tags", "reflections", "stored", "late", "rejected", "kernel_drops", "lost"})
	for i := range rows {
		r := &rows[i]
		var first, last any
		if r.To != 0 { // else no packet has a time
			first, last = stamp(time.Unix(0, r.From)), stamp(time.Unix(0, r.To))
		}
		t.Rows = append(t.Rows, []any{
			r.Name, r.Place, r.Interface, r.Link, r.Timestamps, r.TickNS, first, last, r.Runs,
			r.Packets, r.Bytes, countsText(r.Frames), r.Observations, r.Tags, r.Reflections, r.Stored, r.Overflow, r.Late, countsText(r.Rejected),
			r.Untouched, r.Trimmed, r.KernelDrops, r.Freezes, r.SuperFrames, r.Lost, r.SkewNS,
		})
	}
	return t
}

// countsText formats counts by name as one value, the highest first.
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
