package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

func kindOf(k uint8) decode.Kind { return decode.Kind(k) }

// blocks groups rows into the blocks that they were drawn as.
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

// ancestry is a small topology: locations 2 to 9 lie in sets of 3 and so on; those above 9 have
// no row and are their own ancestors.
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
		case fabric.LevelFarEnd:
			return 400 + id/4
		}
		return id
	}
}

// portsOf returns the ports of locations in tests, and their number: sets of up to three, one of
// which has unlisted ports, and some locations without any.
func portsOf(id aggregate.LocationID) (ports []string, count int) {
	if id < 2 || id > 7 {
		return nil, 0
	}
	for p := range uint64(id) % 4 {
		ports = append(ports, fmt.Sprintf("leaf1:up%d", (uint64(id)+p)%5))
	}
	slices.Sort(ports)
	if id == 7 {
		return ports, 100
	}
	return ports, len(ports)
}

func writeAncestry(t testing.TB, s *Store) {
	t.Helper()
	var list []fabric.Location
	for id := uint64(2); id <= 9; id++ {
		at := func(l fabric.Level) aggregate.LocationID { return aggregate.LocationID(ancestry(l)(id)) }
		ports, count := portsOf(aggregate.LocationID(id))
		list = append(list, fabric.Location{
			ID: aggregate.LocationID(id), Name: fmt.Sprintf("port%d", id), Kind: fabric.KindPort, Candidates: ports, CandidateCount: count,
			Set: at(fabric.LevelSet), DeviceLoc: at(fabric.LevelDevice), StageLoc: at(fabric.LevelStage), FarEnd: at(fabric.LevelFarEnd),
		})
	}
	if err := errors.Join(s.WriteLocations(t.Context(), list), s.Flush(t.Context())); err != nil { // with an outbox they are sent in the background
		t.Fatal(err)
	}
}

// allSignals are the defined signals, and types that tables define: of every aggregation and
// unit, and two meanings of one type.
var allSignals = []csig.Signal{
	csig.MinABW, csig.MinABWRatio, csig.MaxDelay, csig.MaxNQD,
	csig.ConfiguredSignal(5, csig.BitPerSecond, csig.AggregateMin),
	csig.ConfiguredSignal(5, csig.Ratio, csig.AggregateMax),
	csig.ConfiguredSignal(15, csig.Nanosecond, csig.AggregateSum),
	csig.ConfiguredSignal(15, csig.Count, csig.AggregateCount),
}

// compareStored asks for every signal at the level location, and compares with brute force over the
// rows: they are all there, once.
func compareStored(t *testing.T, s *Store, rows []row, resolution time.Duration) {
	t.Helper()
	for _, signal := range allSignals {
		q := testQuestion()
		q.Signal, q.Resolution = signal, resolution
		compareAnswer(t, s, rows, &q)
	}
}

// compareAnswer compares one answer with brute force over the rows, and returns it.
func compareAnswer(t *testing.T, s *Store, rows []row, q *Question) []aggregate.CellStats {
	t.Helper()
	got, err := s.Cells(t.Context(), *q)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(judgedCells(rows, q, ancestry(q.Level)), got); diff != "" {
		t.Fatalf("%s at level %d (-want +got):\n%s", q.Signal, q.Level, diff)
	}
	return got
}

// pairsEnv selects every pair of a signal and a level in every case; make nightly sets it.
const pairsEnv = "CSIGSCOPE_TEST_PAIRS"

// signalsAndLevels yields pairs for case n of several (n from 0): every signal and every level in
// each case, and every pair in one of the cases. A query takes a quarter of a second.
func signalsAndLevels(n, cases int) iter.Seq2[csig.Signal, fabric.Level] {
	const levels = int(fabric.LevelFarEnd) + 1
	every := os.Getenv(pairsEnv) != ""
	return func(yield func(csig.Signal, fabric.Level) bool) {
		for i, signal := range allSignals {
			for level := range levels {
				if chosen := (level + i) % levels * cases / levels; !every && chosen != n {
					continue
				}
				if !yield(signal, fabric.Level(level)) {
					return
				}
			}
		}
	}
}

