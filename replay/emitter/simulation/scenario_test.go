package simulation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// Every named scenario runs, with wide and compact tags, and describes a fabric that the fabric
// package accepts.
func TestNamedScenariosRun(t *testing.T) {
	for _, name := range scenario.Names() {
		for _, layout := range []csig.Layout{wideUEC, compactIETF} {
			t.Run(name+" "+layout.String(), func(t *testing.T) {
				s := named(t, name)
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
	if _, err := scenario.Named("nothing"); err == nil || !strings.Contains(err.Error(), "demo") {
		t.Errorf("error %v, want one that lists the names", err)
	}
}

// The reference file for quoted speeds has enough packets per partial and the promised length.
func TestFabricLikeIsFabricLike(t *testing.T) {
	s := named(t, "fabric-like")
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
	base := func(w scenario.Workload) scenario.Scenario {
		s := tiny()
		w.Rate = scenario.Mbps
		s.Workloads = []scenario.Workload{w}
		return s.WithDefaults()
	}
	tests := []struct {
		name     string
		workload scenario.Workload
		want     int
		check    func(f *flow) bool
	}{
		{"ring between racks", scenario.Workload{Kind: scenario.Ring}, 6, func(f *flow) bool { return f.src/2 != f.dst/2 }},
		{"ring by racks", scenario.Workload{Kind: scenario.Ring, RackOrder: true}, 6, func(f *flow) bool { return f.dst == (f.src+1)%6 }},
		{"connections", scenario.Workload{Kind: scenario.Ring, Connections: 3}, 18, func(f *flow) bool { return f.pace.gap > 30e9 }},
		{"all to all", scenario.Workload{Kind: scenario.AllToAll}, 30, func(f *flow) bool { return f.src != f.dst }},
		{"some racks", scenario.Workload{Kind: scenario.AllToAll, Racks: []int{1, 3}, HostsPerRack: 1}, 2, func(f *flow) bool { return f.src%2 == 0 && f.src != 2 }},
		{"incast", scenario.Workload{Kind: scenario.Incast, Target: scenario.Host{Rack: 1, Host: 2}}, 5, func(f *flow) bool { return f.dst == 1 && f.src != 1 }},
		{"incast of some", scenario.Workload{Kind: scenario.Incast, Target: scenario.Host{Rack: 1, Host: 2}, Sources: 3}, 3, func(f *flow) bool { return f.dst == 1 && f.src != 1 }},
		{"permutation", scenario.Workload{Kind: scenario.Permutation}, 6, func(f *flow) bool { return f.src != f.dst }},
		{"background of all racks", scenario.Workload{Kind: scenario.Background}, 6, func(f *flow) bool { return f.src/2 != f.dst/2 }},
		{"background of pairs", scenario.Workload{Kind: scenario.Background, Pairs: 40}, 40, func(f *flow) bool { return f.src/2 != f.dst/2 }},
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
			tuples, receivers := map[scenario.FiveTuple]bool{}, map[int32]bool{}
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
			if tt.workload.Kind == scenario.Permutation && len(receivers) != 6 {
				t.Errorf("%d of 6 hosts receive", len(receivers))
			}
		})
	}
}

// A run that is shorter than its scenario lists the workloads that never started.
func TestIdleWorkloadsAreReported(t *testing.T) {
	s := tiny()
	s.Workloads = append(slices.Clone(s.Workloads), s.Workloads[0])
	s.Workloads[len(s.Workloads)-1].Start = s.Duration
	r, _ := run(t, s)
	var out strings.Builder
	r.WriteText(&out, "written")
	want := fmt.Sprintf("workloads[%d] sent nothing", len(s.Workloads)-1)
	if strings.Count(out.String(), "sent nothing") != 1 || !strings.Contains(out.String(), want) {
		t.Errorf("%q: expected %q", out.String(), want)
	}
}

func TestRunErrors(t *testing.T) {
	tests := []struct {
		name   string
		change func(s *scenario.Scenario)
		want   string
	}{
		{"unknown kind", func(s *scenario.Scenario) { s.Workloads[0].Kind = "storm" }, "storm"},
		{"ports beyond the locator", func(s *scenario.Scenario) {
			s.HostsPerLeaf, s.Leaves = 60, 3
			*s = s.WithLayout(compactIETF)
			s.Locator = "port"
		}, "use locator class"},
		{"hardly any rate", func(s *scenario.Scenario) {
			s.HostsPerLeaf = 2
			s.Workloads = []scenario.Workload{{Kind: scenario.AllToAll, Rate: 1, Connections: 500}}
		}, "less than 1 bit/s"},
		{"more ports than there is room for", func(s *scenario.Scenario) { s.Leaves, s.Spines = 4000, 4000 }, "ports"},
		{"unknown locator", func(s *scenario.Scenario) { s.Locator = "street" }, "street"},
		{"custom locator without fields", func(s *scenario.Scenario) { s.Locator = "custom" }, "locator_fields"},
		{"too many speeds", func(s *scenario.Scenario) {
			s.Leaves, s.Locator, s.RackUplinkSpeed = 9, "class", map[int]scenario.Rate{}
			for r := range 8 {
				s.RackUplinkSpeed[r+1] = scenario.Rate(r+1) * 10 * scenario.Mbps
			}
		}, "link speeds"},
		{"short window", func(s *scenario.Scenario) {
			s.Window, s.HostSpeed, s.ABWInterval = time.Millisecond, scenario.Mbps, time.Millisecond
		}, "slowest link"},
		{"ends after all times", func(s *scenario.Scenario) {
			s.Start = time.Unix(0, aggregate.EndOfTime).Add(-s.Duration)
		}, "no time from 2106-01-01T00:00:00Z on"},
		{"a clock ahead", func(s *scenario.Scenario) {
			s.Start = time.Unix(0, aggregate.EndOfTime).Add(-s.Duration - time.Minute)
			s.Taps = []scenario.Tap{{Racks: true, Offset: time.Minute}}
		}, "no time from 2106-01-01T00:00:00Z on"},
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

// TestLatestStart: a run may end just before the end of all times.
func TestLatestStart(t *testing.T) {
	for name, change := range map[string]func(s *scenario.Scenario){
		"pcapng":  func(*scenario.Scenario) {},
		"classic": func(s *scenario.Scenario) { s.Classic = true },
		"ERSPAN": func(s *scenario.Scenario) {
			s.Taps = []scenario.Tap{{Racks: true, ERSPAN: 3, Offset: -time.Minute}}
		},
	} {
		s := tiny()
		s.Start = time.Unix(0, aggregate.EndOfTime).Add(-s.Duration - 1)
		change(&s)
		s = s.WithDefaults()
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestScenariosTakeOtherSizes(t *testing.T) {
	long(t)
	sizes := []struct{ leaves, spines, hosts int }{{0, 0, 0}, {8, 0, 8}, {3, 2, 2}, {32, 8, 1}}
	for _, name := range scenario.Names() {
		original := named(t, name)
		for _, size := range sizes {
			s := original.WithSize(size.leaves, size.spines, size.hosts)
			s.Packets = 500
			if r, _ := run(t, s); r.Captured != 500 {
				t.Errorf("%s on %+v: captured %d packets of 500", name, size, r.Captured)
			}
		}
	}
}
