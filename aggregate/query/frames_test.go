package query_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
)

// approx allows for the seven digits that measurements keep.
var approx = cmp.Options{cmpopts.EquateApprox(1e-6, 0), cmpopts.EquateNaNs()}

func TestFramesAreTheReadersRows(t *testing.T) {
	memory := querytest.Fabric(8, 20)
	memory.Rows = append(memory.Rows, small().Rows...) // cells that no table names
	memory.Rows[0].Observations = 1 << 40              // as wide as they come
	want, err := memory.CellWindows(context.Background(), query.Question{
		Signal: memory.Rows[1].Signal, From: start, To: start.Add(20 * time.Second), Step: time.Second, Level: fabric.LevelDevice,
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(want, cmpRows)
	o := query.Options{Named: []string{"min_abw_ratio"}, Levels: []fabric.Level{fabric.LevelDevice}}
	for _, lean := range []bool{false, true} {
		answer, err := query.BuildFrames(context.Background(), memory, o, lean)
		if err != nil {
			t.Fatal(err)
		}
		head, got := querytest.ReadFrames(t, answer)
		expected := slices.Clone(want)
		for i := range expected {
			if r := &expected[i]; lean {
				r.Min, r.Max, r.Untouched, r.ModeCount, r.RunnerUp, r.RunnerUpCount = math.NaN(), math.NaN(), 0, 0, 0, 0
			}
		}
		if diff := cmp.Diff(expected, got, approx); diff != "" {
			t.Errorf("lean %t: rows of frames (-reader +frames):\n%s", lean, diff)
		}
		if len(head.Frames) != 20 || head.StepNS != 1e9 || len(head.Layouts) >= len(head.Frames) {
			t.Errorf("%d frames of %d ns in %d layouts, want 20 of 1e9 in fewer", len(head.Frames), head.StepNS, len(head.Layouts))
		}
		t.Logf("lean %t: %d rows in %d bytes", lean, len(got), len(answer))
	}
}

func cmpRows(a, b query.CellRow) int {
	for _, d := range []int64{a.Window - b.Window, int64(a.Src) - int64(b.Src), int64(a.Dst) - int64(b.Dst)} {
		if d != 0 {
			return int(min(max(d, -1), 1))
		}
	}
	return 0
}

func TestFramesOfOneCell(t *testing.T) {
	memory := querytest.Fabric(8, 20)
	src, dst := memory.GroupRows[2].ID, memory.GroupRows[4].ID
	answer, err := query.BuildFrames(context.Background(), memory, query.Options{Named: []string{"max_delay"}, Src: &src, Dst: &dst}, false)
	if err != nil {
		t.Fatal(err)
	}
	head, rows := querytest.ReadFrames(t, answer)
	if len(rows) == 0 || len(head.Frames) != len(rows) {
		t.Fatalf("%d rows in %d frames, want one each", len(rows), len(head.Frames))
	}
	for _, r := range rows {
		if r.Src != src || r.Dst != dst {
			t.Fatalf("a row of cell %d to %d, want %d to %d", r.Src, r.Dst, src, dst)
		}
	}
}

func TestFramesRefuse(t *testing.T) {
	memory := querytest.Fabric(4, 5)
	for name, test := range map[string]struct {
		o    query.Options
		want error
	}{
		"several signals": {query.Options{Named: []string{"max_delay", "min_abw"}}, query.ErrInvalid},
		"no signal":       {query.Options{}, query.ErrInvalid},
		"several levels":  {query.Options{Named: []string{"max_delay"}, Levels: fabric.Levels()}, query.ErrInvalid},
		"too many rows":   {query.Options{Named: []string{"max_delay"}, MaxRows: 3}, query.ErrTooLarge},
	} {
		if _, err := query.BuildFrames(context.Background(), memory, test.o, false); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
	if _, err := query.BuildFrames(context.Background(), &querytest.Memory{}, query.Options{}, false); !errors.Is(err, query.ErrInvalid) && !errors.Is(err, query.ErrNoData) {
		t.Errorf("frames of nothing: %v", err)
	}
}

// TestTotalsOnly holds that a bundle without windows is the same but for those.
func TestTotalsOnly(t *testing.T) {
	o := query.Options{Named: []string{"max_delay"}}
	whole := build(t, querytest.Fabric(4, 5), o)
	o.TotalsOnly = true
	totals := build(t, querytest.Fabric(4, 5), o)
	if len(totals.Data[0].Cells.Src) != 0 || !totals.TotalsOnly {
		t.Errorf("%d cells of windows", len(totals.Data[0].Cells.Src))
	}
	ignore := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Cells" || p.Last().String() == ".TotalsOnly" }, cmp.Ignore())
	if diff := cmp.Diff(whole, totals, ignore, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("a bundle of totals (-whole +totals):\n%s", diff)
	}
}
