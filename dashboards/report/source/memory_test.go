package source_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/dashboards/report/source"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

var resolutions = source.Resolutions{Fine: time.Millisecond, Window: time.Second, Total: time.Minute}

// write writes one window of a cell at all resolutions, as a shard does.
func write(t *testing.T, m *source.Memory, ms int64, src uint64, kind decode.Kind, heavy uint64) {
	t.Helper()
	for _, r := range resolutions.List() {
		b := &aggregate.Block{
			Resolution: int64(r), WindowStart: ms * int64(time.Millisecond) / int64(r) * int64(r),
			Signal: []uint8{uint8(csig.MaxDelay)}, Kind: []uint8{uint8(kind)}, Encoding: []uint8{1}, SrcGroup: []uint64{src}, DstGroup: []uint64{2}, Location: []uint64{5},
			Observations: []uint64{20}, Samples: []uint64{20}, Unjudged: []uint64{0}, Bytes: []uint64{1}, Sum: []uint64{100}, Min: []uint64{1}, Max: []uint64{9},
			Untouched: []uint64{0}, Trimmed: []uint64{0}, Heavy: []uint64{heavy}, HeavySum: []uint64{heavy}, Evidence: []uint8{0},
			DistCode: []uint16{3}, DistCount: []uint64{20}, DistEnd: []uint32{1},
		}
		if err := m.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
}

// sums returns the heavy observations of all steps, by location and by cell, and the codes.
func sums(t *testing.T, m *source.Memory) (byLocation, byCell, codes uint64) {
	t.Helper()
	cells, err := m.Cells(t.Context(), csig.MaxDelay)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]aggregate.CellID, len(cells))
	for i := range cells {
		ids[i] = cells[i].ID()
	}
	locations, err := m.LocationSteps(t.Context(), csig.MaxDelay, m.Span().Step)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range locations {
		byLocation += l.Heavy
	}
	steps, err := m.CellSteps(t.Context(), csig.MaxDelay, ids)
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range steps {
		for _, s := range list {
			byCell += s.Heavy
		}
	}
	all, _, err := m.Distributions(t.Context(), csig.MaxDelay, ids)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		codes += c.N
	}
	return byLocation, byCell, codes
}

// TestMemoryChoosesKinds checks that a cell consists of its tags in every step, even in steps with
// reflections only.
func TestMemoryChoosesKinds(t *testing.T) {
	t.Parallel()
	m := source.NewMemory(resolutions, aggregate.DefaultThresholds(), source.Limits{Bytes: 1 << 24, Steps: 100})
	write(t, m, 1, 1, decode.Tag, 3)
	write(t, m, 7, 1, decode.Reflection, 5)
	write(t, m, 9, 3, decode.Reflection, 7)
	if l, c, n := sums(t, m); l != 10 || c != 10 || n != 40 {
		t.Errorf("steps have %d and %d heavy observations, want 10; %d codes, want 40", l, c, n)
	}
	if span := m.Span(); span.First != 1e6 || span.Last != 9e6 || span.Step != time.Millisecond || span != m.Wanted() || len(m.Limited()) > 0 {
		t.Errorf("span is %+v, wanted %+v; %q", span, m.Wanted(), m.Limited())
	}
}

// TestStatesByWindows checks that a cell is congested from an onset window until a clear one,
// whatever its totals are.
func TestStatesByWindows(t *testing.T) {
	t.Parallel()
	m := source.NewMemory(resolutions, aggregate.DefaultThresholds(), source.Limits{Bytes: 1 << 24, Steps: 100})
	write(t, m, 0, 1, decode.Tag, 20) // 20 of 20
	write(t, m, 0, 3, decode.Tag, 20)
	for second := range int64(30) {
		for n, heavy := range []uint64{0, 1} { // 2.5 % of 40: neither onset nor clear
			write(t, m, 1000*(second+1)+int64(n), 1, decode.Tag, heavy)
		}
		write(t, m, 1000*(second+1), 3, decode.Tag, 0)
	}
	cells, err := m.Cells(t.Context(), csig.MaxDelay)
	if err != nil || len(cells) != 2 {
		t.Fatalf("%d cells, %v, want 2", len(cells), err)
	}
	for i, want := range []aggregate.State{aggregate.Congested, aggregate.Brief} {
		if c := &cells[i]; c.State != want || c.Heavy*20 >= c.Observations {
			t.Errorf("cell %d is %s with %d heavy observations of %d, want %s and below 5 %%", c.Src, c.State, c.Heavy, c.Observations, want)
		}
	}
}

// TestMemoryIsBounded checks that too little memory lengthens steps and loses nothing.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	m := source.NewMemory(resolutions, aggregate.DefaultThresholds(), source.Limits{Bytes: 1 << 17, Steps: 100_000})
	const cells, windows = 40, 500
	for ms := range int64(windows) {
		for src := range uint64(cells) {
			write(t, m, 13*ms, src+10, decode.Tag, 1)
		}
	}
	if l, c, n := sums(t, m); l != cells*windows || c != cells*windows || n != 20*cells*windows {
		t.Errorf("steps have %d and %d heavy observations, want %d; %d codes, want %d", l, c, cells*windows, n, 20*cells*windows)
	}
	if len(m.Limited()) == 0 || m.Span().Step < time.Second || m.Wanted().Step != time.Millisecond {
		t.Errorf("steps are of %s, wanted %s; %q", m.Span().Step, m.Wanted().Step, m.Limited())
	}
}

// TestCodesBeyondMemory checks that the codes that do not fit into a single window are reported
// exactly.
func TestCodesBeyondMemory(t *testing.T) {
	t.Parallel()
	m := source.NewMemory(resolutions, aggregate.DefaultThresholds(), source.Limits{Bytes: 1 << 17, Steps: 100_000})
	const cells, room = 400, 218 // codes of 120 bytes in 20 % of the memory
	for src := range uint64(cells) {
		write(t, m, 0, src+10, decode.Tag, 1)
	}
	want := fmt.Sprintf("there was no memory for all codes: %d observations are in no cell's distribution", 20*(cells-room))
	if !slices.Contains(m.Limited(), want) {
		t.Errorf("%q, want %q", m.Limited(), want)
	}
}
