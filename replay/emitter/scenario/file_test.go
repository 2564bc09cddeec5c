package scenario

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/csigscope/csigscope/decode/csig"
)

var compactIETF = csig.Layout{Format: csig.Compact, Profile: csig.IETF01}

// TestDumpIsReadBack dumps every named scenario, with wide and with compact tags, and expects to
// read the same scenario back.
func TestDumpIsReadBack(t *testing.T) {
	for _, name := range Names() {
		for _, compact := range []bool{false, true} {
			s, err := Named(name)
			if err != nil {
				t.Fatal(err)
			}
			if compact {
				s = s.WithLayout(compactIETF)
			}
			if s.Summary == "" || s.Name != name {
				t.Errorf("%s: name %q, summary %q: want its own name, and a comment in its first line", name, s.Name, s.Summary)
			}
			var text bytes.Buffer
			if err := Dump(&text, s); err != nil {
				t.Fatal(err)
			}
			got, err := Parse(bytes.NewReader(text.Bytes()), name)
			if err != nil {
				t.Fatalf("%v\n%s", err, text.String())
			}
			if diff := cmp.Diff(s, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s differs (-dumped +read):\n%s", name, diff)
			}
			one, err := s.ID()
			if err != nil {
				t.Fatal(err)
			}
			if two, err := got.ID(); err != nil || one != two {
				t.Errorf("%s: identities %x and %x, %v", name, one, two, err)
			}
		}
	}
}

// TestKindsAreDescribed checks that the example of each kind is valid in a scenario.
func TestKindsAreDescribed(t *testing.T) {
	for _, folder := range []string{"devices", "faults"} {
		for i, k := range kindsIn(folder) {
			s, err := Named("ring")
			if err != nil {
				t.Fatal(err)
			}
			if folder == "devices" {
				s.Devices = []Behavior{k.Example}
			} else {
				s.Faults = []Behavior{k.Example}
			}
			if err := s.Check(); err != nil || k.Description == "" || k.Example.Kind != fileNames(folder)[i] {
				t.Errorf("%s: %+v: %v", fileNames(folder)[i], k, err)
			}
			if len(k.Example.Matches(topologyOf(t, &s))) == 0 {
				t.Errorf("%s: %q matches no port of a fabric of 4 leaves", k.Example.Kind, k.Example.Match)
			}
		}
	}
}

