package flowplot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/emittertest"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

func readRun(t *testing.T, name string) *Run {
	t.Helper()
	s := emittertest.Named(t, name)
	s.Duration = 6 * time.Millisecond
	dir := t.TempDir()
	report := emittertest.Run(t, s, dir)
	r, err := Read(dir, report.Captures)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The reflections must name the congested hops of the fairness scenario as bottlenecks; the victim
// has both.
func TestBottlenecksOfFairness(t *testing.T) {
	r := readRun(t, "fairness")
	want := []map[string]bool{
		{"leaf1:up1": true, "spine1:down3": true},
		{"leaf1:up1": true},
		{"spine1:down3": true},
	}
	if len(r.Flows) != 3 || len(r.Flows[0].Samples) != 12 {
		t.Fatalf("%d flows of %d samples", len(r.Flows), len(r.Flows[0].Samples))
	}
	for i, total := range r.Totals() {
		var n uint64
		for name, count := range total.Heavy {
			n += count
			if !want[i][name] {
				t.Errorf("flow %d: %d reflections name %s", i+1, count, name)
			}
		}
		if n == 0 || n > total.Reflections || len(total.Heavy) != len(want[i]) {
			t.Errorf("flow %d: bottlenecks %v of %d reflections", i+1, total.Heavy, total.Reflections)
		}
		if name, _ := mode(total.Heavy); !strings.HasPrefix(total.bottleneck(), name+" (") {
			t.Errorf("flow %d: %s, want %s", i+1, total.bottleneck(), name)
		}
	}
}

// Rates count received bytes, and the two links are fully used.
func TestTotals(t *testing.T) {
	r := readRun(t, "fairness-e2e")
	totals := r.Totals()
	for _, pair := range [][2]int{{0, 1}, {0, 2}} {
		if sum := totals[pair[0]].BitPerSecond + totals[pair[1]].BitPerSecond; sum < 90e9 || sum > 100e9 {
			t.Errorf("flows %v share %.1f Gbit/s of 100", pair, sum/1e9)
		}
	}
	var bytes uint64
	for _, s := range r.Flows[1].Samples[6:] {
		bytes += s.Bytes
	}
	if got, want := totals[1].BitPerSecond, float64(bytes)*8/0.003; math.Abs(got/want-1) > 1e-9 {
		t.Errorf("flow 2 has %.0f bit/s, want %.0f", got, want)
	}
	if got, want := Ratio(totals), max(totals[1].BitPerSecond, totals[2].BitPerSecond)/totals[0].BitPerSecond; got != want || got < 2 {
		t.Errorf("ratio %.2f, want %.2f", got, want)
	}
	some := Run{Interval: time.Second, Flows: []Flow{{Samples: []Sample{
		{}, {TraceSample: truth.TraceSample{Packets: 1, RoundTripNS: 10}}, {TraceSample: truth.TraceSample{Packets: 3, RoundTripNS: 30, WorstHopNS: 7}},
	}}}}
	if got := some.Totals()[0]; got.RoundTrip != 25 || got.WorstHop != 7 {
		t.Errorf("means %s and %s of times that some packets lack", got.RoundTrip, got.WorstHop)
	}
	if Ratio(nil) != 0 || Ratio([]Total{{}, {}}) != 0 {
		t.Error("a ratio without rates")
	}
}

func TestSVGIsWellFormed(t *testing.T) {
	r := readRun(t, "fairness")
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := r.writeSVG(out, `a < b & "c"`); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Error("two drawings of one run differ")
	}
	text, shapes := "", 0
	d := xml.NewDecoder(&first)
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.CharData:
			text += string(token)
		case xml.StartElement:
			if token.Name.Local == "polyline" {
				shapes++
			}
		}
	}
	for _, want := range []string{`a < b & "c"`, "host1-1 to host3-2", "leaf1:up1", "spine1:down3"} {
		if !strings.Contains(text, want) {
			t.Errorf("the figure does not say %q", want)
		}
	}
	if shapes != len(panels)*len(r.Flows) {
		t.Errorf("%d lines, want %d", shapes, len(panels)*len(r.Flows))
	}
}

func TestTextNamesEachFlow(t *testing.T) {
	var out strings.Builder
	if err := readRun(t, "fairness").writeText(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 5 || !strings.Contains(lines[2], "host2-1") || !strings.Contains(lines[3], "spine1:down3") {
		t.Errorf("text:\n%s", out.String())
	}
}

func TestChart(t *testing.T) {
	if got := chart([]float64{0, 1, 7, 14}, 14); got != "▁▁▄█" {
		t.Errorf("chart %q", got)
	}
	if got := chart([]float64{0, 0}, 0); got != "▁▁" {
		t.Errorf("chart %q", got)
	}
}

func TestNiceStep(t *testing.T) {
	for v, want := range map[float64]float64{0: 1, 0.03: 0.05, 1: 1, 1.1: 2, 2.2: 2.5, 4: 5, 15.6: 20, 99: 100} {
		if got := niceStep(v); math.Abs(got-want) > 1e-12 {
			t.Errorf("niceStep(%g) is %g, want %g", v, got, want)
		}
	}
}

func TestReadErrors(t *testing.T) {
	flow := `{"kind":"flow","flow":1,"src_ip":"10.0.1.1","dst_ip":"10.0.2.1"}` + "\n"
	for name, text := range map[string]string{
		"no file":         "",
		"no samples":      flow,
		"unknown kind":    `{"kind":"port"}`,
		"not JSON":        flow + "x",
		"another flow":    flow + `{"kind":"sample","flow":2,"interval_ns":1}`,
		"no interval":     flow + `{"kind":"sample","flow":1}`,
		"too many flows":  strings.Repeat(flow, MaxFlows+1),
		"no fabric there": flow + `{"kind":"sample","flow":1,"interval_ns":1}`,
	} {
		dir := t.TempDir()
		if text != "" {
			if err := os.WriteFile(filepath.Join(dir, truth.TraceFile), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Read(dir, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
