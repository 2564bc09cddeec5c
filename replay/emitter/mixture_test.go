package emitter

import (
	"testing"
	"time"
)

// dice draws parts of scenarios.
type dice struct{ random }

func draw[T any](d *dice, of ...T) T { return of[d.below(uint64(len(of)))] }

func (d *dice) workload() Workload {
	w := Workload{
		Kind:     draw(d, kinds...),
		Rate:     draw(d, 300, 2*Mbps, 40*Mbps, 200*Mbps),
		Control:  draw(d, OpenLoop, OpenLoop, SwiftE2E, SwiftMaxPD, NSCCE2E, NSCCMaxPD),
		TagEvery: draw(d, 0, 1, 2, 5), AckEvery: draw(d, 0, 1, 3, 40),
		Connections: draw(d, 0, 1, 3), HostsPerRack: draw(d, 0, 1), RackOrder: draw(d, true, false),
		Transport: draw(d, TCP, Pony), PacketBytes: draw(d, 0, 128, 700),
		Start: draw(d, 0, 3*time.Millisecond), End: draw(d, 0, 0, 40*time.Millisecond),
	}
	if w.Control != OpenLoop {
		w.Rate = draw(d, 0, w.Rate)
	}
	switch w.Kind {
	case Probes:
		w.Interval, w.Rate = draw(d, 20*time.Microsecond, time.Millisecond), 0
	case Incast:
		w.Target = Host{3, 1}
	case Flows:
		w.Flows = []Pair{{Host{1, 1}, Host{1, 2}}, {Host{2, 1}, Host{3, 2}}}
	}
	if draw(d, true, false, false) {
		w.Sizes = draw(d, &Sizes{Distribution: WebSearch}, &Sizes{Distribution: FixedSize, MinBytes: 1}, &Sizes{Distribution: Pareto, MinBytes: 100, MaxBytes: 1e6})
		w.Transfers, w.Think = draw(d, 0, 1, 7), draw(d, 0, time.Millisecond)
	}
	if draw(d, true, false) {
		w.Period, w.Burst = 10*time.Millisecond, draw(d, time.Nanosecond, time.Millisecond, 6*time.Millisecond)
		w.Jitter = draw(d, 0, 2*time.Millisecond)
		if draw(d, true, false) {
			w.Stragglers, w.Late, w.StraggleEvery = []Host{{1, 2}}, 2*time.Millisecond, draw(d, 0, 3)
		}
	}
	return w
}

func (d *dice) scenario() Scenario {
	s := tiny()
	s.Seed, s.Duration, s.Window, s.ABWInterval = d.next(), 60*time.Millisecond, 20*time.Millisecond, time.Millisecond
	s.Reflect, s.TagAcks = draw(d, ReflectLatest, ReflectWorst), draw(d, true, false)
	s.RepeatAckEvery, s.BufferBytes = draw(d, 0, 3), draw(d, uint64(4<<10), 64<<10)
	s.ECNMin, s.ECNMax, s.FlowTrace = 2000, 30_000, draw(d, 0, 7*time.Millisecond)
	s.Swift.Target = draw(d, time.Microsecond, time.Millisecond)
	s.IP = draw(d, 4, 6)
	s.Workloads = nil
	for range 1 + d.below(3) {
		s.Workloads = append(s.Workloads, d.workload())
	}
	return s.WithLayout(draw(d, wideUEC, compactIETF))
}

// Whatever is combined, a run ends, says the same twice, and loses no packet from its
// books.
func TestMixturesRun(t *testing.T) {
	long(t)
	d := dice{stream(2026)}
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
				if w.size < w.least || w.size > w.most {
					t.Errorf("window %d of %d to %d", w.size, w.least, w.most)
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