// compareCells asks for signals and levels, and compares with brute force over the rows, with the
// view, and with the memory.
func compareCells(t *testing.T, s *Store, rows []row, pairs iter.Seq2[csig.Signal, fabric.Level], resolution time.Duration, memory table.Rows) {
	t.Helper()
	for signal, level := range pairs {
		q := testQuestion()
		q.Signal, q.Level, q.Resolution = signal, level, resolution
		got := compareAnswer(t, s, rows, &q)
		checkView(t, s, &q, got)
		compareMemory(t, memory, signal, level, got)
	}
}

// checkView compares means, states and candidates of the view, which other programs read, with
// those of the answer.
func checkView(t *testing.T, s *Store, q *Question, got []aggregate.CellStats) {
	t.Helper()
	query := fmt.Sprintf("SELECT mean, state, mode_ports FROM %s ORDER BY src_group, dst_group", q.view(s.database, "cells", false, judgedBy(s.thresholds)))
	n := 0
	err := s.query(t.Context(), s.reader, "read means", query, func(rows driver.Rows) error {
		var mean float64
		var state string
		var ports []string
		if err := rows.Scan(&mean, &state, &ports); err != nil {
			return err
		}
		c := &got[n]
		n++
		want := c.MeanValue()
		if same := math.Abs(mean-want) <= 1e-12*math.Abs(want); !same && !(math.IsNaN(want) && math.IsNaN(mean)) || state != c.State.String() {
			t.Errorf("%s cell %d to %d: mean %g, %s in the view, %g, %s in the answer", q.Signal, c.Src, c.Dst, mean, state, want, c.State)
		}
		if want := possible(c, q.Level); !slices.Equal(ports, want) {
			t.Errorf("%s cell %d to %d: the mode may be at %v in the view, at %v in the answer", q.Signal, c.Src, c.Dst, ports, want)
		}
		return nil
	})
	if err != nil || n != len(got) {
		t.Fatalf("%d cells in the view, %d in the answer, %v", n, len(got), err)
	}
}

// possible returns the ports that may be the mode, ordered by name.
func possible(c *aggregate.CellStats, level fabric.Level) (ports []string) {
	if level == fabric.LevelLocation {
		for _, one := range c.Candidates(portsOf) {
			ports = append(ports, one.Port)
		}
	}
	slices.Sort(ports)
	return ports
}

func TestCells(t *testing.T) {
	sequential(t)
	s := openStore(t)
	writeAncestry(t, s)
	resolutions := []time.Duration{10 * time.Millisecond, time.Second, time.Minute}
	for i, resolution := range resolutions {
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
			compareCells(t, s, rows, signalsAndLevels(i, len(resolutions)), resolution, memory.Total())

			// The same blocks in another order, several times: duplicates do not add up.
			rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			write(t, s, list)
			write(t, s, list[:len(list)/2])
			compareStored(t, s, rows, resolution)
		})
	}
}

// withoutVerdict ignores fields computed from single windows, which totals in memory lack.
var withoutVerdict = cmpopts.IgnoreFields(aggregate.CellStats{}, "Verdict", "State", "JudgedWindows", "CongestedWindows", "LaterMeasured", "LaterSum")

// compareMemory checks that the SQL definition and the one in memory agree.
func compareMemory(t *testing.T, memory table.Rows, signal csig.Signal, level fabric.Level, got []aggregate.CellStats) {
	t.Helper()
	var above func(aggregate.LocationID) aggregate.LocationID
	if level != fabric.LevelLocation {
		above = func(id aggregate.LocationID) aggregate.LocationID {
			return aggregate.LocationID(ancestry(level)(uint64(id)))
		}
	}
	want := memory.Cells(signal, above)
	if diff := cmp.Diff(want, got, withoutVerdict); diff != "" {
		t.Fatalf("%s at level %d (-memory +stored):\n%s", signal, level, diff)
	}
}

