package replay_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/feed"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/conform"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter"
)

// faultsEnv asks for longer runs of all scenarios, and names a file for the table; make
// accuracy sets it.
const faultsEnv = "CSIGSCOPE_FAULTS"

// injected is a fault of spine1 or of a host, and by what report and conform find
// it: empty where they cannot.
type injected struct {
	name, match      string
	values           map[string]string
	shift            int
	reported, judged string
	honest           bool // no fault: whatever is found is a false alarm
}

// What a port writes in place of its metric is plausible where its locator metadata is its
// own: misbucketed values take the port's counters (conform --metrics).
var faults = []injected{
	{name: "none", honest: true},
	{name: emitter.Stuck, match: "spine1:down*", values: map[string]string{"min_abw": "1Mbps", "min_abw_ratio": "1%", "max_delay": "5ms"}, reported: "stuck-port"},
	{name: emitter.WrongLM, match: "spine1:*", reported: "unknown-locator", judged: "locator-other"},
	{name: emitter.LMOnly, match: "spine1:*", reported: "locator-alone", judged: "locator-alone"},
	{name: emitter.ValueOnly, match: "spine1:*", reported: "unknown-locator", judged: "locator-kept"},
	{name: emitter.Forge, match: "host1-1", values: map[string]string{"max_delay": "100ms", "min_abw": "0Mbps"}, reported: "forged-value"},
	{name: emitter.Overwrite, match: "spine1:*", judged: "direction"},
	{name: emitter.Reset, match: "spine1:*", judged: "direction"},
	{name: emitter.Insert, match: "spine1:*", judged: "inserted"},
	{name: emitter.NoMetric, match: "spine1:*", honest: true},
	{name: emitter.Misbucketed, match: "spine1:*", shift: 300},
}

// faulty is a fabric with a fault, captured at all racks and around spine1.
type faulty struct {
	replay.ExamineConfig
	fabric *fabric.Fabric
	in     string
	out    []replay.PortCapture
}

