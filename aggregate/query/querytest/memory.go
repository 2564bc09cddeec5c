// Package querytest has a Reader over rows in memory, and a small made-up fabric to fill it, for
// tests of packages built on package query.
//
// It knows the definition of the mode of the bottleneck, written down as plainly as possible. It
// must never be used outside of tests: it scans all rows on each call.
package querytest

import (
	"cmp"
	"context"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Row is a partial aggregate: the sums of a cell's observations of one location in one window of
// Memory.Resolution. Values are stored integers.
type Row struct {
	Window   int64
	Signal   csig.Signal
	Kind     decode.Kind
	Src, Dst aggregate.GroupID
	Location aggregate.LocationID
	aggregate.Sums
}

// Memory is a query.Reader over Rows that counts its calls. It is safe for concurrent use while its
// fields do not change.
type Memory struct {
	Resolution   time.Duration
	Rows         []Row
	GroupRows    []fabric.Group
	LocationRows []fabric.Location

	FlowRows    []Flow
	FindingRows []query.FindingRow
	Gaps        []query.Span
	Producers   query.ProducerCounts

	calls atomic.Int64
}

// Calls is the number of calls.
func (m *Memory) Calls() int { return int(m.calls.Load()) }

// Extent covers all rows.
func (m *Memory) Extent(context.Context) (query.Extent, error) {
	m.calls.Add(1)
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

// Signals returns the signals of the rows in a range, whatever their resolution.
func (m *Memory) Signals(_ context.Context, q query.Question) ([]csig.Signal, error) {
	m.calls.Add(1)
	signals := map[csig.Signal]bool{}
	for _, r := range m.Rows {
		if r.Window >= q.From.UnixNano() && r.Window < q.To.UnixNano() {
			signals[r.Signal] = true
		}
	}
	return slices.Sorted(maps.Keys(signals)), nil
}

// Groups returns GroupRows.
func (m *Memory) Groups(context.Context) ([]fabric.Group, error) {
	m.calls.Add(1)
	return slices.Clone(m.GroupRows), nil
}

// Locations returns LocationRows.
func (m *Memory) Locations(context.Context) ([]fabric.Location, error) {
	m.calls.Add(1)
	return slices.Clone(m.LocationRows), nil
}

// Cells folds all windows into one.
func (m *Memory) Cells(_ context.Context, q query.Question) (list []aggregate.CellStats, err error) {
	m.calls.Add(1)
	for _, c := range m.cells(q, func(int64) int64 { return 0 }, aggregate.LaterHalf(q.From.UnixNano(), q.To.UnixNano())) {
		list = append(list, c.CellStats)
	}
	return list, nil
}

// CellWindows folds rows into windows of the step.
func (m *Memory) CellWindows(_ context.Context, q query.Question) ([]aggregate.CellWindow, error) {
	m.calls.Add(1)
	return m.cells(q, bucket(q), math.MaxInt64), nil
}

// EachCellWindow passes the rows of CellWindows in their order.
func (m *Memory) EachCellWindow(_ context.Context, q query.Question, n int, f func(*aggregate.CellWindow) error) (bool, error) {
	m.calls.Add(1)
	rows := m.cells(q, bucket(q), math.MaxInt64)
	slices.SortFunc(rows, aggregate.CompareCellWindows)
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

// LocationWindows counts per location and window of the step. Untouched observations have
// aggregate.NoLocation.
func (m *Memory) LocationWindows(_ context.Context, q query.Question) ([]aggregate.LocationWindow, error) {
	m.calls.Add(1)
	type key struct {
		start    int64
		location aggregate.LocationID
	}
	counts := map[key]aggregate.LocationWindow{}
	window, lift := bucket(q), m.lift(q.Level)
	q.Src, q.Dst = nil, nil
	for _, r := range m.selected(q) {
		k := key{window(r.Window), lift(r.Location)}
		c := counts[k]
		c.Start, c.Location = k.start, k.location
		c.Observations += r.Observations
		c.Heavy += r.Heavy
		c.HeavySum += r.HeavySum
		counts[k] = c
	}
	return slices.Collect(maps.Values(counts)), nil
}

// TopLocations counts heavy observations per location.
func (m *Memory) TopLocations(_ context.Context, q query.Question, n int) ([]aggregate.LocationStats, error) {
	m.calls.Add(1)
	totals, lift := map[aggregate.LocationID]aggregate.LocationStats{}, m.lift(q.Level)
	type cellLocation struct {
		src, dst aggregate.GroupID
		at       aggregate.LocationID
	}
	heavyIn := map[cellLocation]bool{}
	q.Src, q.Dst = nil, nil
	for _, r := range m.selected(q) {
		at := lift(r.Location)
		t := totals[at]
		t.Location = at
		t.Observations += r.Observations
		t.Heavy += r.Heavy
		t.HeavySum += r.HeavySum
		if in := (cellLocation{r.Src, r.Dst, at}); r.Heavy > 0 && !heavyIn[in] {
			heavyIn[in] = true
			t.Cells++
		}
		totals[at] = t
	}
	list := slices.SortedFunc(maps.Values(totals), func(a, b aggregate.LocationStats) int {
		return aggregate.CompareBottlenecks(q.Signal.Direction(), &a, &b)
	})
	return list[:min(n, len(list))], nil
}

func bucket(q query.Question) func(int64) int64 {
	return func(t int64) int64 { return t - t%int64(q.Step) }
}

// selected returns the question's rows: reflections only of cells without tags.
func (m *Memory) selected(q query.Question) []Row {
	type cell struct{ src, dst aggregate.GroupID }
	rows, tagged := []Row{}, map[cell]bool{}
	for _, r := range m.Rows {
		if r.Signal == q.Signal && r.Window >= q.From.UnixNano() && r.Window < q.To.UnixNano() &&
			(q.Src == nil || r.Src == *q.Src) && (q.Dst == nil || r.Dst == *q.Dst) {
			rows = append(rows, r)
			tagged[cell{r.Src, r.Dst}] = tagged[cell{r.Src, r.Dst}] || r.Kind == decode.Tag
		}
	}
	return slices.DeleteFunc(rows, func(r Row) bool { return r.Kind == decode.Reflection && tagged[cell{r.Src, r.Dst}] })
}

// lift maps locations to their ancestors at a level, unknown ones to themselves.
func (m *Memory) lift(level fabric.Level) func(aggregate.LocationID) aggregate.LocationID {
	ancestors := make(map[aggregate.LocationID]aggregate.LocationID, len(m.LocationRows))
	for _, l := range m.LocationRows {
		ancestors[l.ID] = [...]aggregate.LocationID{l.ID, l.Set, l.DeviceLoc, l.StageLoc, l.FarEnd}[level]
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
}

type votes struct{ heavy, sum uint64 }

type cellSum struct {
	row       aggregate.CellWindow
	locations map[aggregate.LocationID]votes
}

// cells adds up rows by window. Rows from later on, Unix ns, belong to the later half of the
// range.
func (m *Memory) cells(q query.Question, window func(int64) int64, later int64) []aggregate.CellWindow {
	sums, lift := map[cellKey]*cellSum{}, m.lift(q.Level)
	for _, r := range m.selected(q) {
		k := cellKey{window(r.Window), r.Src, r.Dst}
		if sums[k] == nil {
			stats := aggregate.CellStats{Src: r.Src, Dst: r.Dst, Signal: r.Signal, Kind: r.Kind}
			sums[k] = &cellSum{aggregate.CellWindow{Start: k.window, CellStats: stats}, map[aggregate.LocationID]votes{}}
		}
		sums[k].add(r, lift(r.Location))
		if r.Window >= later {
			sums[k].row.LaterMeasured += r.Measured
			sums[k].row.LaterSum += r.Sum
		}
	}
	var out []aggregate.CellWindow
	for _, c := range sums {
		out = append(out, c.finish(q.Level == fabric.LevelLocation))
	}
	return out
}

func (c *cellSum) add(r Row, location aggregate.LocationID) {
	row := &c.row
	row.Observations += r.Observations
	row.Samples += r.Samples
	row.Bytes += r.Bytes
	row.Untouched += r.Untouched
	row.Trimmed += r.Trimmed
	row.Unjudged += r.Unjudged
	row.Heavy += r.Heavy
	row.HeavySum += r.HeavySum
	if r.Measured > 0 {
		if row.Measured == 0 || r.Min < row.Min {
			row.Min = r.Min
		}
		row.Max = max(row.Max, r.Max)
		row.Measured += r.Measured
		row.Sum += r.Sum
	}
	if r.Heavy > 0 && location != aggregate.NoLocation {
		v := c.locations[location]
		c.locations[location] = votes{v.heavy + r.Heavy, v.sum + r.HeavySum}
	}
}

func (c *cellSum) finish(resolved bool) aggregate.CellWindow {
	list := make([]aggregate.LocationStats, 0, len(c.locations))
	for at, v := range c.locations {
		list = append(list, aggregate.LocationStats{Location: at, Heavy: v.heavy, HeavySum: v.sum})
	}
	c.row.SetMode(list, resolved)
	c.row.Judge(aggregate.DefaultThresholds())
	return c.row
}

// Flow is the total of a flow in one second.
type Flow struct {
	Window time.Time
	Signal csig.Signal
	query.FlowTotal
}

func among[T comparable](list []T, v T) bool { return len(list) == 0 || slices.Contains(list, v) }

func inside(p netip.Prefix, a netip.Addr) bool { return !p.IsValid() || p.Contains(a) }

// Flows returns the matching FlowRows, each of one window.
func (m *Memory) Flows(_ context.Context, q query.FlowQuestion) (list []query.FlowTotal, err error) {
	m.calls.Add(1)
	for _, f := range m.FlowRows {
		if f.Signal != q.Signal || f.Window.Before(q.From) || !f.Window.Before(q.To) || q.Kind != 0 && f.Kind != q.Kind || f.Heavy < q.MinHeavy ||
			!among(q.SrcGroups, f.SrcGroup) || !among(q.DstGroups, f.DstGroup) || !inside(q.Src, f.Src) || !inside(q.Dst, f.Dst) {
			continue
		}
		list = append(list, f.FlowTotal)
	}
	slices.SortStableFunc(list, func(a, b query.FlowTotal) int { return cmp.Compare(b.Heavy, a.Heavy) })
	return list[:min(q.Limit, len(list))], nil
}

// Findings returns the matching FindingRows, and those without a time.
func (m *Memory) Findings(_ context.Context, q query.FindingQuestion) (list []query.FindingRow, err error) {
	m.calls.Add(1)
	for _, f := range m.FindingRows {
		if f.From < q.To.UnixNano() && (f.To >= q.From.UnixNano() || f.To == 0) && among(q.Kinds, f.Kind) && among(q.Severities, f.Severity) &&
			among(q.Devices, f.Device) && among(q.Locations, f.Location) {
			list = append(list, f)
		}
	}
	return list[:min(q.Limit, len(list))], nil
}

// Missing returns Gaps, whatever the range.
func (m *Memory) Missing(context.Context, time.Time, time.Time, time.Duration) ([]query.Span, error) {
	m.calls.Add(1)
	return m.Gaps, nil
}

// CountProducers returns Producers, whatever the range.
func (m *Memory) CountProducers(context.Context, time.Time, time.Time) (query.ProducerCounts, error) {
	m.calls.Add(1)
	return m.Producers, nil
}

// CellLocations adds up rows by cell and location.
func (m *Memory) CellLocations(_ context.Context, q query.Question) ([]aggregate.CellLocation, error) {
	m.calls.Add(1)
	type key struct {
		cell aggregate.CellID
		at   aggregate.LocationID
	}
	all := map[key]*aggregate.CellLocation{}
	for _, r := range m.selected(q) {
		k := key{aggregate.CellID{Src: r.Src, Dst: r.Dst, Kind: r.Kind}, r.Location}
		if all[k] == nil {
			all[k] = &aggregate.CellLocation{CellID: k.cell, Location: k.at}
		}
		all[k].Sums.Merge(&r.Sums)
		all[k].AddWindow(r.Window, aggregate.LaterHalf(q.From.UnixNano(), q.To.UnixNano()), &r.Sums)
	}
	list := []aggregate.CellLocation{}
	for _, c := range all {
		list = append(list, *c)
	}
	slices.SortFunc(list, aggregate.CompareCellLocations)
	return list, nil
}
