package querytest

import (
	"cmp"
	"context"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Flow is what flows of one second come to.
type Flow struct {
	Window time.Time
	Signal csig.Signal
	query.FlowRow
}

func among[T comparable](list []T, v T) bool { return len(list) == 0 || slices.Contains(list, v) }

func inside(p netip.Prefix, a netip.Addr) bool { return !p.IsValid() || p.Contains(a) }

// Flows are those of FlowRows, each of one window.
func (m *Memory) Flows(_ context.Context, q query.FlowQuestion) (list []query.FlowRow, err error) {
	for _, f := range m.FlowRows {
		if f.Signal != q.Signal || f.Window.Before(q.From) || !f.Window.Before(q.To) || q.Kind != 0 && f.Kind != q.Kind || f.Heavy < q.MinHeavy ||
			!among(q.SrcGroups, f.SrcGroup) || !among(q.DstGroups, f.DstGroup) || !inside(q.Src, f.Src) || !inside(q.Dst, f.Dst) {
			continue
		}
		list = append(list, f.FlowRow)
	}
	slices.SortStableFunc(list, func(a, b query.FlowRow) int { return cmp.Compare(b.Heavy, a.Heavy) })
	return list[:min(q.Limit, len(list))], nil
}

// Findings are those of FindingRows.
func (m *Memory) Findings(_ context.Context, q query.FindingQuestion) (list []query.FindingRow, err error) {
	for _, f := range m.FindingRows {
		if f.First.Before(q.To) && !f.Last.Before(q.From) && among(q.Kinds, f.Kind) && among(q.Severities, f.Severity) &&
			among(q.Devices, f.Device) && among(q.Locations, f.Location) {
			list = append(list, f)
		}
	}
	return list[:min(q.Limit, len(list))], nil
}

// Missing are Gaps, whatever the range.
func (m *Memory) Missing(context.Context, time.Time, time.Time) ([]query.Span, error) {
	return m.Gaps, nil
}

// TopLocations counts heavy observations, reflections only of cells without tags.
func (m *Memory) TopLocations(_ context.Context, q query.Question, n int) ([]query.LocationTotal, error) {
	type cell struct{ src, dst aggregate.GroupID }
	q.Src, q.Dst = nil, nil
	rows, lift := m.selected(q), m.lift(q.Level)
	tagged := map[cell]bool{}
	for _, r := range rows {
		tagged[cell{r.Src, r.Dst}] = tagged[cell{r.Src, r.Dst}] || r.Kind == decode.Tag
	}
	totals, sums := map[aggregate.LocationID]*query.LocationTotal{}, map[aggregate.LocationID]float64{}
	cells := map[aggregate.LocationID]map[cell]bool{}
	for _, r := range rows {
		if r.Kind == decode.Reflection && tagged[cell{r.Src, r.Dst}] || r.Location == aggregate.NoLocation {
			continue
		}
		at := lift(r.Location)
		if totals[at] == nil {
			totals[at], cells[at] = &query.LocationTotal{Location: at, HeavyMean: math.NaN()}, map[cell]bool{}
		}
		t := totals[at]
		t.Observations += r.Observations
		t.Heavy += r.Heavy
		if sums[at] += r.HeavySum; r.Heavy > 0 {
			cells[at][cell{r.Src, r.Dst}] = true
		}
		if t.Heavy > 0 {
			t.HeavyMean = sums[at] / float64(t.Heavy)
		}
		t.Cells = uint64(len(cells[at]))
	}
	list := slices.SortedFunc(maps.Values(totals), func(a, b *query.LocationTotal) int {
		return cmp.Or(cmp.Compare(b.Heavy, a.Heavy), cmp.Compare(a.Location, b.Location))
	})
	var out []query.LocationTotal
	for _, t := range list[:min(n, len(list))] {
		out = append(out, *t)
	}
	return out, nil
}
