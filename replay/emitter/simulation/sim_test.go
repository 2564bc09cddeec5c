package simulation

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

func TestPacketsAreConserved(t *testing.T) {
	m := prepare(t, tiny())
	finishRun(t, m)
	conserved(t, m)
	if m.dropped == 0 || m.sent < 5000 {
		t.Errorf("sent %d, dropped %d", m.sent, m.dropped)
	}
}

// conserved compares each flow's counters with the packets still in flight.
func conserved(t *testing.T, m *sim) {
	t.Helper()
	queued := make([]uint64, len(m.flows))
	for i := range m.ports {
		for n := m.ports[i].head; n != m.ports[i].tail; n++ {
			queued[m.ports[i].at(n).flow]++
		}
	}
	var sent, dropped uint64
	for i := range m.flows {
		f := &m.flows[i]
		sent, dropped = sent+f.sent, dropped+f.dropped
		if f.sent != f.delivered+f.dropped+queued[i] {
			t.Errorf("flow %d: sent %d, delivered %d, dropped %d, in flight %d", i, f.sent, f.delivered, f.dropped, queued[i])
		}
	}
	if sent != m.sent || dropped != m.dropped {
		t.Errorf("sent %d, dropped %d; the totals say %d and %d", sent, dropped, m.sent, m.dropped)
	}
}

func TestPortsNeverExceedTheirSpeed(t *testing.T) {
	r, _ := run(t, tiny())
	full := 0
	for _, p := range readTruth(t, r.Truth).ports {
		limit := p.CapacityKbps * uint64(250*time.Millisecond) / 8e6
		if p.Bytes > limit || p.Load > 1 {
			t.Errorf("%s at %s: %d bytes, load %v, of at most %d bytes", p.Port, p.WindowStart, p.Bytes, p.Load, limit)
		}
		if share := float64(p.Bytes) / float64(limit); share > p.Load+0.001 || share < p.Load-0.001 {
			t.Errorf("%s at %s: load %v, but %v of the bytes", p.Port, p.WindowStart, p.Load, share)
		}
		if p.Load > 0.99 {
			full++
		}
	}
	if full == 0 {
		t.Error("no port was ever full")
	}
}

func TestRoutesNeverSeeTags(t *testing.T) {
	routes := func(tagEvery int) (list []scenario.Route) {
		s := tiny()
		s.TagEvery = tagEvery
		for i := range s.Workloads {
			s.Workloads[i].TagEvery = tagEvery
		}
		m := prepare(t, s)
		finishRun(t, m)
		for i := range m.flows {
			list = append(list, m.flows[i].forward, m.flows[i].reverse)
		}
		if tagged := m.captured > 0; tagged != (tagEvery > 0) {
			t.Fatalf("tag every %d: %d packets captured", tagEvery, m.captured)
		}
		return list
	}
	if !slices.Equal(routes(1), routes(-1)) {
		t.Error("the routes of flows differ with and without tags")
	}
}

func TestHashSpreadsFlows(t *testing.T) {
	s := tiny().WithDefaults()
	s.Spines = 4
	top := topologyOf(t, &s)
	var count [4]int
	for i := range 4000 {
		f := scenario.FiveTuple{Src: 1, Dst: 2, SrcPort: uint16(i), DstPort: 80}
		r, err := top.Route(1, f, 0, 5)
		if err != nil || r.N != 4 {
			t.Fatalf("route has %d ports (%v), want 4", r.N, err)
		}
		count[r.Ports[1]]++
	}
	for spine, n := range count {
		if n < 900 || n > 1100 {
			t.Errorf("uplink %d has %d of 4000 flows", spine+1, n)
		}
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	s := tiny()
	s.Duration, s.Window = time.Minute, time.Minute
	doesNotAllocate(t, s, 100_000)
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s := tiny()
	s.Duration = time.Hour
	calls := 0
	_, err := Run(ctx, s, t.TempDir(), func(done float64, _ uint64) {
		if done < 0 || done > 1 {
			t.Errorf("progress is %v", done)
		}
		if calls++; calls == 2 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}

func TestPacketLimit(t *testing.T) {
	s := tiny()
	s.Duration, s.Packets = time.Hour, 5000
	r, _ := run(t, s)
	if r.Captured != 5000 || r.Simulated >= time.Hour || r.Sent != r.Delivered+r.Dropped+r.InFlight {
		t.Errorf("report %+v", r)
	}
}

func BenchmarkRun(b *testing.B) {
	for _, name := range []string{"demo", "fabric-like", "worst-case"} {
		b.Run(name, func(b *testing.B) {
			s := named(b, name)
			s.Packets = 500_000
			b.ReportAllocs()
			var captured, sent uint64
			for b.Loop() {
				r, err := Run(context.Background(), s, b.TempDir(), nil)
				if err != nil {
					b.Fatal(err)
				}
				captured, sent = captured+r.Captured, sent+r.Sent
			}
			b.ReportMetric(float64(captured)/b.Elapsed().Seconds(), "captured/s")
			b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "sent/s")
		})
	}
}
