package replay_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/conform"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// aroundLeaf judges a leaf by the captures of emitLeaf.
func aroundLeaf(t *testing.T, change func(*scenario.Scenario), judge func(*conform.Config)) *replay.Conformance {
	t.Helper()
	cfg := emitLeaf(t, change)
	if judge != nil {
		judge(&cfg.Judge)
	}
	c, err := replay.Conform(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// emitLeaf emits the packets into leaf1, the packets out of each of its ports, and the ports'
// counters.
func emitLeaf(t *testing.T, change func(*scenario.Scenario)) replay.ConformConfig {
	t.Helper()
	s := emittertest.Named(t, "alltoall")
	s = s.WithSize(4, 2, 4)
	s.Duration, s.CaptureUntagged, s.Counters = 200*time.Millisecond, true, []string{"leaf1"}
	s.Taps = []scenario.Tap{{Name: "in", Before: []string{"leaf1"}}}
	for _, port := range []string{"up1", "up2", "down1", "down2", "down3", "down4"} {
		s.Taps = append(s.Taps, scenario.Tap{Name: port, Ports: []string{"leaf1:" + port}})
	}
	if change != nil {
		change(&s)
	}
	dir := t.TempDir()
	report := emittertest.Run(t, s, dir)
	f, domain := emittertest.Network(t, report.Fabric)
	cfg := replay.ConformConfig{
		Judge: conform.Config{Decode: decode.Config{Domain: domain}, Metrics: countersOf(t, report.Counters)}, Before: []string{filepath.Join(dir, "in.pcapng")},
		Fabric: f,
	}
	for _, tap := range s.Taps[1:] {
		cfg.After = append(cfg.After, replay.PortCapture{Port: "leaf1:" + tap.Name, Path: filepath.Join(dir, tap.Name+".pcapng")})
	}
	return cfg
}

// countersSlack is the time from a packet's comparison to its capture.
const countersSlack = 50 * time.Microsecond

func countersOf(t *testing.T, path string) *conform.Metrics {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	m, err := conform.ReadMetrics(file, countersSlack)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// leafFaults lists faults of a leaf with the rules that they break. For each fault there is a
// correct variant that breaks no rule.
var leafFaults = []struct {
	name   string
	change func(*scenario.Scenario)
	judge  func(*conform.Config)
	broken string
}{
	{"faithful", nil, nil, ""},
	{"quantizes by another table", leafFault(scenario.Misbucketed, func(b *scenario.Behavior) { b.Shift = 300 }), nil, "written-value missed-update"},
	{"quantizes delays by another table", leafFault(scenario.Misbucketed, func(b *scenario.Behavior) { b.Shift, b.Signals = -20, []string{"max_delay"} }), nil, "written-value missed-update"},
	{"compares with a constant", leafFault(scenario.Stuck, func(b *scenario.Behavior) { b.Values = map[string]string{"min_abw": "1Mbps"} }), nil, "written-value"},
	{"software compares", leafDevice(scenario.Software), nil, ""},
	{"fails open without metrics", leafFault(scenario.MissingMetric, nil), nil, ""},
	{"writes without metrics", func(s *scenario.Scenario) {
		leafFault(scenario.MissingMetric, nil)(s)
		s.Faults = append(s.Faults, scenario.Behavior{Match: "leaf1", Kind: scenario.Stuck, Values: map[string]string{"min_abw": "1Mbps"}})
	}, nil, "fail-open"},
	{"hashes the tag", leafFault(scenario.TagHash, nil), nil, "path-selection"},
	{"strips as configured", leafDevice(scenario.Strip), func(c *conform.Config) { c.Strip = conform.StripAlways }, ""},
	{"strips what it should not", leafDevice(scenario.Strip), func(c *conform.Config) { c.Strip = conform.StripNever }, "stripped-partly"},
	{"does not strip", nil, func(c *conform.Config) { c.Strip = conform.StripAlways }, "not-stripped"},
	{"drops tagged packets", leafDevice(scenario.Discard), nil, "tagged-lost"},
	{"passes through as configured", leafDevice(scenario.PassThrough), func(c *conform.Config) { c.Role = conform.PassThrough }, ""},
	{"passes through", leafDevice(scenario.PassThrough), nil, "missed-update"},
}

func leafFault(kind string, set func(*scenario.Behavior)) func(*scenario.Scenario) {
	return func(s *scenario.Scenario) {
		b := scenario.Behavior{Match: "leaf1", Kind: kind}
		if set != nil {
			set(&b)
		}
		s.Faults = []scenario.Behavior{b}
	}
}

func leafDevice(kind string) func(*scenario.Scenario) {
	return func(s *scenario.Scenario) { s.Devices = []scenario.Behavior{{Match: "leaf1", Kind: kind}} }
}

// TestConformFaults checks that captures around an emitted leaf and its counters reveal each fault
// by name, and give no false alarms.
func TestConformFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short; nothing of it is for the race detector")
	}
	t.Parallel()
	for _, test := range leafFaults {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := aroundLeaf(t, test.change, test.judge)
			if got := brokenRules(c); got != test.broken {
				t.Errorf("breaks %q, want %q: %+v", got, test.broken, c.Counts)
			}
			if n := &c.Counts; n.NoMetric > 0 || n.Judged < 1000 || n.Copies+n.Extra > 0 {
				t.Errorf("%+v", *n)
			}
		})
	}
}

