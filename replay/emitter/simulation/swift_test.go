package simulation

import (
	"math"
	"testing"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

func testWindow(change func(*scenario.Swift)) *window {
	p := scenario.Swift{}
	if change != nil {
		change(&p)
	}
	p = p.WithDefaults()
	w := newSwift(&p, 3)
	w.roundTrip = 10_000
	return w
}

func TestRootIsTheIntegerRoot(t *testing.T) {
	rng := exact.Derive(1)
	for range 100_000 {
		n := rng.Next() >> rng.Below(64) >> 2
		r := root(n)
		if r*r > n || (r+1)*(r+1) <= n {
			t.Fatalf("root(%d) is %d", n, r)
		}
	}
}

// The window must follow the published formulas, reimplemented here in floating point.
func TestWindowFollowsThePaper(t *testing.T) {
	rng, w := exact.Derive(3), testWindow(func(p *scenario.Swift) { p.First = 3000 })
	const base, flowRange, beta, mdf = 20e3, 100e3, 0.8, 0.5
	alpha := flowRange / (1/math.Sqrt(0.1) - 1/math.Sqrt(100))
	now, decreased := int64(0), int64(math.MinInt64/2)
	grown, shrunk := 0, 0
	for range 20_000 {
		size := float64(w.size) / packetOne
		target := base + min(max(alpha/math.Sqrt(size)-alpha/math.Sqrt(100), 0), flowRange)
		if got := float64(w.targetDelay()); math.Abs(got-target) > target*1e-4+1 {
			t.Fatalf("target %.0f ns at a window of %.3f, want %.0f", got, size, target)
		}
		delay := float64(w.targetDelay()) * (0.5 + float64(rng.Below(1000))/1000)
		want := size
		switch {
		case delay < float64(w.targetDelay()) && size >= 1:
			want += 1 / size
		case delay < float64(w.targetDelay()):
			want++
		case now-decreased >= 10e6:
			want *= max(1-beta*(delay-target)/delay, 1-mdf)
		}
		want = min(max(want, 0.01), 1000)
		w.onAck(now, int64(delay), packetOne, false)
		if got := float64(w.size) / packetOne; math.Abs(got-want) > want*1e-3+1e-5 {
			t.Fatalf("window %.5f after %.0f ns at %.5f, want %.5f", got, delay, size, want)
		}
		if float64(w.size)/packetOne < size {
			decreased = now
			shrunk++
		} else if float64(w.size)/packetOne > size {
			grown++
		}
		now += int64(rng.Below(4e6))
	}
	if grown < 1000 || shrunk < 1000 {
		t.Errorf("%d increases, %d decreases", grown, shrunk)
	}
}

func TestWindowStaysInItsBounds(t *testing.T) {
	w := testWindow(func(p *scenario.Swift) { p.Max, p.Min = 20_000, 500 })
	for n := range 10_000 {
		w.onAck(int64(n)*20e6, 0, packetOne, false)
	}
	if w.size != 20*packetOne {
		t.Errorf("window %d after much room", w.size)
	}
	for n := range 10_000 {
		w.onAck(int64(n)*20e6, 1e9, packetOne, false)
	}
	if w.size != 500*packetOne/1000 {
		t.Errorf("window %d after much delay", w.size)
	}
	if w.room(1, 1000) || !w.room(0, 1000) || w.pacingDelay() != 20e6 {
		t.Errorf("half a packet's window: pause %d ps", w.pacingDelay())
	}
}

// In any time span, a host with controlled senders never exceeds its link's speed, and each flow's
// packets are all accounted for.
func TestControlledSendersKeepToTheirLink(t *testing.T) {
	for _, control := range []scenario.Control{scenario.SwiftE2E, scenario.SwiftMaxPD, scenario.NSCCE2E, scenario.NSCCMaxPD} {
		s := tiny()
		s.ECNMin, s.ECNMax, s.NSCC = 4000, 16_000, scenario.NSCC{Target: 2 * time.Millisecond, Timeout: 50 * time.Millisecond}
		s.HostSpeed, s.NICBufferBytes = 60*scenario.Mbps, 1<<20
		s.Swift = scenario.Swift{Target: 2 * time.Millisecond, Timeout: 50 * time.Millisecond}
		s.Signals = nil
		s.Workloads = []scenario.Workload{
			{Kind: scenario.AllToAll, Control: control, TagEvery: 1, AckEvery: 1},
			{Kind: scenario.Incast, Target: scenario.Host{Rack: 3, Host: 2}, Control: control, Rate: 5 * scenario.Mbps, Sizes: &scenario.Sizes{Distribution: scenario.FixedSize, MinBytes: 100_000}, Think: time.Millisecond, TagEvery: 1, AckEvery: 2},
		}
		m := prepare(t, s)
		sent := make([]int64, len(m.flows))
		before := make([]uint32, len(m.flows))
		for i := range m.flows {
			before[i] = m.flows[i].sequence
		}
		for {
			more, err := m.step()
			if err != nil {
				t.Fatal(err)
			}
			if !more {
				break
			}
			for i := range m.topology.NICs {
				nic := &m.ports[len(m.topology.Ports)+i]
				if backlog := nic.backlog(m.now); backlog > 20*1600 {
					t.Fatalf("%s: %d bytes wait in interface %d of the hosts", control, backlog, i)
				}
			}
		}
		var total int64
		for i := range m.flows {
			sent[i] = int64(m.flows[i].sequence - before[i])
			total += sent[i]
			if sent[i] == 0 {
				t.Errorf("%s: flow %d sent nothing", control, i)
			}
		}
		links := 6 * 60e6 / 8 * s.Duration.Seconds()
		if float64(total) > links || float64(total) < links/5 {
			t.Errorf("%s: %d bytes, links carry %.0f", control, total, links)
		}
		conserved(t, m)
	}
}

// After a loss of everything in flight, a timeout lets the sender continue.
func TestTimeoutEndsASilence(t *testing.T) {
	s := named(t, "fairness-swift")
	s.BufferBytes, s.Duration, s.Swift.Target = 16<<10, 5*time.Millisecond, time.Millisecond
	m := prepare(t, s)
	finishRun(t, m)
	if m.dropped == 0 {
		t.Fatal("nothing was lost")
	}
	for i := range m.flows {
		if m.flows[i].delivered < 200 {
			t.Errorf("flow %d: %d packets delivered of %d", i, m.flows[i].delivered, m.flows[i].sent)
		}
	}
}

// A victim of two congested hops gets a larger share if senders react to the worst hop than if they
// react to the sum.
func TestMaxPDIsFairerThanTheRoundTrip(t *testing.T) {
	ratio := func(name string) float64 {
		s := named(t, name)
		s.Duration = 20 * time.Millisecond
		m := prepare(t, s)
		finishRun(t, m)
		return float64(max(m.flows[1].delivered, m.flows[2].delivered)) / float64(m.flows[0].delivered)
	}
	for _, law := range []string{"", "-swift"} {
		sum, worst := ratio("fairness"+law+"-e2e"), ratio("fairness"+law)
		if worst > sum/2 || worst < 1 || worst > 4 {
			t.Errorf("fairness%s: best to victim: %.2f with max(PD), %.2f with the round trip", law, worst, sum)
		}
	}
}

func TestSwiftErrors(t *testing.T) {
	for name, change := range map[string]func(*scenario.Scenario){
		"target":      func(s *scenario.Scenario) { s.Swift.Target = -1 },
		"hop":         func(s *scenario.Scenario) { s.Swift.HopTarget = -1 },
		"range":       func(s *scenario.Scenario) { s.Swift.FlowRange = time.Hour },
		"flow window": func(s *scenario.Scenario) { s.Swift.FlowMin = 200_000 },
		"window":      func(s *scenario.Scenario) { s.Swift.Max = 5 },
		"increase":    func(s *scenario.Scenario) { s.Swift.Increase = -1 },
		"beta":        func(s *scenario.Scenario) { s.Swift.Beta = 1001 },
		"timeout":     func(s *scenario.Scenario) { s.Swift.Timeout = 1 },
		"control":     func(s *scenario.Scenario) { s.Workloads[0].Control = "reno" },
		"no delay":    func(s *scenario.Scenario) { s.Signals = s.Signals[:0:0]; s.Signals = append(s.Signals, 0) },
		"no tags":     func(s *scenario.Scenario) { s.Workloads[0].TagEvery = -1 },
		"no acks":     func(s *scenario.Scenario) { s.Workloads[0].AckEvery = -1 },
	} {
		s := named(t, "fairness-swift")
		change(&s)
		if err := s.Check(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
