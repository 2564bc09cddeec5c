package simulation

import (
	"reflect"
	"testing"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// ownScenarios are the scenarios of fabrics and behaviors.
var ownScenarios = []string{"three-tier", "mixed-generations", "figure5", "rogue", "partial-deployment", "trimming"}

// Packets sent = delivered + dropped + in flight, for each flow, whatever devices do.
func TestEveryFabricConservesPackets(t *testing.T) {
	for _, name := range ownScenarios {
		s := named(t, name)
		s.Packets = 20_000
		m := prepare(t, s)
		finishRun(t, m)
		queued := make([]uint64, len(m.flows))
		for i := range m.ports {
			for n := m.ports[i].head; n != m.ports[i].tail; n++ {
				queued[m.ports[i].at(n).flow]++
			}
		}
		for i := range m.flows {
			f := &m.flows[i]
			if f.sent != f.delivered+f.dropped+queued[i] {
				t.Errorf("%s: flow %d: sent %d, delivered %d, dropped %d, in flight %d", name, i, f.sent, f.delivered, f.dropped, queued[i])
			}
		}
	}
}

func TestPortsOfEveryFabricKeepTheirSpeed(t *testing.T) {
	long(t)
	for _, name := range ownScenarios {
		s := named(t, name)
		s.Duration, s.Window = 700*time.Millisecond, 50*time.Millisecond
		r, _ := run(t, s)
		file := readTruth(t, r.Truth)
		for _, p := range file.ports {
			if limit := p.CapacityKbps * uint64(s.Window) / 8e6; p.Bytes > limit || p.Load > 1 {
				t.Errorf("%s: %s at %s: %d bytes, load %v, of at most %d bytes", name, p.Port, p.WindowStart, p.Bytes, p.Load, limit)
			}
		}
		var sent, delivered, dropped, inFlight uint64
		for _, f := range file.flows {
			sent, delivered, dropped, inFlight = sent+f.Sent, delivered+f.Delivered, dropped+f.Dropped, inFlight+f.InFlight
		}
		if sent != r.Sent || delivered != r.Delivered || dropped != r.Dropped || inFlight != r.InFlight {
			t.Errorf("%s: flows have %d = %d + %d + %d packets, the report %+v", name, sent, delivered, dropped, inFlight, r)
		}
	}
}

// "The IBCS signal update process MUST be strictly orthogonal to path selection" (IBCS, section
// 5.2): flows must have the same paths with and without tags, and whatever devices do to the tags.
func TestPathsDoNotDependOnTags(t *testing.T) {
	paths := func(tagEvery int, faults ...scenario.Behavior) (list [][2][]string) {
		s := named(t, "three-tier")
		s.Duration, s.TagEvery, s.Faults = 20*time.Millisecond, tagEvery, faults
		r, _ := run(t, s)
		for _, f := range readTruth(t, r.Truth).flows {
			list = append(list, [2][]string{f.Forward, f.Reverse})
		}
		return list
	}
	want := paths(1)
	for _, got := range [][][2][]string{
		paths(-1), paths(2, scenario.Behavior{Match: "agg*", Kind: scenario.Reset}), paths(-1, scenario.Behavior{Match: "tor*", Kind: scenario.Insert}),
	} {
		if !reflect.DeepEqual(got, want) {
			t.Error("the paths of flows depend on tags")
		}
	}
}
