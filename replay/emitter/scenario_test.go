package emitter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// Every named scenario runs, in wide and compact tags, and describes a fabric that
// the fabric package takes.
func TestNamedScenariosRun(t *testing.T) {
	for _, name := range Names() {
		for _, layout := range []csig.Layout{wideUEC, compactIETF} {
			t.Run(name+" "+layout.String(), func(t *testing.T) {
				s, err := Named(name)
				if err != nil {
					t.Fatal(err)
				}
				s = s.WithLayout(layout)
				s.Packets = 2000
				r, _ := run(t, s)
				if r.Captured != 2000 {
					t.Errorf("captured %d packets of 2000", r.Captured)
				}
				if _, err := fabric.Load(r.Fabric); err != nil {
					t.Error(err)
				}
			})
		}
	}
	if _, err := Named("nothing"); err == nil || !strings.Contains(err.Error(), "demo") {
		t.Errorf("error %v, want one that lists the names", err)
	}
}

// The file that speeds are stated on has enough packets to a partial and the length
// that it promises.
func TestFabricLikeIsFabricLike(t *testing.T) {
	s, err := Named("fabric-like")
	if err != nil {
		t.Fatal(err)
	}
	s.Packets = 400_000
	r, _ := run(t, s)
	if length := float64(r.CapturedBytes) / float64(r.Captured); length < 103 || length > 106 {
		t.Errorf("average captured length %.1f, want 104", length)
	}
	if packets := float64(r.Captured) / float64(r.Partials); packets < 50 {
		t.Errorf("%.1f packets a partial, want at least 50", packets)
	}
}

func TestWorkloadsMakeTheirFlows(t *testing.T) {
	base := func(w Workload) Scenario {
		s := tiny()
		w.Rate = Mbps
		s.Workloads = []Workload{w}
		return s.withDefaults()
	}
	tests := []struct {
		name     string
		workload Workload
		want     int
		check    func(f *flow) bool
	}{
		{"ring between racks", Workload{Kind: Ring}, 6, func(f *flow) bool { return f.src/2 != f.dst/2 }},
		{"ring by racks", Workload{Kind: Ring, RackOrder: true}, 6, func(f *flow) bool { return f.dst == (f.src+1)%6 }},
		{"connections", Workload{Kind: Ring, Connections: 3}, 18, func(f *flow) bool { return f.pace.gap > 30e9 }},
		{"all to all", Workload{Kind: AllToAll}, 30, func(f *flow) bool { return f.src != f.dst }},
		{"some racks", Workload{Kind: AllToAll, Racks: []int{1, 3}, HostsPerRack: 1}, 2, func(f *flow) bool { return f.src%2 == 0 && f.src != 2 }},
		{"incast", Workload{Kind: Incast, Target: Host{1, 2}}, 5, func(f *flow) bool { return f.dst == 1 && f.src != 1 }},
		{"incast of some", Workload{Kind: Incast, Target: Host{1, 2}, Sources: 3}, 3, func(f *flow) bool { return f.dst == 1 && f.src != 1 }},
		{"permutation", Workload{Kind: Permutation}, 6, func(f *flow) bool { return f.src != f.dst }},
		{"background of all racks", Workload{Kind: Background}, 6, func(f *flow) bool { return f.src/2 != f.dst/2 }},
		{"background of pairs", Workload{Kind: Background, Pairs: 40}, 40, func(f *flow) bool { return f.src/2 != f.dst/2 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := base(tt.workload)
			b, err := buildFlows(&s, topologyOf(t, &s))
			if err != nil {
				t.Fatal(err)
			}
			if len(b.flows) != tt.want {
				t.Errorf("%d flows, want %d", len(b.flows), tt.want)
			}
			tuples, receivers := map[fiveTuple]bool{}, map[int32]bool{}
			for i := range b.flows {
				f := &b.flows[i]
				if !tt.check(f) {
					t.Errorf("flow from host %d to host %d, gap %d", f.src, f.dst, f.pace.gap)
				}
				tuples[f.tuple], receivers[f.dst] = true, true
			}
			if len(tuples) != tt.want {
				t.Errorf("%d different 5-tuples, want %d", len(tuples), tt.want)
			}
			if tt.workload.Kind == Permutation && len(receivers) != 6 {
				t.Errorf("%d of 6 hosts receive", len(receivers))
			}
		})
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
	if s, err = Load(path); err != nil {
		t.Fatal(err)
	}
	run(t, s)
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
		{"a key given twice", fabric + "host_speed: 1Mbps\n", "already defined"},
		{"not a mapping", "- 1\n", "cannot unmarshal"},
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

// What Run finds out only when it builds the network.
func TestRunErrors(t *testing.T) {
	tests := []struct {
		name   string
		change func(s *Scenario)
		want   string
	}{
		{"unknown kind", func(s *Scenario) { s.Workloads[0].Kind = "storm" }, "storm"},
		{"ports beyond the locator", func(s *Scenario) {
			s.HostsPerLeaf, s.Leaves = 60, 3
			*s = s.WithLayout(compactIETF)
			s.Locator = "port"
		}, "use locator class"},
		{"hardly any rate", func(s *Scenario) {
			s.HostsPerLeaf = 2
			s.Workloads = []Workload{{Kind: AllToAll, Rate: 1, Connections: 500}}
		}, "less than 1 bit/s"},
		{"more ports than there is room for", func(s *Scenario) { s.Leaves, s.Spines = 4000, 4000 }, "ports"},
		{"unknown locator", func(s *Scenario) { s.Locator = "street" }, "street"},
		{"custom locator without fields", func(s *Scenario) { s.Locator = "custom" }, "locator_fields"},
		{"too many speeds", func(s *Scenario) {
			s.Leaves, s.Locator, s.RackUplinkSpeed = 9, "class", map[int]Rate{}
			for r := range 8 {
				s.RackUplinkSpeed[r+1] = Rate(r+1) * 10 * Mbps
			}
		}, "link speeds"},
		{"short window", func(s *Scenario) { s.Window, s.HostSpeed, s.ABWInterval = time.Millisecond, Mbps, time.Millisecond }, "slowest link"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tiny()
			tt.change(&s)
			if _, err := Run(t.Context(), s, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
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
	f.Add("base: rogue\ntrim_buffer_bytes: 9\nabw: dre\ndevices: [{match: 'leaf*', kind: metering, every: 1ms, abw: ewma}]\n" +
		"faults: [{match: spine1, kind: stuck, values: {max_delay: 1ms}, start: 1s, end: 2s}]\nlocator_values: [{match: leaf1, lm: 7}]\n")
	f.Add("base: overlay\nencap: geneve\nip: 6\nunderlay: 6\ntaps: [{name: a, before: ['spine*'], drift_ppb: -5, loss: 0.5%, erspan: 3, session: 9}]\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(strings.NewReader(text), "fuzz")
		if err != nil {
			return
		}
		if err := s.check(); err != nil {
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
