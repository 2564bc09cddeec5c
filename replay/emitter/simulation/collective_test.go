package simulation

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/frames"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

func TestTreeIsABinaryTree(t *testing.T) {
	w := scenario.Workload{Burst: time.Second}
	hosts := []int{10, 11, 12, 13, 14, 15, 16, 17}
	edges := treeEdges(&w, hosts)
	if len(edges) != 14 {
		t.Fatalf("%d edges of 8 hosts", len(edges))
	}
	parents, share := map[int]int{}, map[int]int{}
	for i := 0; i < len(edges); i += 2 {
		up, down := edges[i], edges[i+1]
		if up.src != down.dst || up.dst != down.src || up.offset != 0 || down.offset != up.burst || up.burst*2 != exact.Picoseconds(w.Burst) {
			t.Errorf("edges %+v and %+v", up, down)
		}
		parents[up.src]++
		share[down.src]++
		if down.share < 1 || down.share > 2 {
			t.Errorf("edge %+v", down)
		}
	}
	for i, h := range hosts {
		want := 1
		if i == 0 {
			want = 0
		}
		if parents[h] != want || share[h] > 2 || share[h] != children(i, len(hosts)) {
			t.Errorf("host %d has %d parents and %d children", h, parents[h], share[h])
		}
	}
}

func TestPipelineFillsAndDrains(t *testing.T) {
	w := scenario.Workload{Burst: time.Second, MicroBatches: 4}
	rack := func(h int) int { return h / 10 }
	edges := pipelineEdges(&w, []int{10, 20, 30, 11, 21, 31}, rack)
	if len(edges) != 8 {
		t.Fatalf("%d edges of 3 stages of 2 hosts", len(edges))
	}
	half := exact.Picoseconds(w.Burst) / 2
	for _, e := range edges {
		forward := rack(e.dst) > rack(e.src)
		if d := rack(e.dst) - rack(e.src); d != 1 && d != -1 || e.src%10 != e.dst%10 {
			t.Errorf("edge %d to %d", e.src, e.dst)
		}
		if inFirst := e.offset+e.burst <= half; inFirst != forward {
			t.Errorf("edge %d to %d sends from %d for %d", e.src, e.dst, e.offset, e.burst)
		}
		if e.offset+e.burst > exact.Picoseconds(w.Burst) {
			t.Errorf("edge %d to %d ends after the burst", e.src, e.dst)
		}
	}
	if a, b := edges[0], edges[4]; b.offset-a.offset != a.burst/4 {
		t.Errorf("stages begin at %d and %d", a.offset, b.offset)
	}
}

// Racks of different sizes: the hosts that the next rack has no partner for send nothing.
func TestPipelineOfUnequalRacks(t *testing.T) {
	for name, sizes := range map[string][]int{"shrinks": {3, 2, 1}, "grows": {1, 2, 3}, "waist": {3, 1, 3}} {
		s := scenario.Scenario{Name: name, Cores: 1, HostSpeed: scenario.Gbps, UplinkSpeed: scenario.Gbps, Duration: time.Second}
		want := 0
		for i, hosts := range sizes {
			s.Pods = append(s.Pods, scenario.Pod{Racks: 1, Aggs: 1, HostsPerRack: hosts})
			if i > 0 {
				want += 2 * min(hosts, sizes[i-1])
			}
		}
		s.Workloads = []scenario.Workload{{Kind: scenario.Pipeline, Rate: scenario.Mbps}}
		s = s.WithDefaults()
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		topology := topologyOf(t, &s)
		b, err := buildFlows(&s, topology)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.flows) != want {
			t.Errorf("%s: %d flows, want %d", name, len(b.flows), want)
		}
		for i := range b.flows {
			from, to := topology.Rack(int(b.flows[i].src)), topology.Rack(int(b.flows[i].dst))
			if d := to - from; d != 1 && d != -1 {
				t.Errorf("%s: a flow from rack %d to rack %d", name, from+1, to+1)
			}
		}
	}
}

