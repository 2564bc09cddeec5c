package emitter

import (
	"testing"
	"time"
)

func TestTreeIsABinaryTree(t *testing.T) {
	w := Workload{Burst: time.Second}
	hosts := []int{10, 11, 12, 13, 14, 15, 16, 17}
	edges := treeEdges(&w, hosts)
	if len(edges) != 14 {
		t.Fatalf("%d edges of 8 hosts", len(edges))
	}
	parents, share := map[int]int{}, map[int]int{}
	for i := 0; i < len(edges); i += 2 {
		up, down := edges[i], edges[i+1]
		if up.src != down.dst || up.dst != down.src || up.offset != 0 || down.offset != up.burst || up.burst*2 != ps(w.Burst) {
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
	w := Workload{Burst: time.Second, MicroBatches: 4}
	rack := func(h int) int { return h / 10 }
	edges := pipelineEdges(&w, []int{10, 20, 30, 11, 21, 31}, rack)
	if len(edges) != 8 {
		t.Fatalf("%d edges of 3 stages of 2 hosts", len(edges))
	}
	half := ps(w.Burst) / 2
	for _, e := range edges {
		forward := rack(e.dst) > rack(e.src)
		if d := rack(e.dst) - rack(e.src); d != 1 && d != -1 || e.src%10 != e.dst%10 {
			t.Errorf("edge %d to %d", e.src, e.dst)
		}
		if inFirst := e.offset+e.burst <= half; inFirst != forward {
			t.Errorf("edge %d to %d sends from %d for %d", e.src, e.dst, e.offset, e.burst)
		}
		if e.offset+e.burst > ps(w.Burst) {
			t.Errorf("edge %d to %d ends after the burst", e.src, e.dst)
		}
	}
	if a, b := edges[0], edges[4]; b.offset-a.offset != a.burst/4 {
		t.Errorf("stages begin at %d and %d", a.offset, b.offset)
	}
}

// The stated kinds give the flows that they name.
func TestNewWorkloadsMakeTheirFlows(t *testing.T) {
	tests := []struct {
		name     string
		workload Workload
		want     int
		check    func(f *flow) bool
	}{
		{"tree", Workload{Kind: Tree}, 10, func(f *flow) bool { return f.src != f.dst }},
		{"pipeline", Workload{Kind: Pipeline}, 8, func(f *flow) bool { return f.src%2 == f.dst%2 }},
		{"storage", Workload{Kind: Storage, Pairs: 30}, 30, func(f *flow) bool { return f.transfers != nil && f.src/2 != f.dst/2 }},
		{"probes of racks", Workload{Kind: Probes}, 6, func(f *flow) bool { return f.dataLength == ethernetLen+probeBytes && f.ackEvery == 1 }},
		{"probes of hosts", Workload{Kind: Probes, HostsPerRack: 2}, 30, func(f *flow) bool { return f.pace.gap == ps(time.Millisecond) }},
		{
			"listed",
			Workload{Kind: Flows, Flows: []Pair{{Host{1, 1}, Host{2, 2}}, {Host{3, 1}, Host{1, 2}}}},
			2,
			func(f *flow) bool { return (f.src == 0 && f.dst == 3) || (f.src == 4 && f.dst == 1) },
		},
	}
	for _, tt := range tests {
		s := tiny()
		if tt.workload.Kind == Probes {
			tt.workload.Interval = time.Millisecond
		} else {
			tt.workload.Rate = Mbps
		}
		s.Workloads = []Workload{tt.workload}
		s = s.withDefaults()
		if err := s.check(); err != nil {
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
	for name, w := range map[string]Workload{
		"probes without interval":  {Kind: Probes},
		"probes with a rate":       {Kind: Probes, Interval: time.Second, Rate: Mbps},
		"interval of a ring":       {Kind: Ring, Rate: Mbps, Interval: time.Second},
		"flows without flows":      {Kind: Flows, Rate: Mbps},
		"flows in a ring":          {Kind: Ring, Rate: Mbps, Flows: []Pair{{Host{1, 1}, Host{2, 1}}}},
		"flow to itself":           {Kind: Flows, Rate: Mbps, Flows: []Pair{{Host{1, 1}, Host{1, 1}}}},
		"flow from nowhere":        {Kind: Flows, Rate: Mbps, Flows: []Pair{{Host{9, 1}, Host{1, 1}}}},
		"no rate":                  {Kind: Ring},
		"tiny packets":             {Kind: Ring, Rate: Mbps, PacketBytes: 40},
		"packets beyond the MTU":   {Kind: Ring, Rate: Mbps, PacketBytes: 9000},
		"pauses without transfers": {Kind: Ring, Rate: Mbps, Think: time.Second},
		"bad sizes":                {Kind: Storage, Rate: Mbps, Sizes: &Sizes{Distribution: "zipf"}},
		"jitter without steps":     {Kind: Ring, Rate: Mbps, Jitter: time.Second},
		"jitter beyond the period": {Kind: Ring, Rate: Mbps, Period: time.Second, Burst: time.Second, Jitter: 1},
		"late without stragglers":  {Kind: Ring, Rate: Mbps, Period: time.Second, Burst: 1, Late: 1},
		"straggler from nowhere":   {Kind: Ring, Rate: Mbps, Period: time.Second, Burst: 1, Late: 1, Stragglers: []Host{{9, 9}}},
	} {
		s := tiny()
		s.Workloads = []Workload{w}
		s = s.withDefaults()
		if err := s.check(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
