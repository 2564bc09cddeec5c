package simulation

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// floatNSCC is an independent implementation of the published law, in bytes and floating point.
type floatNSCC struct {
	window, increase, received, average, idle float64
	fast                                      bool
	adjusted, cut                             int64
	target, base, mss, scale, most            float64
}

func (n *floatNSCC) hear(now int64, delay, acked float64, marked bool) {
	if !marked && delay > n.target {
		n.average += 0.0125 * (n.base/4 - n.average)
	} else {
		n.average += 0.0125 * (delay - n.average)
	}
	switch {
	case delay >= n.target && marked:
		n.idle, n.fast = 0, false
		if n.average > n.target && now-n.cut > int64(n.base*1000) {
			n.window *= max(1-0.8*(n.average-n.target)/n.average, 0.5)
			n.cut = now
		}
	case delay >= n.target:
		n.increase += 5 * n.mss * n.scale * acked
	case !marked:
		n.grow(delay, acked)
	}
	n.window = min(max(n.window, n.mss), n.most)
	n.received += acked
	late := now-n.adjusted >= int64(n.base*1000)
	if n.received > 8*n.mss || late {
		n.window += n.increase / n.window
		if late {
			n.window += 0.15 * n.mss * n.scale
			n.adjusted = now
		}
		n.increase, n.received = 0, 0
		n.window = min(max(n.window, n.mss), n.most)
	}
}

func (n *floatNSCC) grow(delay, acked float64) {
	if delay >= 1000 {
		n.idle, n.fast = 0, false
	} else {
		n.idle += acked
		n.fast = n.fast || n.idle > n.window
	}
	if n.fast {
		n.window += acked * 0.25 * n.scale
		return
	}
	alpha := 4 * n.mss * n.scale * (n.target / 12_000) / n.target
	n.increase += alpha * acked * (n.target - delay)
}

func TestNSCCFollowsItsSpecification(t *testing.T) {
	const payload, base, kbps = 4000, 9000, 100e6
	w := newNSCC(&scenario.NSCC{Target: 10 * time.Microsecond}, kbps, base, payload)
	product := base * kbps / 8e6
	f := floatNSCC{
		window: 1.5 * product, most: 1.5 * product, target: 10_000, base: base, mss: payload, scale: product / 150_000,
	}
	rng := exact.Derive(11)
	now, delay := int64(0), int64(0)
	var least, most float64 = math.Inf(1), 0
	for n := range 60_000 {
		// Delays drift slowly, so that averages and sequences of idle packets are realistic.
		delay = min(max(delay+int64(rng.Below(2001))-1000, 0), 25_000)
		if n%5000 < 600 {
			delay = int64(rng.Below(900))
		}
		marked := int64(rng.Below(20_000)) < delay
		now += int64(rng.Below(800_000))
		w.onAck(now, delay, packetOne, marked)
		f.hear(now, float64(delay), payload, marked)
		got := float64(w.size) / packetOne * payload
		if math.Abs(got-f.window) > f.window*0.01+20 {
			t.Fatalf("step %d: window %.0f bytes, want %.0f", n, got, f.window)
		}
		f.window = got // accumulated rounding errors are not under test
		least, most = min(least, got), max(most, got)
	}
	if least > 2*payload || most < product {
		t.Errorf("windows from %.0f to %.0f bytes were met", least, most)
	}
}

func TestNSCCDefaults(t *testing.T) {
	w := newNSCC(&scenario.NSCC{}, 100e6, 9000, 4000)
	if w.target != 9000 || w.timeout != exact.Picoseconds(time.Millisecond) || w.size != w.maxCwnd || w.minCwnd != packetOne {
		t.Errorf("window %+v", w)
	}
}

// Between the thresholds queues mark in proportion, and only ECN-capable packets.
func TestECNMarksInProportion(t *testing.T) {
	m := prepare(t, tiny())
	m.scenario.ECNMin, m.scenario.ECNMax = 10_000, 30_000
	for behind, want := range map[int64]float64{0: 0, 10_000: 0, 15_000: 0.25, 25_000: 0.75, 30_000: 1, 90_000: 1} {
		marked := 0
		for range 10_000 {
			k := packet{ecn: ecnCapable}
			m.markECN(&k, behind)
			if k.ecn == ecnExperienced {
				marked++
			}
		}
		if share := float64(marked) / 10_000; math.Abs(share-want) > 0.02 || (want == 0 && share > 0) {
			t.Errorf("%d bytes behind: %.3f marked, want %.2f", behind, share, want)
		}
	}
}

