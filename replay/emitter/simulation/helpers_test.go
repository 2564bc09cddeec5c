package simulation

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

var (
	wideUEC     = csig.Layout{Format: csig.Wide, Profile: csig.UEC050}
	compactIETF = csig.Layout{Format: csig.Compact, Profile: csig.IETF01}
)

// tiny is a run of one second with a ring, an incast, background and repeated acknowledgements,
// over queues that overflow.
func tiny() scenario.Scenario {
	return scenario.Scenario{
		Name: "tiny", Seed: 7, Duration: time.Second, Window: 250 * time.Millisecond,
		Leaves: 3, Spines: 2, HostsPerLeaf: 2, HostSpeed: 100 * scenario.Mbps, UplinkSpeed: 100 * scenario.Mbps,
		RackUplinkSpeed: map[int]scenario.Rate{2: 40 * scenario.Mbps}, BufferBytes: 32 << 10, MTU: 1500,
		HeavyDelay: time.Millisecond, TagEvery: 2, AckEvery: 3, RepeatAckEvery: 5,
		Workloads: []scenario.Workload{
			{Kind: scenario.Ring, Rate: 50 * scenario.Mbps, Connections: 4, Period: 400 * time.Millisecond, Burst: 200 * time.Millisecond},
			{Kind: scenario.Incast, Racks: []int{1, 2}, Target: scenario.Host{Rack: 3, Host: 2}, Rate: 40 * scenario.Mbps, Start: 300 * time.Millisecond},
			{Kind: scenario.Background, Rate: 500, TagEvery: 1},
		},
	}
}

// named returns a built-in scenario.
func named(t testing.TB, name string) scenario.Scenario {
	t.Helper()
	s, err := scenario.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run writes the scenario's output to a new folder.
func run(t testing.TB, s scenario.Scenario) (Report, string) {
	t.Helper()
	dir := t.TempDir()
	r, err := Run(context.Background(), s, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r, dir
}

// prepare returns a simulator whose outputs go to a new folder.
func prepare(t testing.TB, s scenario.Scenario) *sim {
	t.Helper()
	s = s.WithDefaults()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	m, err := build(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.truth.Create(filepath.Join(dir, truth.File), m.tapLines()); err != nil {
		t.Fatal(err)
	}
	if err := m.taps.CreateFiles(&s, dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.taps.Close(); m.truth.Close(m.tapLines()) })
	return m
}

// topologyOf returns the fabric of a scenario whose defaults are filled in.
func topologyOf(t testing.TB, s *scenario.Scenario) *scenario.Topology {
	t.Helper()
	top, err := scenario.NewTopology(s)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// finishRun runs a prepared simulator to its end.
func finishRun(t testing.TB, m *sim) {
	t.Helper()
	if err := m.run(context.Background(), func(float64, uint64) {}); err != nil {
		t.Fatal(err)
	}
}

// doesNotAllocate checks that a scenario's events allocate nothing after the first ones.
func doesNotAllocate(t *testing.T, s scenario.Scenario, first int) {
	t.Helper()
	m := prepare(t, s)
	steps := func(n int) {
		for range n {
			if more, err := m.step(); err != nil || !more {
				t.Fatal(more, err)
			}
		}
	}
	steps(first)
	if n := testing.AllocsPerRun(10, func() { steps(10_000) }); n != 0 {
		t.Errorf("%v allocations in 10000 events", n)
	}
}

type truthFile struct {
	physical []truth.Physical
	header   truth.Header
	cells    []truth.Cell
	ports    []truth.Port

	flows     []truth.Flow
	behaviors []truth.Behavior
}

func readTruth(t testing.TB, path string) truthFile {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out truthFile
	err = truth.Read(f, truth.Visitor{
		Header:   func(h truth.Header) error { out.header = h; return nil },
		Cell:     func(c truth.Cell) error { out.cells = append(out.cells, c); return nil },
		Physical: func(p truth.Physical) error { out.physical = append(out.physical, p); return nil },
		Port:     func(p truth.Port) error { out.ports = append(out.ports, p); return nil },
		Flow:     func(f truth.Flow) error { out.flows = append(out.flows, f); return nil },
		Behavior: func(b truth.Behavior) error { out.behaviors = append(out.behaviors, b); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// long skips tests of whole runs with -short, as in the race detector's run: a simulation is one
// goroutine, and the remaining tests cover its few others.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a long test: run without -short")
	}
}
