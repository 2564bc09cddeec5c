package query_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// windowsOf writes the rows of a reader to memory, one block per row.
func windowsOf(t *testing.T, m *querytest.Memory) []*table.Window {
	t.Helper()
	memory := table.NewMemory(table.MemoryOptions{Windows: 1000, Now: tabletest.Still})
	for i, r := range m.Rows {
		b := &aggregate.Block{
			Source: aggregate.Source{Producer: 1}, Seq: uint64(i), Resolution: int64(m.Resolution), WindowStart: r.Window,
			Signal: []uint8{uint8(r.Signal)}, Kind: []uint8{uint8(r.Kind)}, Encoding: []uint8{0},
			SrcGroup: []uint64{uint64(r.Src)}, DstGroup: []uint64{uint64(r.Dst)}, Location: []uint64{uint64(r.Location)},
			DistCode: []uint16{1}, DistCount: []uint64{r.Measured}, DistEnd: []uint32{1},
		}
		b.AppendSums(&r.Sums)
		if err := memory.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	memory.Publish()
	return memory.State().Windows
}

// TestWindowsAnswerAsOthers: answers from windows in memory follow the definition, which
// querytest implements in its plain form.
func TestWindowsAnswerAsOthers(t *testing.T) {
	m := querytest.Fabric(6, 20)
	reflected := m.Rows[0] // in a window without tags of the cell, which has tags in others
	reflected.Window, reflected.Kind = start.Add(25*time.Second).UnixNano(), decode.Reflection
	m.Rows = append(m.Rows, reflected)
	for i := range m.LocationRows { // pairs of neighbors face the same device
		m.LocationRows[i].FarEnd = m.LocationRows[i-i%2].ID
	}
	above := func(l fabric.Level) func(aggregate.LocationID) aggregate.LocationID {
		return func(id aggregate.LocationID) aggregate.LocationID {
			i := slices.IndexFunc(m.LocationRows, func(p fabric.Location) bool { return p.ID == id })
			return [...]aggregate.LocationID{id, m.LocationRows[i].Set, m.LocationRows[i].DeviceLoc, m.LocationRows[i].StageLoc, m.LocationRows[i].FarEnd}[l]
		}
	}
	r := query.FromWindows(windowsOf(t, m), above, nil)
	src := reflected.Src
	for _, q := range []query.Question{
		{Signal: csig.MinABW, From: start, To: start.Add(time.Minute), Step: time.Second},
		{Signal: csig.MaxDelay, From: start, To: start.Add(time.Minute), Step: 5 * time.Second, Level: fabric.LevelDevice, Src: &src},
		{Signal: reflected.Signal, From: start.Add(3 * time.Second), To: start.Add(26 * time.Second), Step: 2 * time.Second, Level: fabric.LevelSet},
		{Signal: csig.MaxDelay, From: start, To: start.Add(time.Minute), Step: 5 * time.Second, Level: fabric.LevelFarEnd},
		{Signal: csig.MaxDelay, From: start.Add(time.Hour), To: start.Add(2 * time.Hour), Step: time.Second},
	} {
		unjudged := cmpopts.IgnoreFields(aggregate.CellStats{}, "Verdict", "State", "JudgedWindows", "CongestedWindows") // a test of the store covers them
		same(t, q, r.Cells, m.Cells, aggregate.CompareCells, unjudged)
		same(t, q, r.CellWindows, m.CellWindows, aggregate.CompareCellWindows, unjudged)
		byLocation := func(a, b aggregate.LocationWindow) int {
			return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Location, b.Location))
		}
		same(t, q, r.LocationWindows, m.LocationWindows, byLocation, cmpopts.IgnoreFields(aggregate.LocationStats{}, "Cells", "Samples", "Unjudged"))
		top := func(a query.Analytics) func(context.Context, query.Question) ([]aggregate.LocationStats, error) {
			return func(ctx context.Context, q query.Question) ([]aggregate.LocationStats, error) {
				return a.TopLocations(ctx, q, 3)
			}
		}
		same(t, q, top(r), top(m), func(a, b aggregate.LocationStats) int { return cmp.Compare(b.Heavy, a.Heavy) },
			cmpopts.IgnoreFields(aggregate.LocationStats{}, "Samples", "Unjudged"))
		same(t, q, r.CellLocations, m.CellLocations, aggregate.CompareCellLocations)
	}
	odd := query.Question{Signal: csig.MaxDelay, From: start, To: start.Add(time.Minute), Step: 1500 * time.Millisecond}
	if _, err := r.CellWindows(t.Context(), odd); !errors.Is(err, query.ErrInvalid) {
		t.Errorf("a step of one and a half windows: %v", err)
	}
}

// same queries two readers, whose rows may be in any order.
func same[Row any](t *testing.T, q query.Question, got, want func(context.Context, query.Question) ([]Row, error), order func(a, b Row) int, o ...gocmp.Option) {
	t.Helper()
	a, err := got(t.Context(), q)
	b, err2 := want(t.Context(), q)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	slices.SortFunc(a, order)
	slices.SortFunc(b, order)
	if diff := gocmp.Diff(b, a, append(o, cmpopts.EquateEmpty())...); diff != "" {
		t.Errorf("%+v (-want +got):\n%s", q, diff)
	}
}
