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

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
)

// approx allows for the seven digits of measurements.
var approx = cmp.Options{cmpopts.EquateApprox(1e-6, 0), cmpopts.EquateNaNs()}

func TestFramesAreTheReadersRows(t *testing.T) {
	memory := querytest.Fabric(8, 20)
	memory.Rows = append(memory.Rows, small().Rows...) // cells without names
	memory.Rows[0].Observations = 1 << 40              // the widest possible count
	want, err := memory.CellWindows(context.Background(), query.Question{
		Signal: memory.Rows[1].Signal, From: start, To: start.Add(20 * time.Second), Step: time.Second, Level: fabric.LevelDevice,
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(want, aggregate.CompareCellWindows)
	o := query.Options{Named: []string{"min_abw_ratio"}, Levels: []fabric.Level{fabric.LevelDevice}}
	for _, lean := range []bool{false, true} {
		answer, err := query.BuildFrames(context.Background(), memory, o, lean)
		if err != nil {
			t.Fatal(err)
		}
		head, got := querytest.ReadFrames(t, answer)
		expected := make([]querytest.FrameRow, len(want))
		for i := range want {
			expected[i] = querytest.FrameRowOf(&want[i])
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