// Each workload kind must give its flows.
func TestNewWorkloadsMakeTheirFlows(t *testing.T) {
	tests := []struct {
		name     string
		workload scenario.Workload
		want     int
		check    func(f *flow) bool
	}{
		{"tree", scenario.Workload{Kind: scenario.Tree}, 10, func(f *flow) bool { return f.src != f.dst }},
		{"pipeline", scenario.Workload{Kind: scenario.Pipeline}, 8, func(f *flow) bool { return f.src%2 == f.dst%2 }},
		{"storage", scenario.Workload{Kind: scenario.Storage, Pairs: 30}, 30, func(f *flow) bool { return f.transfers != nil && f.src/2 != f.dst/2 }},
		{"probes of racks", scenario.Workload{Kind: scenario.Probes}, 6, func(f *flow) bool { return f.dataLength == frames.EthernetLen+96 && f.ackEvery == 1 }},
		{"probes of hosts", scenario.Workload{Kind: scenario.Probes, HostsPerRack: 2}, 30, func(f *flow) bool { return f.pace.gap == exact.Picoseconds(time.Millisecond) }},
		{
			"listed",
			scenario.Workload{Kind: scenario.Flows, Flows: []scenario.Pair{{From: scenario.Host{Rack: 1, Host: 1}, To: scenario.Host{Rack: 2, Host: 2}}, {From: scenario.Host{Rack: 3, Host: 1}, To: scenario.Host{Rack: 1, Host: 2}}}},
			2,
			func(f *flow) bool { return (f.src == 0 && f.dst == 3) || (f.src == 4 && f.dst == 1) },
		},
	}
	for _, tt := range tests {
		s := tiny()
		if tt.workload.Kind == scenario.Probes {
			tt.workload.Interval = time.Millisecond
		} else {
			tt.workload.Rate = scenario.Mbps
		}
		s.Workloads = []scenario.Workload{tt.workload}
		s = s.WithDefaults()
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		b, err := buildFlows(&s, topologyOf(t, &s))
		if err != nil {
			t.Fatal(err)
		}
		if len(b.flows) != tt.want {
			t.Errorf("%s: %d flows, want %d", tt.name, len(b.flows), tt.want)
		}
		for i := range b.flows {
			if !tt.check(&b.flows[i]) {
				t.Errorf("%s: flow from %d to %d", tt.name, b.flows[i].src, b.flows[i].dst)
			}
		}
	}
}

func TestWorkloadErrors(t *testing.T) {
	for name, w := range map[string]scenario.Workload{
		"probes without interval":  {Kind: scenario.Probes},
		"probes with a rate":       {Kind: scenario.Probes, Interval: time.Second, Rate: scenario.Mbps},
		"interval of a ring":       {Kind: scenario.Ring, Rate: scenario.Mbps, Interval: time.Second},
		"flows without flows":      {Kind: scenario.Flows, Rate: scenario.Mbps},
		"flows in a ring":          {Kind: scenario.Ring, Rate: scenario.Mbps, Flows: []scenario.Pair{{From: scenario.Host{Rack: 1, Host: 1}, To: scenario.Host{Rack: 2, Host: 1}}}},
		"flow to itself":           {Kind: scenario.Flows, Rate: scenario.Mbps, Flows: []scenario.Pair{{From: scenario.Host{Rack: 1, Host: 1}, To: scenario.Host{Rack: 1, Host: 1}}}},
		"rack twice":               {Kind: scenario.Ring, Rate: scenario.Mbps, Racks: []int{2, 2}},
		"flow from nowhere":        {Kind: scenario.Flows, Rate: scenario.Mbps, Flows: []scenario.Pair{{From: scenario.Host{Rack: 9, Host: 1}, To: scenario.Host{Rack: 1, Host: 1}}}},
		"no rate":                  {Kind: scenario.Ring},
		"tiny packets":             {Kind: scenario.Ring, Rate: scenario.Mbps, PacketBytes: 40},
		"packets beyond the MTU":   {Kind: scenario.Ring, Rate: scenario.Mbps, PacketBytes: 9000},
		"pauses without transfers": {Kind: scenario.Ring, Rate: scenario.Mbps, Think: time.Second},
		"bad sizes":                {Kind: scenario.Storage, Rate: scenario.Mbps, Sizes: &scenario.Sizes{Distribution: "zipf"}},
		"jitter without steps":     {Kind: scenario.Ring, Rate: scenario.Mbps, Jitter: time.Second},
		"jitter beyond the period": {Kind: scenario.Ring, Rate: scenario.Mbps, Period: time.Second, Burst: time.Second, Jitter: 1},
		"late without stragglers":  {Kind: scenario.Ring, Rate: scenario.Mbps, Period: time.Second, Burst: 1, Late: 1},
		"straggler from nowhere":   {Kind: scenario.Ring, Rate: scenario.Mbps, Period: time.Second, Burst: 1, Late: 1, Stragglers: []scenario.Host{{Rack: 9, Host: 9}}},
	} {
		s := tiny()
		s.Workloads = []scenario.Workload{w}
		s = s.WithDefaults()
		if err := s.Check(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
