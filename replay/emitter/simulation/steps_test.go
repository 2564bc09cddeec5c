package simulation

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// sendingTimes lists the send times of a pacing.
func sendingTimes(p pacing) (times []int64) {
	for t := p.first(); t != never; t = p.after(t) {
		times = append(times, t)
	}
	return times
}

func stepping(offset, jitter, late time.Duration) pacing {
	return pacing{
		gap: exact.Picoseconds(50 * time.Microsecond), start: exact.Picoseconds(time.Millisecond), end: exact.Picoseconds(200 * time.Millisecond),
		period: exact.Picoseconds(20 * time.Millisecond), burst: exact.Picoseconds(5 * time.Millisecond), random: exact.Derive(9),
		steps: steps{offset: exact.Picoseconds(offset), jitter: exact.Picoseconds(jitter), seed: 5, late: exact.Picoseconds(late), every: 2},
	}
}

func TestStepsKeepTheirPlace(t *testing.T) {
	tests := []struct {
		name                 string
		offset, jitter, late time.Duration
	}{
		{"plain", 0, 0, 0},
		{"in the middle", 7 * time.Millisecond, 0, 0},
		{"with jitter", 0, 4 * time.Millisecond, 0},
		{"straggler", 2 * time.Millisecond, time.Millisecond, 6 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := stepping(tt.offset, tt.jitter, tt.late)
			perStep := map[int64]int{}
			begins := map[int64]int64{}
			for _, at := range sendingTimes(p) {
				step := (at - p.start) / p.period
				if perStep[step] == 0 {
					begins[step] = at - p.start - step*p.period
				}
				perStep[step]++
				in := at - p.start - step*p.period - exact.Picoseconds(tt.offset)
				if step%2 == 1 {
					in -= exact.Picoseconds(tt.late)
				}
				if in < 0 || in > p.burst+exact.Picoseconds(tt.jitter) {
					t.Fatalf("step %d: a packet at %d ps of its part", step, in)
				}
			}
			distinct := map[int64]bool{}
			for step, n := range perStep {
				if n < 85 || n > 115 {
					t.Errorf("step %d has %d packets, want 100", step, n)
				}
				distinct[(begins[step]-exact.Picoseconds(tt.offset))/exact.Picoseconds(200*time.Microsecond)] = true
			}
			if len(perStep) != 10 || (tt.jitter == 4*time.Millisecond && len(distinct) < 4) {
				t.Errorf("%d steps, %d different begins", len(perStep), len(distinct))
			}
		})
	}
}

// The senders of a workload share the jitter: their steps begin together.
func TestJitterIsShared(t *testing.T) {
	s := tiny()
	s.Workloads = []scenario.Workload{{Kind: scenario.Ring, Rate: 30 * scenario.Mbps, Period: 100 * time.Millisecond, Burst: 20 * time.Millisecond, Jitter: 50 * time.Millisecond}}
	s = s.WithDefaults()
	b, err := buildFlows(&s, topologyOf(t, &s))
	if err != nil {
		t.Fatal(err)
	}
	for step := range int64(10) {
		first := b.flows[0].pace.begin(step)
		for i := range b.flows {
			if b.flows[i].pace.begin(step) != first {
				t.Fatalf("step %d: flow %d begins at another time", step, i)
			}
		}
	}
}

// A controlled sender resumes when an open-loop sender would send.
func TestResume(t *testing.T) {
	p := stepping(7*time.Millisecond, 0, 0)
	at := func(ms int) int64 { return exact.Picoseconds(time.Duration(ms) * time.Millisecond) }
	for _, tt := range []struct{ from, want int64 }{
		{0, at(8)}, {at(8), at(8)}, {at(12), at(12)}, {at(13), at(28)}, {at(27), at(28)}, {at(195), never}, {never, never},
	} {
		if got := p.resume(tt.from); got != tt.want {
			t.Errorf("resume(%d) is %d, want %d", tt.from, got, tt.want)
		}
	}
	p.period = 0
	if p.resume(0) != at(8) || p.resume(at(90)) != at(90) || p.resume(at(200)) != never {
		t.Error("a sender without steps does not resume at once")
	}
}

func TestTransfers(t *testing.T) {
	tr := transfers{sizes: sizes{low: 2500, high: 2500}, think: exact.Picoseconds(time.Millisecond), count: 2, random: exact.Derive(1)}
	var at int64
	for range 2 {
		begin := tr.begin(at)
		if begin < at || begin > at+2*exact.Picoseconds(time.Millisecond) {
			t.Errorf("a pause of %d ps", begin-at)
		}
		if a, b, c := tr.take(1000), tr.take(1000), tr.take(1000); a != 1000 || b != 1000 || c != 500 || tr.left != 0 {
			t.Errorf("packets of %d, %d and %d bytes, %d left", a, b, c, tr.left)
		}
		at = begin
	}
	if tr.begin(at) != never {
		t.Error("a third transfer of two")
	}
}

// A flow of a given size sends exactly that many bytes, and its end is acknowledged at once.
func TestFiniteFlowsEnd(t *testing.T) {
	for _, control := range []scenario.Control{scenario.OpenLoop, scenario.SwiftE2E} {
		s := tiny()
		s.BufferBytes = 1 << 20
		s.Workloads = []scenario.Workload{{
			Kind: scenario.Ring, Rate: 20 * scenario.Mbps, Control: control, AckEvery: 50, Start: 100 * time.Millisecond,
			Sizes: &scenario.Sizes{Distribution: scenario.FixedSize, MinBytes: 123_457}, Transfers: 3,
		}}
		m := prepare(t, s)
		first := make([]uint32, len(m.flows))
		for i := range m.flows {
			first[i] = m.flows[i].sequence
		}
		finishRun(t, m)
		for i := range m.flows {
			f := &m.flows[i]
			if sent := f.sequence - first[i]; sent != 3*123_457 || f.sent != f.delivered {
				t.Errorf("%q: flow %d sent %d bytes, %d packets, %d arrived", control, i, sent, f.sent, f.delivered)
			}
			if f.unacked != 0 {
				t.Errorf("%q: flow %d: %d packets are not acknowledged", control, i, f.unacked)
			}
		}
	}
}

// Reacting senders allocate nothing in the steady state either.
func TestReactingSendersDoNotAllocate(t *testing.T) {
	s := tiny()
	s.Duration, s.Window, s.BufferBytes, s.Reflect = time.Minute, time.Minute, 1<<20, scenario.ReflectWorst
	s.Swift = scenario.Swift{Target: 2 * time.Millisecond}
	s.Workloads = []scenario.Workload{
		{Kind: scenario.AllToAll, Control: scenario.SwiftMaxPD, AckEvery: 1},
		{Kind: scenario.Storage, Rate: 5 * scenario.Mbps, Think: time.Millisecond, Transport: scenario.Pony},
		{Kind: scenario.Tree, Rate: 5 * scenario.Mbps, Period: 100 * time.Millisecond, Burst: 50 * time.Millisecond, Jitter: 10 * time.Millisecond},
		{Kind: scenario.Probes, Interval: time.Millisecond},
	}
	doesNotAllocate(t, s, 300_000)
}
