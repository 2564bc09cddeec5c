package emitter

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

var (
	wideUEC     = csig.Layout{Format: csig.Wide, Profile: csig.UEC050}
	compactIETF = csig.Layout{Format: csig.Compact, Profile: csig.IETF01}
)

// tiny is a run of a second with a ring, an incast, background and repeated
// acknowledgements, over queues that overflow.
func tiny() Scenario {
	return Scenario{
		Name: "tiny", Seed: 7, Duration: time.Second, Window: 250 * time.Millisecond,
		Leaves: 3, Spines: 2, HostsPerLeaf: 2, HostSpeed: 100 * Mbps, UplinkSpeed: 100 * Mbps,
		RackUplinkSpeed: map[int]Rate{2: 40 * Mbps}, BufferBytes: 32 << 10, MTU: 1500,
		HeavyDelay: time.Millisecond, TagEvery: 2, AckEvery: 3, RepeatAckEvery: 5,
		Workloads: []Workload{
			{Kind: Ring, Rate: 50 * Mbps, Connections: 4, Period: 400 * time.Millisecond, Burst: 200 * time.Millisecond},
			{Kind: Incast, Racks: []int{1, 2}, Target: Host{Rack: 3, Host: 2}, Rate: 40 * Mbps, Start: 300 * time.Millisecond},
			{Kind: Background, Rate: 500, TagEvery: 1},
		},
	}
}

// run writes the scenario to a fresh folder.
func run(t testing.TB, s Scenario) (Report, string) {
	t.Helper()
	dir := t.TempDir()
	r, err := Run(context.Background(), s, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r, dir
}

// prepare makes a simulator whose outputs go to a fresh folder.
func prepare(t testing.TB, s Scenario) *sim {
	t.Helper()
	s = s.withDefaults()
	if err := s.check(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	m, err := build(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.truth.create(filepath.Join(dir, TruthFile), m.taps); err != nil {
		t.Fatal(err)
	}
	if err := m.taps.createFiles(&s, dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.taps.close(); m.truth.close(m.taps) })
	return m
}

// topologyOf is the fabric of a scenario that has its defaults.
func topologyOf(t testing.TB, s *Scenario) *topology {
	t.Helper()
	top, err := newTopology(s)
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

type truthFile struct {
	header TruthHeader
	cells  []TruthCell
	ports  []TruthPort

	flows     []TruthFlow
	behaviors []TruthBehavior
}

func readTruth(t testing.TB, path string) truthFile {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out truthFile
	err = ReadTruth(f, TruthVisitor{
		Header:   func(h TruthHeader) error { out.header = h; return nil },
		Cell:     func(c TruthCell) error { out.cells = append(out.cells, c); return nil },
		Port:     func(p TruthPort) error { out.ports = append(out.ports, p); return nil },
		Flow:     func(f TruthFlow) error { out.flows = append(out.flows, f); return nil },
		Behavior: func(b TruthBehavior) error { out.behaviors = append(out.behaviors, b); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// long keeps a test of whole runs out of short ones, which look for data races: a run
// is one goroutine, and the tests that are left see its few others.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a long test: run without -short")
	}
}
