package simulation

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// dice draws random parts of scenarios.
type dice struct{ exact.Random }

func draw[T any](d *dice, of ...T) T { return of[d.Below(uint64(len(of)))] }

func (d *dice) workload() scenario.Workload {
	w := scenario.Workload{
		Kind:     draw(d, kinds...),
		Rate:     draw(d, 300, 2*scenario.Mbps, 40*scenario.Mbps, 200*scenario.Mbps),
		Control:  draw(d, scenario.OpenLoop, scenario.OpenLoop, scenario.SwiftE2E, scenario.SwiftMaxPD, scenario.NSCCE2E, scenario.NSCCMaxPD),
		TagEvery: draw(d, 0, 1, 2, 5), AckEvery: draw(d, 0, 1, 3, 40),
		Connections: draw(d, 0, 1, 3), HostsPerRack: draw(d, 0, 1), RackOrder: draw(d, true, false),
		Transport: draw(d, scenario.TCP, scenario.Pony), PacketBytes: draw(d, 0, 128, 700),
		Start: draw(d, 0, 3*time.Millisecond), End: draw(d, 0, 0, 40*time.Millisecond),
	}
	if w.Control != scenario.OpenLoop {
		w.Rate = draw(d, 0, w.Rate)
	}
	switch w.Kind {
	case scenario.Probes:
		w.Interval, w.Rate = draw(d, 20*time.Microsecond, time.Millisecond), 0
	case scenario.Incast:
		w.Target = scenario.Host{Rack: 3, Host: 1}
	case scenario.Flows:
		w.Flows = []scenario.Pair{{From: scenario.Host{Rack: 1, Host: 1}, To: scenario.Host{Rack: 1, Host: 2}}, {From: scenario.Host{Rack: 2, Host: 1}, To: scenario.Host{Rack: 3, Host: 2}}}
	}
	if draw(d, true, false, false) {
		w.Sizes = draw(d, &scenario.Sizes{Distribution: scenario.WebSearch}, &scenario.Sizes{Distribution: scenario.FixedSize, MinBytes: 1}, &scenario.Sizes{Distribution: scenario.Pareto, MinBytes: 100, MaxBytes: 1e6})
		w.Transfers, w.Think = draw(d, 0, 1, 7), draw(d, 0, time.Millisecond)
	}
	if draw(d, true, false) {
		w.Period, w.Burst = 10*time.Millisecond, draw(d, time.Nanosecond, time.Millisecond, 6*time.Millisecond)
		w.Jitter = draw(d, 0, 2*time.Millisecond)
		if draw(d, true, false) {
			w.Stragglers, w.Late, w.StraggleEvery = []scenario.Host{{Rack: 1, Host: 2}}, 2*time.Millisecond, draw(d, 0, 3)
		}
	}
	return w
}

func (d *dice) scenario() scenario.Scenario {
	s := tiny()
	s.Seed, s.Duration, s.Window, s.ABWInterval = d.Next(), 60*time.Millisecond, 20*time.Millisecond, time.Millisecond
	s.Reflect, s.TagAcks = draw(d, scenario.ReflectLatest, scenario.ReflectWorst), draw(d, true, false)
	s.RepeatAckEvery, s.BufferBytes = draw(d, 0, 3), draw(d, uint64(4<<10), 64<<10)
	s.ECNMin, s.ECNMax, s.FlowTrace = 2000, 30_000, draw(d, 0, 7*time.Millisecond)
	s.Swift.Target = draw(d, time.Microsecond, time.Millisecond)
	s.IP = draw(d, 4, 6)
	s.Workloads = nil
	for range 1 + d.Below(3) {
		s.Workloads = append(s.Workloads, d.workload())
	}
	return s.WithLayout(draw(d, wideUEC, compactIETF))
}

// Any combination must end, give the same result twice, and account for every packet.
func TestMixturesRun(t *testing.T) {
	long(t)
	d := dice{exact.Derive(2026)}
	sent, controlled := uint64(0), 0
	for n := range 150 {
		s := d.scenario()
		m := prepare(t, s)
		finishRun(t, m)
		conserved(t, m)
		for i := range m.flows {
			f := &m.flows[i]
			if w := f.window; w != nil {
				controlled++
				if w.size < w.minCwnd || w.size > w.maxCwnd {
					t.Errorf("window %d of %d to %d", w.size, w.minCwnd, w.maxCwnd)
				}
			}
			if tr := f.transfers; tr != nil && tr.left < 0 {
				t.Errorf("%d bytes left of a transfer", tr.left)
			}
		}
		if t.Failed() {
			t.Fatalf("scenario %d: %+v", n, s)
		}
		sent += m.sent
		if n%10 == 0 {
			again := prepare(t, s)
			finishRun(t, again)
			if again.sent != m.sent || again.delivered != m.delivered || again.capturedBytes != m.capturedBytes {
				t.Errorf("scenario %d: two runs differ: %+v", n, s)
			}
		}
	}
	if sent < 100_000 || controlled < 200 {
		t.Errorf("%d packets, %d controlled flows", sent, controlled)
	}
}
