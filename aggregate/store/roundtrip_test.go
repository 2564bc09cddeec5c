package store

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

func kindOf(k uint8) decode.Kind { return decode.Kind(k) }

// blocks cuts rows into the blocks they were drawn as.
func blocks(rows []row) []*aggregate.Block {
	var list []*aggregate.Block
	for from := 0; from < len(rows); {
		to := from + 1
		for to < len(rows) && rows[to].seq == rows[from].seq && rows[to].source == rows[from].source &&
			rows[to].window == rows[from].window && rows[to].resolution == rows[from].resolution {
			to++
		}
		list = append(list, blockOf(rows[from:to]))
		from = to
	}
	return list
}

func write(t testing.TB, s *Store, list []*aggregate.Block) {
	t.Helper()
	for _, b := range list {
		if err := s.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// ancestry is a small topology: locations 2 to 9 lie in sets of 3 and so on; those
// above 9 have no row and stand for themselves.
func ancestry(level fabric.Level) func(uint64) uint64 {
	return func(id uint64) uint64 {
		if id <= 1 || id > 9 {
			return id
		}
		switch level {
		case fabric.LevelSet:
			return 100 + id/3
		case fabric.LevelDevice:
			return 200 + id/5
		case fabric.LevelStage:
			return 300
		}
		return id
	}
}

func writeAncestry(t testing.TB, s *Store) {
	t.Helper()
	var list []fabric.Location
	for id := uint64(2); id <= 9; id++ {
		at := func(l fabric.Level) aggregate.LocationID { return aggregate.LocationID(ancestry(l)(id)) }
		list = append(list, fabric.Location{
			ID: aggregate.LocationID(id), Name: fmt.Sprintf("port%d", id), Kind: fabric.KindPort,
			Set: at(fabric.LevelSet), DeviceLoc: at(fabric.LevelDevice), StageLoc: at(fabric.LevelStage),
		})
	}
	if err := s.WriteLocations(t.Context(), list); err != nil {
		t.Fatal(err)
	}
}

// allSignals are the defined ones, and types that tables define: of every aggregation
// and unit, and two meanings of one type.
var allSignals = []csig.Signal{
	csig.MinABW, csig.MinABWRatio, csig.MaxDelay, csig.MaxNQD,
	csig.ConfiguredSignal(5, csig.BitPerSecond, csig.AggregateMin),
	csig.ConfiguredSignal(5, csig.Ratio, csig.AggregateMax),
	csig.ConfiguredSignal(15, csig.Nanosecond, csig.AggregateSum),
	csig.ConfiguredSignal(15, csig.Count, csig.AggregateCount),
}

// compareCells asks for every signal and level, and compares with what brute force
// makes of the rows, and with what is in the memories.
func compareCells(t *testing.T, s *Store, rows []row, resolution time.Duration, memories ...table.Rows) {
	t.Helper()
	for _, signal := range allSignals {
		for level := fabric.LevelLocation; level <= fabric.LevelStage; level++ {
			q := testQuery()
			q.Signal, q.Level, q.Resolution = signal, level, resolution
			got, err := s.Cells(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				checkMean(t, signal, &got[i])
			}
			if diff := cmp.Diff(cellsOf(rows, signal, ancestry(level)), got); diff != "" {
				t.Fatalf("%s at level %d (-want +got):\n%s", signal, level, diff)
			}
			for _, memory := range memories {
				compareMemory(t, memory, signal, level, got)
			}
		}
	}
}

// checkMean compares the mean, and takes it out of the row.
func checkMean(t *testing.T, signal csig.Signal, r *CellRow) {
	t.Helper()
	want := signal.Unit().PerStored() * float64(r.Sum) / float64(r.Measured)
	if same := math.Abs(r.Mean-want) <= 1e-12*math.Abs(want); !same && !(math.IsNaN(want) && math.IsNaN(r.Mean)) {
		t.Errorf("%s cell %d to %d: mean %g, want %g", signal, r.Src, r.Dst, r.Mean, want)
	}
	r.Mean = 0
}

func TestCells(t *testing.T) {
	sequential(t)
	s := openStore(t)
	writeAncestry(t, s)
	for _, resolution := range []time.Duration{10 * time.Millisecond, time.Second, time.Minute} {
		t.Run(resolution.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(resolution)))
			g := traffic{resolution: resolution, windows: 5, groups: 5, locations: 12, signals: allSignals}
			rows := g.rows(rng, aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3})
			other := g.rows(rng, aggregate.Source{Producer: math.MaxUint64, Incarnation: 2, Epoch: 4})
			rows = append(rows, other...)
			list := blocks(rows)
			memory := table.New(table.Bounds{Resolution: resolution, Rows: 1 << 20})
			for _, b := range list {
				if err := memory.WriteBlock(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			write(t, s, list)
			compareCells(t, s, rows, resolution, memory.Total())

			// The same blocks in another order, several times: nothing adds up.
			rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			write(t, s, list)
			write(t, s, list[:len(list)/2])
			compareCells(t, s, rows, resolution)
		})
	}
}

