package simulation

import (
	"testing"

	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// A packet that finds the buffer full is trimmed to its headers. The trimming hop updates its tag
// and freezes it (slides "CSIG Telemetry at Layer 2", January 2026, "CSIG Entity Functions");
// IgnoreTrim breaks this.
func TestTrimmingFreezesTags(t *testing.T) {
	for _, obedient := range []bool{true, false} {
		s := tiny()
		s.TrimBuffer = 8 << 10
		if !obedient {
			s.Faults = []scenario.Behavior{{Match: "*", Kind: scenario.IgnoreTrim}}
		}
		m := prepare(t, s)
		frozen, updatedByCutter, changed := 0, 0, 0
		watch(t, m, func(h hop) {
			before, after := &h.before.tag, &h.after.tag
			switch {
			case !before.Set:
			case before.Is(truth.FlagTrimmed):
				frozen++
				if !after.SameOnWire(before) {
					changed++
				}
			case before.Is(truth.FlagCut):
				if !after.Is(truth.FlagTrimmed) || after.Is(truth.FlagCut) {
					t.Fatalf("a trimmed packet's tag is not frozen: %+v", after)
				}
				if after.Writer == h.number {
					updatedByCutter++
				}
				if h.before.length > 120 {
					t.Fatalf("a trimmed packet has %d bytes", h.before.length)
				}
			case after.Is(truth.FlagTrimmed):
				t.Fatal("a whole packet's tag is frozen")
			}
		})
		if updatedByCutter < 100 || frozen < 100 {
			t.Errorf("%d tags are of the hop that trimmed, %d met another hop", updatedByCutter, frozen)
		}
		if obedient && changed > 0 || !obedient && changed == 0 {
			t.Errorf("%d of %d frozen tags changed, obedient: %v", changed, frozen, obedient)
		}
	}
}

// A trimmed packet never waits for whole packets, at the hop that trims it and later, except for
// the one on the link; it waits for earlier trimmed ones.
func TestTrimmedPacketsOvertake(t *testing.T) {
	s := tiny()
	s.TrimBuffer = 8 << 10
	m := prepare(t, s)
	whole, trimmed, longest := int64(0), int64(0), int64(0)
	watch(t, m, func(h hop) {
		p := &m.ports[h.number]
		if h.before.trimmed {
			trimmed++
			most := exact.Serialization(uint32(s.MTU+100), p.kbps) + exact.Serialization(8<<10, p.kbps)
			if waited := h.before.started - h.before.entered; waited > most {
				t.Fatalf("a trimmed packet waited %d ps, at most %d are due", waited, most)
			}
		} else {
			whole++
			longest = max(longest, h.before.started-h.before.entered)
		}
	})
	if trimmed < 500 || whole < 500 || longest < exact.Serialization(30<<10, m.ports[0].kbps) {
		t.Errorf("%d trimmed and %d whole packets, which waited up to %d ps", trimmed, whole, longest)
	}
}

// Trimming replaces most drops, the reserve bounds the queue, and receivers get everything that was
// not dropped.
func TestTrimmingIsBounded(t *testing.T) {
	s := tiny()
	dropping, _ := run(t, s)
	s.TrimBuffer = 8 << 10
	r, _ := run(t, s)
	file := readTruth(t, r.Truth)
	trimmed := total(file, func(p truth.Port) uint64 { return p.Trimmed })
	if trimmed < 500 || r.Dropped >= dropping.Dropped/2 {
		t.Errorf("%d packets trimmed, %d dropped; without trimming %d dropped", trimmed, r.Dropped, dropping.Dropped)
	}
	var longest, byFlow, arrived uint64
	for _, p := range file.ports {
		longest = max(longest, p.MaxQueueBytes)
	}
	for _, f := range file.flows {
		byFlow += f.Trimmed
	}
	for _, c := range file.cells {
		if c.Source == "tag" {
			arrived += c.Trimmed
		}
	}
	if longest <= 32<<10 || longest > 40<<10 || byFlow != trimmed || arrived == 0 || arrived > trimmed {
		t.Errorf("longest queue %d; %d packets trimmed by ports, %d by flows, %d arrived with the bit", longest, trimmed, byFlow, arrived)
	}
	// Layouts without the D bit trim as well, but tags do not show it.
	s = s.WithLayout(compactIETF)
	r, _ = run(t, s)
	for _, c := range readTruth(t, r.Truth).cells {
		if c.Trimmed > 0 {
			t.Errorf("a tag without D bit is trimmed: %+v", c)
		}
	}
}
