package store

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
)

// TestCellLocations compares the view with the windows in memory, and both with sums by hand.
func TestCellLocations(t *testing.T) {
	sequential(t)
	s := openStore(t)
	memory := table.NewMemory(table.MemoryOptions{Windows: 100, Ahead: -1})
	rng := rand.New(rand.NewPCG(4, 4))
	g := traffic{resolution: time.Second, windows: 9, groups: 4, locations: 6, signals: allSignals}
	rows := append(g.rows(rng, aggregate.Source{Producer: 1}), g.rows(rng, aggregate.Source{Producer: 2})...)
	list := blocks(rows)
	for _, b := range list {
		if err := memory.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	memory.Publish()
	write(t, s, list)
	for _, signal := range allSignals {
		q := Question{Signal: signal, From: testStart, To: testStart.Add(9 * time.Second), Resolution: time.Second}
		got, err := s.CellLocations(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		later := aggregate.LaterHalf(q.From.UnixNano(), q.To.UnixNano())
		if diff := cmp.Diff(table.Merge(memory.State().Windows).CellLocationsOf(memory.State().Windows, signal, later), got); diff != "" {
			t.Fatalf("%s (-memory +stored):\n%s", signal, diff)
		}
		if len(got) == 0 {
			t.Fatalf("%s: nothing is stored", signal)
		}
		cells, err := s.Cells(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		checkAddsUp(t, cells, got, rows, signal.String())
		q.HeavyOnly, q.NoModes = true, true
		got = slices.DeleteFunc(got, func(c aggregate.CellLocation) bool { return c.Heavy == 0 })
		for i := range cells {
			c := &cells[i]
			c.Mode, c.ModeCount, c.ModeSum, c.ModeEvidence, c.Votes = 0, 0, 0, 0, nil
			c.RunnerUp, c.RunnerUpCount, c.RunnerUpEvidence = 0, 0, 0
		}
		if heavy, err := s.CellLocations(t.Context(), q); err != nil || !cmp.Equal(got, heavy, cmpopts.EquateEmpty()) {
			t.Errorf("%s: %v, heavy ones alone (-all +alone):\n%s", signal, err, cmp.Diff(got, heavy))
		}
		if judged, err := s.Cells(t.Context(), q); err != nil || !cmp.Equal(cells, judged) {
			t.Errorf("%s: %v, without modes (-with +without):\n%s", signal, err, cmp.Diff(cells, judged))
		}
	}
}

// checkAddsUp compares the locations of cells with the cells, and their last values with the
// rows.
func checkAddsUp(t *testing.T, cells []aggregate.CellStats, got []aggregate.CellLocation, rows []row, signal string) {
	t.Helper()
	sums := make(map[aggregate.CellID]aggregate.Sums)
	for i := range got {
		sum := sums[got[i].CellID]
		sum.Merge(&got[i].Sums)
		sums[got[i].CellID] = sum
		if got[i].LaterMeasured > got[i].Measured || got[i].LastMeasured > got[i].Measured || got[i].LaterMeasured == got[i].Measured && got[i].Last == 0 && got[i].Measured > 0 {
			t.Errorf("%s: %+v", signal, got[i])
		}
		for _, r := range rows {
			if r.window > got[i].Last && r.signal == uint8(cells[0].Signal) && r.kind == uint8(got[i].Kind) && r.src == uint64(got[i].Src) && r.dst == uint64(got[i].Dst) &&
				r.location == uint64(got[i].Location) && r.observations > r.trimmed && cells[0].Signal.HasValue() && len(r.distCount) > 0 {
				t.Errorf("%s: last is %d, there is a row at %d", signal, got[i].Last, r.window)
			}
		}
	}
	for _, c := range cells {
		sum := sums[c.ID()]
		if sum.Observations != c.Observations || sum.Heavy != c.Heavy || sum.Min != c.Min || sum.Max != c.Max {
			t.Errorf("%s: cell %+v has locations that come to %+v", signal, c, sum)
		}
	}
	if len(sums) != len(cells) {
		t.Errorf("%s: %d cells with locations, %d cells", signal, len(sums), len(cells))
	}
}