func brokenRules(c *replay.Conformance) string {
	var rules []string
	for i := range c.Findings {
		if c.Findings[i].Severity != conform.Note {
			rules = append(rules, c.Findings[i].Rule)
		}
	}
	return strings.Join(rules, " ")
}

// TestConformTaps checks that capture errors do not count as faults of the device: losses,
// duplicates, reordering and clock errors.
func TestConformTaps(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short; nothing of it is for the race detector")
	}
	t.Parallel()
	c := aroundLeaf(t, func(s *scenario.Scenario) {
		for i := range s.Taps {
			s.Taps[i].Loss, s.Taps[i].Duplicate, s.Taps[i].Reorder = 10_000, 10_000, 10_000
			s.Taps[i].Offset, s.Taps[i].Jitter = time.Duration(i)*time.Second, 5*time.Microsecond
		}
	}, func(c *conform.Config) { c.Metrics = nil })
	n := &c.Counts
	if got := brokenRules(c); got != "" {
		t.Errorf("breaks %q: %+v", got, *n)
	}
	// 1 % of the packets behind the device are missing before it and the other way round; as many
	// were captured twice.
	for name, of := range map[string][2]uint64{"lost": {n.Lost, n.Before}, "extra": {n.Extra, n.After}, "copies": {n.Copies, n.After}} {
		if share := float64(of[0]) / float64(of[1]); share < 0.005 || share > 0.03 {
			t.Errorf("%s: %d of %d", name, of[0], of[1])
		}
	}
	if n.Ambiguous > n.Before/100 {
		t.Errorf("%+v", *n)
	}
}

// TestConformNamesFiles: in a capture of several files, an example names its packet's file, and is the same packet as in
// the capture of one file.
func TestConformNamesFiles(t *testing.T) {
	t.Parallel()
	cfg := emitLeaf(t, func(s *scenario.Scenario) {
		s.Duration = 20 * time.Millisecond
		leafDevice(scenario.PassThrough)(s)
	})
	whole, err := replay.Conform(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	folder, half := inHalves(t, cfg.Before[0])
	cfg.Before = []string{folder}
	parts, err := replay.Conform(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(whole.Findings) == 0 || len(whole.Findings) != len(parts.Findings) {
		t.Fatalf("%d findings, and %d in one file", len(parts.Findings), len(whole.Findings))
	}
	for i := range whole.Findings {
		for k, want := range whole.Findings[i].Examples {
			got := parts.Findings[i].Examples[k]
			text := got.String()
			if got.BeforeFile == filepath.Join(folder, "1.pcapng") {
				got.Before += half
			}
			if want.BeforeFile != "" || !strings.Contains(text, " before in "+got.BeforeFile) || got.BeforeFile == "" || got.AfterFile != "" ||
				got.Before != want.Before || got.After != want.After {
				t.Errorf("example %d of %s: %s, want %s", k, whole.Findings[i].Rule, text, want.String())
			}
		}
	}
}

// inHalves copies a capture to two files in a folder, the first with half of its packets.
func inHalves(t *testing.T, path string) (folder string, half uint64) {
	t.Helper()
	var frames []capture.Frame
	r, err := capture.Open(path, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for batch := new(capture.Batch); r.ReadBatch(batch) == nil; {
		for _, f := range batch.Frames[:batch.N] {
			f.Data = slices.Clone(f.Data)
			frames = append(frames, f)
		}
	}
	folder, n := t.TempDir(), len(frames)/2
	for i, part := range [][]capture.Frame{frames[:n], frames[n:]} {
		var out bytes.Buffer
		w := capture.NewWriter(&out, r.Interfaces()...)
		for k := range part {
			if err := w.Write(&part[k], ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d.pcapng", i)), out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder, uint64(n)
}

// TestTagHashPaths checks that only tagged data of flows through the faulty device takes other
// paths, and that all paths lead to the receiver.
func TestTagHashPaths(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short; nothing of it is for the race detector")
	}
	t.Parallel()
	faithful := aroundLeaf(t, nil, nil).Counts
	faulty := aroundLeaf(t, leafFault(scenario.TagHash, nil), nil)
	if n := faulty.Counts; n.Before < faithful.Before*9/10 || n.Lost > faithful.Lost+n.Before/100 {
		t.Errorf("faulty %+v, faithful %+v", n, faithful)
	}
	i := slices.IndexFunc(faulty.Findings, func(f conform.Finding) bool { return f.Rule == "path-selection" })
	if i < 0 || len(faulty.Findings[i].Examples) == 0 || faulty.Findings[i].Examples[0].WasTag == nil {
		t.Fatalf("%+v", faulty.Findings)
	}
}
