// Package querytest holds a Reader over rows in memory, and a small made-up fabric
// to fill it, for the tests of what is built on package query.
//
// It knows the definition of the mode of the bottleneck, written down as plainly as
// possible. It must never be used outside of tests: it scans all rows on each call.
package querytest

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Row is a partial aggregate: what a cell's observations said of one location in
// one window of Memory.Resolution. Values are in the signal's unit.
type Row struct {
	Window       int64
	Signal       csig.Signal
	Kind         decode.Kind
	Src, Dst     aggregate.GroupID
	Location     aggregate.LocationID
	Observations uint64
	Sum          float64
	Min, Max     float64
	Untouched    uint64
	Trimmed      uint64
	Heavy        uint64
	HeavySum     float64
}

// Memory is a query.Reader over Rows. It is safe for concurrent use while nobody
// changes its fields.
type Memory struct {
	Resolution time.Duration
	Rows       []Row
	GroupRows  []fabric.Group
	Places     []fabric.Location

	FlowRows    []Flow
	FindingRows []query.FindingRow
	Gaps        []query.Span
}

// Extent covers all rows.
func (m *Memory) Extent(context.Context) (query.Extent, error) {
	if len(m.Rows) == 0 {
		return query.Extent{}, nil
	}
	e := query.Extent{Resolutions: []time.Duration{m.Resolution}}
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	signals := map[csig.Signal]bool{}
	for _, r := range m.Rows {
		first, last = min(first, r.Window), max(last, r.Window)
		signals[r.Signal] = true
		e.Observations += r.Observations
	}
	e.First, e.Last = time.Unix(0, first), time.Unix(0, last).Add(m.Resolution)
	e.Signals = slices.Sorted(maps.Keys(signals))
	return e, nil
}

// Groups are GroupRows.
func (m *Memory) Groups(context.Context) ([]fabric.Group, error) {
	return slices.Clone(m.GroupRows), nil
}

// Locations are Places.
func (m *Memory) Locations(context.Context) ([]fabric.Location, error) {
	return slices.Clone(m.Places), nil
}

// Cells folds all windows into one.
func (m *Memory) Cells(ctx context.Context, q query.Question) ([]query.CellRow, error) {
	return query.Metered(ctx, func() ([]query.CellRow, error) {
		return m.cells(q, func(int64) int64 { return 0 }), nil
	})
}

// CellWindows folds rows into windows of the step.
func (m *Memory) CellWindows(_ context.Context, q query.Question) ([]query.CellRow, error) {
	return m.cells(q, bucket(q)), nil
}

// EachCellWindow has the rows of CellWindows in their order.
func (m *Memory) EachCellWindow(ctx context.Context, q query.Question, n int, f func(*query.CellRow) error) (bool, error) {
	rows, _ := m.CellWindows(ctx, q)
	slices.SortFunc(rows, func(a, b query.CellRow) int {
		return cmp.Or(cmp.Compare(a.Window, b.Window), cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst))
	})
	for i := range rows {
		if i == n {
			return true, nil
		}
		if err := f(&rows[i]); err != nil {
			return false, err
		}
	}
	return false, nil
}

// LocationWindows counts per location and window of the step, reflections only of
// cells without tags. What no hop touched has aggregate.NoLocation.
func (m *Memory) LocationWindows(_ context.Context, q query.Question) ([]query.LocationCount, error) {
	type key struct {
		window   int64
		location aggregate.LocationID
	}
	counts := map[key]query.LocationCount{}
	window := bucket(q)
	q.Src, q.Dst = nil, nil
	rows, lift := m.selected(q), m.lift(q.Level)
	tagged := map[cellKey]bool{}
	for _, r := range rows {
		if r.Kind == decode.Tag {
			tagged[cellKey{window: window(r.Window), src: r.Src, dst: r.Dst}] = true
		}
	}
	for _, r := range rows {
		twice := r.Kind == decode.Reflection && tagged[cellKey{window: window(r.Window), src: r.Src, dst: r.Dst}]
		if twice {
			continue
		}
		k := key{window(r.Window), lift(r.Location)}
		c := counts[k]
		c.Window, c.Location = k.window, k.location
		c.Observations += r.Observations
		c.Heavy += r.Heavy
		counts[k] = c
	}
	return slices.Collect(maps.Values(counts)), nil
}