// On the wire, data is ECN-capable and acknowledgements echo the marks of their data.
func TestECNIsOnTheWire(t *testing.T) {
	s := tiny()
	s.ECNMin, s.ECNMax, s.CaptureUntagged, s.SingleFile, s.RepeatAckEvery = 3000, 12_000, true, true, 0
	s.NSCC.Target = time.Millisecond
	s.Workloads = []scenario.Workload{{Kind: scenario.Incast, Target: scenario.Host{Rack: 3, Host: 2}, Control: scenario.NSCCE2E, AckEvery: 1}}
	s.BufferBytes = 1 << 20
	_, dir := run(t, s)
	marked := map[string]bool{} // data by flow and end of payload
	count := map[uint8]int{}
	echoes := 0
	for _, c := range readCapture(t, filepath.Join(dir, "tiny.pcapng"), wideUEC) {
		c.checksums(t)
		ecn := c.ip.TOS & 3
		if payload := c.wire - len(c.data) + len(c.tcp.Payload); payload > 0 {
			count[ecn]++
			marked[fmt.Sprint(c.ip.SrcIP, c.tcp.SrcPort, c.tcp.Seq+uint32(payload))] = ecn == ecnExperienced
			continue
		}
		want := marked[fmt.Sprint(c.ip.DstIP, c.tcp.DstPort, c.tcp.Ack)]
		if c.tcp.ECE != want || ecn != 0 {
			t.Fatalf("an acknowledgement with ECE %t and codepoint %d of data that was marked: %t", c.tcp.ECE, ecn, want)
		}
		if want {
			echoes++
		}
	}
	if count[ecnExperienced] < 100 || count[ecnCapable] < 100 || len(count) != 2 || echoes < 100 {
		t.Errorf("data by codepoint %v, %d echoes", count, echoes)
	}
}

// The IETF 124 slides ("Fairness Improvement"): the steady rates of the fastest flow and the victim
// have a ratio of about 5:1 with the round trip, and about 2.3:1 with max(PD).
func TestFairnessIsThatOfTheSlides(t *testing.T) {
	ratio := func(name string, seed uint64) float64 {
		s := named(t, name)
		s.Seed = seed
		m := prepare(t, s)
		var before [3]uint64
		for more := true; more; {
			if m.now < m.end/2 {
				for i := range before {
					before[i] = m.flows[i].delivered
				}
			}
			var err error
			if more, err = m.step(); err != nil {
				t.Fatal(err)
			}
		}
		if m.dropped > 0 {
			t.Errorf("%s: %d packets were lost", name, m.dropped)
		}
		steady := func(i int) float64 { return float64(m.flows[i].delivered - before[i]) }
		return max(steady(1), steady(2)) / steady(0)
	}
	for seed := range uint64(3) {
		sum, worst := ratio("fairness-e2e", seed+1), ratio("fairness", seed+1)
		if math.Abs(sum-5) > 0.5 || math.Abs(worst-2.3) > 0.15 {
			t.Errorf("seed %d: %.2f with the round trip and %.2f with max(PD), want about 5 and 2.3", seed+1, sum, worst)
		}
	}
}

func TestNSCCErrors(t *testing.T) {
	for name, change := range map[string]func(*scenario.Scenario){
		"no marks":       func(s *scenario.Scenario) { s.ECNMin, s.ECNMax = 0, 0 },
		"thresholds":     func(s *scenario.Scenario) { s.ECNMin = s.ECNMax },
		"least over all": func(s *scenario.Scenario) { s.ECNMin = 1 << 29 },
		"target":         func(s *scenario.Scenario) { s.NSCC.Target = -1 },
		"timeout":        func(s *scenario.Scenario) { s.NSCC.Timeout = time.Hour },
	} {
		s := named(t, "fairness")
		change(&s)
		if err := s.Check(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
