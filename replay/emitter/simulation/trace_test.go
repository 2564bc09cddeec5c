package simulation

import (
	"os"
	"testing"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// The trace's intervals must add up to the received bytes, and its delays to those of an idle
// network.
func TestFlowTraceAddsUp(t *testing.T) {
	s := tiny()
	s.FlowTrace = 30 * time.Millisecond
	r, _ := run(t, s)
	file, err := os.Open(r.FlowTrace)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var flows []truth.TraceFlow
	packets, bytes, samples := map[int]uint64{}, map[int]uint64{}, map[int]int{}
	err = truth.ReadTrace(file, truth.TraceVisitor{
		Flow: func(l truth.TraceFlow) error { flows = append(flows, l); return nil },
		Sample: func(l truth.TraceSample) error {
			samples[l.Flow]++
			packets[l.Flow] += l.Packets
			bytes[l.Flow] += l.Bytes
			// A data packet takes longer one way than its acknowledgement.
			if l.OneWayNS > 0 && l.OneWayNS < flows[l.Flow-1].IdleRoundTripNS/2 {
				t.Errorf("flow %d: %d ns one way, %d there and back when idle", l.Flow, l.OneWayNS, flows[l.Flow-1].IdleRoundTripNS)
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	m := prepare(t, s)
	finishRun(t, m)
	var total uint64
	for i := range m.flows {
		if samples[i+1] != int(s.Duration/s.FlowTrace) {
			t.Errorf("flow %d: %d samples", i+1, samples[i+1])
		}
		if want := packets[i+1] * uint64(m.flows[i].payload); bytes[i+1] != want {
			t.Errorf("flow %d: %d bytes in %d packets, want %d", i+1, bytes[i+1], packets[i+1], want)
		}
		total += packets[i+1]
	}
	// Delivered acknowledgements count as well, one for three data packets and some twice; the last
	// tenth of an interval is not in the trace.
	if len(flows) != len(m.flows) || float64(total) < 0.65*float64(m.delivered) || total > m.delivered {
		t.Errorf("%d flows, %d packets traced, %d delivered", len(flows), total, m.delivered)
	}
}

func TestTraceIsBounded(t *testing.T) {
	s := tiny()
	s.Duration, s.FlowTrace = 24*time.Hour, time.Microsecond
	if _, err := Run(t.Context(), s, t.TempDir(), nil); err == nil {
		t.Error("billions of samples are accepted")
	}
}