func TestParse(t *testing.T) {
	const text = `
base: incast
seed: 99
duration: 20ms
uplink_speed: 25Gbps
format: compact
profile: ietf01
signals: [max_delay, min_abw]
workloads:
  - {kind: ring, rate: 100Mbps, period: 10ms, burst: 5ms}
`
	s, err := Parse(strings.NewReader(text), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if s.Seed != 99 || s.Duration != 20*time.Millisecond || s.UplinkSpeed != 25*Gbps || s.Layout != compactIETF ||
		s.Locator != "class" || len(s.Signals) != 2 || s.Leaves != 4 || len(s.Workloads) != 1 || s.Workloads[0].Rate != 100*Mbps {
		t.Errorf("parsed %+v", s)
	}
	path := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err = Load(path); err != nil || s.Seed != 99 {
		t.Fatalf("%v, %+v", err, s)
	}
}

func TestParseErrors(t *testing.T) {
	const fabric = "leaves: 2\nspines: 1\nhosts_per_leaf: 1\nhost_speed: 1Gbps\nuplink_speed: 1Gbps\n"
	tests := []struct{ name, text, want string }{
		{"unknown key", "base: demo\nhosts: 3\n", "line 2"},
		{"bad speed", "base: demo\nhost_speed: fast\n", "line 2"},
		{"unknown base", "base: nothing\n", "expected one of"},
		{"unknown signal", "base: demo\nsignals: [speed]\n", "speed"},
		{"signal of another profile", "base: demo\nformat: compact\nprofile: ietf01\nsignals: [max_nqd]\n", "max_nqd"},
		{"no workload", fabric, "no workloads"},
		{"no fabric", "workloads: [{kind: ring, rate: 1Mbps}]\n", "leaves 0"},
		{"burst without period", fabric + "workloads: [{kind: ring, rate: 1Mbps, burst: 1s}]\n", "workloads[0] (ring)"},
		{"rack that is not there", fabric + "workloads: [{kind: ring, rate: 1Mbps, racks: [3]}]\n", "racks: 3"},
		{"target that is not there", fabric + "workloads: [{kind: incast, rate: 1Mbps}]\n", "no such host"},
		{"start that no run reaches", fabric + "duration: 10ms\nworkloads: [{kind: ring, rate: 1Mbps, start: 3000h}]\n", "start 3000h0m0s"},
		{"end that no run reaches", fabric + "duration: 10ms\nworkloads: [{kind: ring, rate: 1Mbps, end: 3000h}]\n", "end 3000h0m0s"},
		{"period beyond all runs", fabric + "workloads: [{kind: ring, rate: 1Mbps, period: 3000h, burst: 1s}]\n", "period 3000h0m0s"},
		{"fault beyond all runs", "base: demo\nfaults: [{match: spine1, kind: reset, start: 3000h}]\n", "start 3000h0m0s"},
		{"start after the end of the run", fabric + "duration: 10ms\nworkloads: [{kind: ring, rate: 1Mbps, start: 10ms}]\n", "nothing would be sent"},
		{"a key given twice", fabric + "host_speed: 1Mbps\n", "already defined"},
		{"hash of addresses that are not IPv4", "base: ipv6\necmp_hash: crc32\n", "ecmp_hash: expected IPv4"},
		{"fraction", "base: demo\nspines: 1.5\n", "line 2: cannot unmarshal !!float `1.5` into int"},
		{"second document", "base: demo\n---\nspines: 1\n", "more than one YAML document"},
		{"not a mapping", "- 1\n", "line 1: cannot unmarshal !!seq into scenario.onlyBase"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(strings.NewReader(tt.text), "file.yaml")
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "file.yaml") {
				t.Errorf("error %v, want one that names file.yaml and %q", err, tt.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("base: demo\nseed: 3\n")
	f.Add("leaves: 2\nspines: 1\nhosts_per_leaf: 1\nhost_speed: 1Gbps\nuplink_speed: 1Gbps\nworkloads: [{kind: ring, rate: 1Mbps}]\n")
	f.Add("base: fairness\nworkloads: [{kind: storage, rate: 1Gbps, transport: pony, sizes: {distribution: pareto, min_bytes: 1, max_bytes: 9}}]\n")
	f.Add("rack_uplink_speed: {1: 10Gbps}\nlocator_fields: [{field: stage, bits: 2, values: {1: leaf}}]\n")
	f.Add("pods: [{racks: 2, aggs: 1, hosts_per_rack: 2, oversubscription: 3:1}]\ncores: 2\nhost_speed: 1Gbps\nside_links: [{stage: tor, speed: 1Gbps}]\n" +
		"workloads: [{kind: ring, rate: 1Mbps}]\n")
	f.Add("base: rogue\ntrim_buffer_bytes: 9\nabw: dre\ndevices: [{match: 'leaf*', kind: abw-estimator, every: 1ms, abw: ewma}]\n" +
		"faults: [{match: spine1, kind: stuck, values: {max_delay: 1ms}, start: 1s, end: 2s}]\nlocator_values: [{match: leaf1, lm: 7}]\n")
	f.Add("base: overlay\nencap: geneve\nip: 6\nunderlay: 6\ntaps: [{name: a, before: ['spine*'], drift_ppb: -5, loss: 0.5%, erspan: 3, session: 9}]\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(strings.NewReader(text), "fuzz")
		if err != nil {
			return
		}
		if err := s.Check(); err != nil {
			t.Errorf("a scenario that Parse takes fails its check: %v", err)
		}
		var first, second strings.Builder
		if err := Dump(&first, s); err != nil {
			t.Fatal(err)
		}
		again, err := Parse(strings.NewReader(first.String()), "dumped")
		if err != nil {
			t.Fatalf("what Dump writes is not read: %v\n%s", err, first.String())
		}
		if err := Dump(&second, again); err != nil || first.String() != second.String() {
			t.Errorf("a dumped scenario changes: %v\n%s\nthen\n%s", err, first.String(), second.String())
		}
	})
}

func TestSizeMovesRacksInProportion(t *testing.T) {
	s, err := Named("demo")
	if err != nil {
		t.Fatal(err)
	}
	small := s.WithSize(8, 0, 1)
	if len(small.RackUplinkSpeed) != 1 || small.RackUplinkSpeed[3] == 0 {
		t.Errorf("slow racks %v, want rack 3", small.RackUplinkSpeed)
	}
	if target := small.Workloads[1].Target; target != (Host{Rack: 7, Host: 1}) {
		t.Errorf("target %+v, want the only host of rack 7", target)
	}
	if n := len(small.Workloads[0].Racks); n != 6 {
		t.Errorf("the job runs on %d racks, want 6", n)
	}
	if len(s.Workloads[0].Racks) != 12 || s.RackUplinkSpeed[5] == 0 {
		t.Error("the original changed")
	}
}

func TestSizeErrors(t *testing.T) {
	for name, s := range map[string]Sizes{
		"no name":           {},
		"fixed without":     {Distribution: FixedSize},
		"fixed with a max":  {Distribution: FixedSize, MinBytes: 1, MaxBytes: 2},
		"pareto reversed":   {Distribution: Pareto, MinBytes: 9, MaxBytes: 3},
		"pareto too large":  {Distribution: Pareto, MinBytes: 9, MaxBytes: maxSize + 1},
		"websearch and min": {Distribution: WebSearch, MinBytes: 9},
		"one point":         {Distribution: TableSizes, Points: []SizePoint{{1, 0}}},
		"no end":            {Distribution: TableSizes, Points: []SizePoint{{1, 0}, {2, 5}}},
		"falling":           {Distribution: TableSizes, Points: []SizePoint{{9, 0}, {2, SizeScale}}},
		"same share":        {Distribution: TableSizes, Points: []SizePoint{{1, 0}, {2, 0}, {3, SizeScale}}},
	} {
		if err := s.check(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