// TestWithoutValue has observations of a known type without a table, and of an unknown type,
// whose distribution is of raw codes: they count and have no mean.
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
		q := testQuestion()
		q.Signal = signal
		got, err := s.Cells(t.Context(), q)
		if err != nil || len(got) != 1 {
			t.Fatalf("%d cells, %v", len(got), err)
		}
		if diff := cmp.Diff(memory.Total().Cells(signal, nil)[0], got[0], withoutVerdict); diff != "" || !math.IsNaN(got[0].MeanValue()) {
			t.Errorf("%s: mean %g (-memory +stored):\n%s", signal, got[0].MeanValue(), diff)
		}
	}
}

// blockList is a sink that keeps blocks.
type blockList []*aggregate.Block

// WriteBlock implements aggregate.Sink.
func (l *blockList) WriteBlock(_ context.Context, b *aggregate.Block) error {
	*l = append(*l, b.Clone())
	return nil
}

// TestFewOfSampledTap: the number of packets of a weighted tap is their actual number, however
// many others each of them stands for, in memory and in the store.
func TestFewOfSampledTap(t *testing.T) {
	sequential(t)
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	for packets, want := range map[int]aggregate.State{5: aggregate.TooFew, 9: aggregate.TooFew, 10: aggregate.Congested} {
		t.Run(fmt.Sprintf("%d packets", packets), func(t *testing.T) {
			s := openStore(t)
			memory := table.New(table.Bounds{Resolution: time.Second, Rows: 100})
			var list blockList
			shard, err := window.NewShard(window.Config{Domain: domain, Resolver: fabric.None(domain), Tap: window.Tap{Tags: true, Weight: 100}}, &list)
			if err != nil {
				t.Fatal(err)
			}
			packet := decode.Observation{Kind: decode.Tag, Tag: csig.Tag{Layout: csig.Layout{Format: csig.Compact, Profile: csig.UEC050}, T: csig.MinABWRatio.Type()}, Bytes: 100}
			var seen []decode.Observation
			for i := range packets {
				packet.TimeNS = testStart.UnixNano() + int64(i)*int64(40*time.Second)/int64(packets)
				seen = append(seen, packet)
			}
			packet.Tag.D = true
			seen = append(seen, packet, packet, packet)
			if err := errors.Join(shard.Add(t.Context(), seen), shard.Flush(t.Context())); err != nil {
				t.Fatal(err)
			}
			for _, b := range list {
				if err := memory.WriteBlock(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			write(t, s, list)
			q := testQuestion()
			q.Resolution, q.To = time.Second, testStart.Add(10*time.Minute)
			if late, err := s.Cells(t.Context(), q); err != nil || len(late) != 1 || late[0].State != aggregate.NoData || late[0].Samples != uint64(packets) {
				t.Errorf("ten minutes after the first packet: %+v, %v, want no data", late, err)
			}
			q.To = testStart.Add(time.Minute)
			for _, q.Resolution = range []time.Duration{time.Second, time.Minute} {
				got, err := s.Cells(t.Context(), q)
				if err != nil || len(got) != 1 {
					t.Fatalf("%d cells, %v", len(got), err)
				}
				if c := got[0]; c.State != want || c.Samples != uint64(packets) || c.Observations != 100*uint64(packets+3) {
					t.Errorf("%s windows: %s with %d samples of %d observations", q.Resolution, c.State, c.Samples, c.Observations)
				}
				checkView(t, s, &q, got)
				if diff := cmp.Diff(memory.Total().Cells(q.Signal, nil), got, withoutVerdict); diff != "" {
					t.Errorf("%s windows (-memory +stored):\n%s", q.Resolution, diff)
				}
			}
		})
	}
}