// compareMemory holds the definition in SQL and the one in memory equal.
func compareMemory(t *testing.T, memory table.Rows, signal csig.Signal, level fabric.Level, got []CellRow) {
	t.Helper()
	above := ancestry(level)
	want := memory.Cells(signal, func(id aggregate.LocationID) aggregate.LocationID {
		return aggregate.LocationID(above(uint64(id)))
	})
	if len(got) != len(want) {
		t.Fatalf("%s: %d cells stored, %d in memory", signal, len(got), len(want))
	}
	for i := range got {
		if diff := cmp.Diff(want[i], statsOf(signal, &got[i])); diff != "" {
			t.Fatalf("%s at level %d (-memory +stored):\n%s", signal, level, diff)
		}
	}
}

func statsOf(signal csig.Signal, r *CellRow) aggregate.CellStats {
	c := aggregate.CellStats{
		Src: r.Src, Dst: r.Dst, Signal: signal, Kind: r.Kind,
		Observations: r.Observations, Bytes: r.Bytes, Measured: r.Measured, Sum: r.Sum, Min: r.Min, Max: r.Max,
		Untouched: r.Untouched, Trimmed: r.Trimmed, Heavy: r.Heavy, HeavySum: r.HeavySum,
		Mode: r.Mode, ModeCount: r.ModeCount, ModeSum: r.ModeSum, RunnerUp: r.RunnerUp, RunnerUpCount: r.RunnerUpCount,
	}
	for c.State.String() != r.State {
		c.State++
	}
	return c
}

// TestWithoutValue has observations of a known type without a table, and of an
// unknown type, whose distribution is of raw codes: they count and have no mean.
func TestWithoutValue(t *testing.T) {
	sequential(t)
	s := openStore(t)
	memory := table.New(table.Bounds{Resolution: time.Second, Rows: 100})
	r := row{resolution: int64(time.Second), window: testStart.UnixNano(), signal: uint8(csig.MaxDelay), kind: 1, src: 1, dst: 2, location: 3, observations: 12}
	unknown := r
	unknown.signal, unknown.distCode, unknown.distCount = 16+9, []uint16{4}, []uint64{12}
	list := blocks([]row{r, unknown})
	for _, b := range list {
		if err := memory.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	write(t, s, list)
	for _, signal := range []csig.Signal{csig.MaxDelay, 16 + 9} {
		q := testQuery()
		q.Signal = signal
		got, err := s.Cells(t.Context(), q)
		if err != nil || len(got) != 1 {
			t.Fatalf("%d cells, %v", len(got), err)
		}
		if diff := cmp.Diff(memory.Total().Cells(signal, nil)[0], statsOf(signal, &got[0])); diff != "" || !math.IsNaN(got[0].Mean) {
			t.Errorf("%s: mean %g (-memory +stored):\n%s", signal, got[0].Mean, diff)
		}
	}
}