func newFaulty(t *testing.T, scenario string, f injected, duration time.Duration) *faulty {
	t.Helper()
	s, err := emitter.Named(scenario)
	if err != nil {
		t.Fatal(err)
	}
	s.Duration, s.Faults, s.Devices, s.CaptureUntagged = duration, nil, nil, true
	if f.match != "" {
		s.Faults = []emitter.Behavior{{Match: f.match, Kind: f.name, Values: f.values, Shift: f.shift}}
	}
	s.Taps = []emitter.Tap{{Racks: true}, {Name: "into-spine1", Before: []string{"spine1"}}}
	var ports []string
	for i := range s.Leaves {
		ports = append(ports, fmt.Sprintf("down%d", i+1))
		s.Taps = append(s.Taps, emitter.Tap{Name: "spine1-" + ports[i], Ports: []string{"spine1:" + ports[i]}})
	}
	dir := t.TempDir()
	report, err := emitter.Run(t.Context(), s, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := fabric.Load(report.Fabric)
	if err != nil {
		t.Fatal(err)
	}
	domain, err := csig.DefaultSpec().Overlay(spec.CSIG).Compile()
	if err != nil {
		t.Fatal(err)
	}
	out := &faulty{in: filepath.Join(dir, "into-spine1.pcapng")}
	if out.fabric, err = fabric.New(spec, domain); err != nil {
		t.Fatal(err)
	}
	for _, p := range ports {
		out.out = append(out.out, replay.PortCapture{Port: "spine1:" + p, Path: filepath.Join(dir, "spine1-"+p+".pcapng")})
	}
	out.Decode, out.Finding = decode.Config{Domain: domain}, finding.Config{Domain: domain, Locator: out.fabric}
	out.Files, err = filepath.Glob(filepath.Join(dir, "rack*.pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// report shows a detector all that receivers captured, in the order of time, and asks it
// now and then: it gives what was found in the end, and after how many observations the
// wanted kind was.
func (f *faulty) report(t *testing.T, want string) (kinds []string, after int) {
	t.Helper()
	d, err := finding.New(f.Finding)
	if err != nil {
		t.Fatal(err)
	}
	decoder, err := decode.New(f.Decode)
	if err != nil {
		t.Fatal(err)
	}
	m := capture.MergeFiles(f.Files, capture.Options{})
	defer m.Close()
	var result decode.Result
	tap := finding.Tap{Name: "receivers"}
	n, asked := 0, 0
	for {
		frame, _, err := m.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		wireLen := feed.Decode(decoder, decode.Ethernet, frame, &result)
		for k := range result.N {
			feed.Stamp(&result.Obs[k], frame, wireLen)
			d.Observe(&tap, &result.Obs[k])
			n++
		}
		if after == 0 && want != "" && n-asked >= 200 {
			asked = n
			if slices.Contains(kindsOf(d), want) {
				after = n
			}
		}
	}
	kinds = kindsOf(d)
	if after == 0 && slices.Contains(kinds, want) {
		after = n
	}
	return kinds, after
}

func kindsOf(d *finding.Detector) (kinds []string) {
	for _, f := range d.Findings() {
		kinds = append(kinds, f.Kind.String())
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// judge is what conform says of spine1, and the first packet that shows it.
func (f *faulty) judge(t *testing.T, want string) (rules []string, after int) {
	t.Helper()
	c, err := replay.Conform(context.Background(), replay.ConformConfig{
		Judge: conform.Config{Decode: f.Decode}, Before: []string{f.in}, After: f.out,
		Own: func(port string, l csig.Layout, typ uint8, lm uint16) (own, known bool) {
			device, name, _ := strings.Cut(port, ":")
			return f.fabric.Writes(fabric.PortLocationID(device, name), l, typ, lm)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Findings {
		if found := &c.Findings[i]; found.Severity != conform.Note {
			rules = append(rules, found.Rule)
			if found.Rule == want {
				after = int(found.Examples[0].After)
			}
		}
	}
	return rules, after
}

// TestFaults injects each fault into several scenarios and counts what is found: recall is
// of the faults that can be, and precision of the runs in which something was found.
func TestFaults(t *testing.T) {
	scenarios, duration := []string{"ring"}, 400*time.Millisecond
	file := os.Getenv(faultsEnv)
	if file != "" {
		scenarios, duration = []string{"ring", "tree", "alltoall", "storage", "incast"}, time.Second
	} else if testing.Short() {
		t.Skip("SKIPPED: -short; nothing of it is for the race detector")
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "scenario\tfault\treport finds\tafter\tconform finds\tafter")
	var hits, alarms, misses int
	for _, scenario := range scenarios {
		for _, f := range faults {
			e := newFaulty(t, scenario, f, duration)
			kinds, seen := e.report(t, f.reported)
			rules, judged := e.judge(t, f.judged)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", scenario, f.name, list(kinds), packets(seen), list(rules), packets(judged))
			for _, found := range []struct {
				want string
				got  []string
			}{{f.reported, kinds}, {f.judged, rules}} {
				switch {
				case found.want != "" && slices.Contains(found.got, found.want):
					hits++
				case found.want != "":
					misses++
					if scenario == "ring" {
						t.Errorf("%s, %s: %s is not found, but %v", scenario, f.name, found.want, found.got)
					}
				case len(found.got) > 0 && f.honest:
					alarms++
					t.Errorf("%s, %s: %v is found", scenario, f.name, found.got)
				}
			}
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	// Elsewhere later hops may replace all that a faulty one wrote.
	if 10*misses > hits {
		t.Errorf("%d faults are found, %d are not", hits, misses)
	}
	fmt.Fprintf(&table, "\nfindings of faults that one tap, or captures around the device, can show: recall %d of %d; precision %d of %d\n", hits, hits+misses, hits, hits+alarms)
	t.Log("\n" + table.String())
	if file != "" {
		if err := os.WriteFile(file, []byte(table.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func list(names []string) string { return cmp.Or(strings.Join(names, " "), "-") }

func packets(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