func bucket(q query.Question) func(int64) int64 {
	return func(t int64) int64 { return t - t%int64(q.Step) }
}

func (m *Memory) selected(q query.Question) []Row {
	return slices.DeleteFunc(slices.Clone(m.Rows), func(r Row) bool {
		return r.Signal != q.Signal || r.Window < q.From.UnixNano() || r.Window >= q.To.UnixNano() ||
			q.Src != nil && r.Src != *q.Src || q.Dst != nil && r.Dst != *q.Dst
	})
}

// lift maps locations to what stands for them at a level, unknown ones to themselves.
func (m *Memory) lift(level fabric.Level) func(aggregate.LocationID) aggregate.LocationID {
	ancestors := make(map[aggregate.LocationID]aggregate.LocationID, len(m.Places))
	for _, l := range m.Places {
		ancestors[l.ID] = [...]aggregate.LocationID{l.ID, l.Set, l.DeviceLoc, l.StageLoc}[level]
	}
	return func(id aggregate.LocationID) aggregate.LocationID {
		if up, ok := ancestors[id]; ok {
			return up
		}
		return id
	}
}

type cellKey struct {
	window   int64
	src, dst aggregate.GroupID
	kind     decode.Kind
}

type votes struct {
	heavy uint64
	sum   float64
}

type cellSum struct {
	row    query.CellRow
	sum    float64
	places map[aggregate.LocationID]votes
}

func (m *Memory) cells(q query.Question, window func(int64) int64) []query.CellRow {
	sums, lift := map[cellKey]*cellSum{}, m.lift(q.Level)
	for _, r := range m.selected(q) {
		k := cellKey{window(r.Window), r.Src, r.Dst, r.Kind}
		c := sums[k]
		if c == nil {
			c = &cellSum{places: map[aggregate.LocationID]votes{}}
			c.row = query.CellRow{Window: k.window, Src: r.Src, Dst: r.Dst, Kind: r.Kind, Min: math.Inf(1), Max: math.Inf(-1)}
			sums[k] = c
		}
		c.add(r, lift(r.Location))
	}
	var out []query.CellRow
	for k, c := range sums {
		if k.kind == decode.Reflection && sums[cellKey{k.window, k.src, k.dst, decode.Tag}] != nil {
			continue
		}
		out = append(out, c.finish(q.Signal.Direction()))
	}
	return out
}

func (c *cellSum) add(r Row, location aggregate.LocationID) {
	c.row.Observations += r.Observations
	c.row.Untouched += r.Untouched
	c.row.Trimmed += r.Trimmed
	c.row.Heavy += r.Heavy
	c.row.Min, c.row.Max = min(c.row.Min, r.Min), max(c.row.Max, r.Max)
	c.sum += r.Sum
	if r.Heavy > 0 && location != aggregate.NoLocation {
		v := c.places[location]
		c.places[location] = votes{v.heavy + r.Heavy, v.sum + r.HeavySum}
	}
}

func (c *cellSum) finish(direction csig.Direction) query.CellRow {
	ranked := slices.SortedFunc(maps.Keys(c.places), func(a, b aggregate.LocationID) int {
		va, vb := c.places[a], c.places[b]
		severity := cmp.Compare(va.sum/float64(va.heavy), vb.sum/float64(vb.heavy))
		if direction == csig.Max {
			severity = -severity
		}
		return cmp.Or(cmp.Compare(vb.heavy, va.heavy), severity, cmp.Compare(a, b))
	})
	if len(ranked) > 0 {
		c.row.Mode, c.row.ModeCount = ranked[0], c.places[ranked[0]].heavy
	}
	if len(ranked) > 1 {
		c.row.RunnerUp, c.row.RunnerUpCount = ranked[1], c.places[ranked[1]].heavy
	}
	c.row.Mean = math.NaN()
	if n := c.row.Observations - c.row.Trimmed; n > 0 {
		c.row.Mean = c.sum / float64(n)
	}
	return c.row
}
