package window_test

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// flowKey names a flow in a window.
type flowKey struct {
	resolution, start int64
	signal            csig.Signal
	kind              decode.Kind
	src, dst          aggregate.GroupID
	flow              flow.Flow
}

type flowSums struct{ heavy, bytes, sum, min, max uint64 }

// flowTotals adds up the flows that blocks name.
func flowTotals(blocks []aggregate.Block) map[flowKey]flowSums {
	totals := map[flowKey]flowSums{}
	for i := range blocks {
		b := &blocks[i]
		for _, f := range b.Flows {
			if f.Flow == (flow.Flow{}) {
				continue
			}
			k := flowKey{b.Resolution, b.WindowStart, csig.Signal(f.Signal), decode.Kind(f.Kind), aggregate.GroupID(f.SrcGroup), aggregate.GroupID(f.DstGroup), f.Flow}
			t, ok := totals[k]
			if !ok {
				t.min = math.MaxUint64
			}
			totals[k] = flowSums{t.heavy + f.Heavy, t.bytes + f.Bytes, t.sum + f.Sum, min(t.min, f.Min), max(t.max, f.Max)}
		}
	}
	return totals
}

// checkFlowTotals checks that the rows of flows are together the rows of their block.
func checkFlowTotals(t *testing.T, b *aggregate.Block) {
	t.Helper()
	type total struct{ observations, bytes, measured, sum, heavy, heavySum uint64 }
	type of struct{ signal, kind uint8 }
	want, got := map[of]total{}, map[of]total{}
	eachRow(b, func(k rowKey, s *rowSums) {
		measured := uint64(0)
		if k.signal.HasValue() {
			for _, n := range s.dist {
				measured += n
			}
		}
		o := of{uint8(k.signal), uint8(k.kind)}
		w := want[o]
		want[o] = total{w.observations + s.observations, w.bytes + s.bytes, w.measured + measured, w.sum + s.sum, w.heavy + s.heavy, w.heavySum + s.heavySum}
	})
	for i := range b.Flows {
		f := &b.Flows[i]
		o := of{f.Signal, f.Kind}
		g := got[o]
		got[o] = total{g.observations + f.Observations, g.bytes + f.Bytes, g.measured + f.Measured, g.sum + f.Sum, g.heavy + f.Heavy, g.heavySum + f.HeavySum}
		// Wide sums are products far above 64 bits only in artificial tables.
		if f.Measured > 0 && f.Sum < math.MaxUint64/2 && (f.Sum < f.Min*f.Measured || f.Sum/f.Measured > f.Max) {
			t.Errorf("flow %+v: the mean is not between min and max", f)
		}
		if f.Heavy > f.Observations || f.LocationHeavy > f.Heavy {
			t.Errorf("flow %+v: more of a part than of the whole", f)
		}
	}
	if b.Resolution < int64(time.Second) {
		want = map[of]total{}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("window of %d ns at %d: flows come to\n%v, expected\n%v", b.Resolution, b.WindowStart, got, want)
	}
}

// countFlow counts flows in the oracle.
func (or *oracle) countFlow(o *decode.Observation, k rowKey, s *rowSums) {
	if or.flows == nil || s.heavy == 0 || o.Flags&decode.HasAddrs == 0 || k.resolution < int64(time.Second) {
		return
	}
	f := flow.Flow{Src: o.Src, Dst: o.Dst, SrcPort: o.SrcPort, DstPort: o.DstPort, Proto: o.Proto}
	if o.Kind == decode.Reflection {
		f = flow.Flow{Src: o.Dst, Dst: o.Src, SrcPort: o.DstPort, DstPort: o.SrcPort, Proto: o.Proto}
	}
	key := flowKey{k.resolution, k.start, k.signal, k.kind, k.src, k.dst, f}
	t, ok := or.flows[key]
	if !ok {
		t.min = math.MaxUint64
	}
	or.flows[key] = flowSums{t.heavy + s.heavy, t.bytes + s.bytes, t.sum + s.heavySum, min(t.min, s.min), max(t.max, s.max)}
	at := flowAt{key, k.location}
	if k.location != aggregate.NoLocation {
		or.flowsAt[at] += s.heavy
	}
}

type flowAt struct {
	flowKey
	location aggregate.LocationID
}

// Within the budget flows have exactly the oracle's counts, whatever the order, the kinds, the
// lateness and the shards that saw a part of them.
func TestFlowsAgainstOracle(t *testing.T) {
	for i, resolutions := range [][]time.Duration{
		{time.Second, time.Minute}, {10 * time.Millisecond, time.Second, time.Minute},
	} {
		cfg := window.Config{
			Domain: domainWithTypes(t), Tap: window.Tap{Tags: true, Reflections: true, Weight: uint64(1 + 2*i)}, Resolutions: resolutions,
			Flows: window.FlowLimits{Top: window.MaxTopFlows}, Horizon: 5 * time.Minute,
		}
		for seed := range uint64(4) {
			obs := randomObservations(rand.New(rand.NewPCG(seed, 11)), 4000)
			or := oracle{cfg: cfg, repeats: map[string]acknowledged{}, flows: map[flowKey]flowSums{}, flowsAt: map[flowAt]uint64{}}
			for _, r := range resolutions {
				or.cfg.Lateness = append(or.cfg.Lateness, max(2*r, 50*time.Millisecond))
			}
			for i := range obs {
				or.add(&obs[i])
			}
			var got collector
			c := run(t, newShard(t, cfg, &got), obs, 100)
			if totals := flowTotals(got.blocks); !reflect.DeepEqual(totals, or.flows) || len(totals) < 100 {
				t.Fatalf("%v, seed %d: %d flows, expected %d", resolutions, seed, len(totals), len(or.flows))
			}
			if c.FlowsForgotten != 0 {
				t.Errorf("%d flows forgotten within the budget", c.FlowsForgotten)
			}
			for i := range got.blocks {
				checkFlowTotals(t, &got.blocks[i])
			}
			or.checkLocations(t, got.blocks)
		}
	}
}

// checkLocations checks the locations of flows that only one block names.
func (or *oracle) checkLocations(t *testing.T, blocks []aggregate.Block) {
	t.Helper()
	times, checked := map[flowKey]int{}, 0
	for pass := range 2 {
		for i := range blocks {
			b := &blocks[i]
			for _, f := range b.Flows {
				k := flowKey{b.Resolution, b.WindowStart, csig.Signal(f.Signal), decode.Kind(f.Kind), aggregate.GroupID(f.SrcGroup), aggregate.GroupID(f.DstGroup), f.Flow}
				if times[k] += 1 - pass; times[k] > 1 || pass == 0 || f.Flow == (flow.Flow{}) {
					continue
				}
				most := uint64(0)
				for at, n := range or.flowsAt {
					if at.flowKey == k {
						most = max(most, n)
					}
				}
				if f.LocationHeavy != most || most > 0 && or.flowsAt[flowAt{k, aggregate.LocationID(f.Location)}] != most || most == 0 && f.Location != 0 {
					t.Fatalf("flow %+v: expected a location with %d", f, most)
				}
				if checked++; checked > 50 {
					return
				}
			}
		}
	}
}

// flowTraffic has flows that are heavy as often a second as their number says, and as often clear.
func flowTraffic(flows, seconds int) (obs []decode.Observation) {
	for second := range seconds {
		for n := range flows {
			for i := range 2 * n {
				o := at(time.Duration(second)*time.Second + time.Duration(i)*time.Millisecond)
				o.SrcPort, o.Proto, o.Flags = uint16(n), 6, o.Flags|decode.HasPorts
				if i%2 == 0 {
					o.Tag.S = 25
				}
				obs = append(obs, o)
			}
		}
	}
	slices.SortStableFunc(obs, func(a, b decode.Observation) int { return cmp.Compare(a.TimeNS, b.TimeNS) })
	return obs
}

// topPorts returns the flows of a window by their source ports, the worst first, over all blocks.
func topPorts(blocks []aggregate.Block, resolution time.Duration, start int64, n int) (ports []uint16) {
	totals := map[uint16]uint64{}
	for k, s := range flowTotals(blocks) {
		if k.resolution == int64(resolution) && k.start == start {
			totals[k.flow.SrcPort] += s.heavy
		}
	}
	for p := range totals {
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b uint16) int { return cmp.Or(cmp.Compare(totals[b], totals[a]), cmp.Compare(a, b)) })
	return ports[:min(n, len(ports))]
}

// A window that a shard has seen whole names its top flows only, and all others are in the rest.
func TestTopFlows(t *testing.T) {
	var got collector
	run(t, newShard(t, window.Config{Tap: window.Tap{Tags: true}, Flows: window.FlowLimits{Top: 5}}, &got), flowTraffic(40, 8), 256)
	whole := 0
	for i := range got.blocks {
		b := &got.blocks[i]
		checkFlowTotals(t, b)
		if b.Resolution != int64(time.Second) || len(b.Flows) > 10 {
			continue
		}
		whole++
		for n, f := range b.Flows[:5] {
			if int(f.SrcPort) != 39-n || f.Heavy != uint64(39-n) {
				t.Errorf("place %d: %+v", n, f)
			}
		}
		rest := b.Flows[5]
		if len(b.Flows) != 6 || rest.Flow != (flow.Flow{}) || rest.Heavy != 34*35/2 || rest.Observations != 39*40-5*37 {
			t.Errorf("rest %+v", b.Flows[5:])
		}
	}
	if whole != 4 { // not the first, and not the three that were open at the end
		t.Errorf("%d windows name the top flows alone, expected 4", whole)
	}
}

// The top flows are the same however a capture is divided into pieces, each with its own shard.
func TestTopFlowsInPieces(t *testing.T) {
	obs := flowTraffic(60, 6)
	for _, pieces := range []int{1, 2, 3, 7, 20} {
		var got collector
		for i := range pieces {
			part := obs[i*len(obs)/pieces : (i+1)*len(obs)/pieces]
			run(t, newShard(t, window.Config{Tap: window.Tap{Tags: true}, Flows: window.FlowLimits{Top: 4}, SeqBase: uint64(i) << 32}, &got), part, 256)
		}
		for second := range 6 {
			start := obs[0].TimeNS + int64(second)*int64(time.Second)
			if ports := topPorts(got.blocks, time.Second, start, 4); !slices.Equal(ports, []uint16{59, 58, 57, 56}) {
				t.Errorf("%d pieces, second %d: %v", pieces, second, ports)
			}
		}
		minute := obs[0].TimeNS / int64(time.Minute) * int64(time.Minute)
		if ports := topPorts(got.blocks, time.Minute, minute, 4); !slices.Equal(ports, []uint16{59, 58, 57, 56}) {
			t.Errorf("%d pieces, the minute: %v", pieces, ports)
		}
	}
}

// Past the budget the worst flows are still there, with at most their own counts, and the rest
// holds those of the others.
func TestFlowBudget(t *testing.T) {
	var obs []decode.Observation
	for i := range 20_000 {
		o := at(time.Duration(i) * 100 * time.Microsecond)
		o.Proto, o.SrcPort, o.DstPort = 6, uint16(i), 7
		if i%4 == 0 {
			o.SrcPort = 3
		}
		obs = append(obs, o)
	}
	var got collector
	s := newShard(t, window.Config{Tap: window.Tap{Tags: true}, Flows: window.FlowLimits{Top: 3, Budget: 64}}, &got)
	c := run(t, s, obs, 256)
	if c.FlowsForgotten == 0 {
		t.Error("nothing was forgotten")
	}
	for i := range got.blocks {
		b := &got.blocks[i]
		checkFlowTotals(t, b)
		if len(b.Flows) > 64+1 {
			t.Errorf("%d rows with a budget of 64", len(b.Flows))
		}
		bound := uint64(2 * 20_000 / 64)
		if f := b.Flows[0]; f.SrcPort != 3 || b.Resolution == int64(time.Minute) && f.Heavy+bound < 5000 || f.Heavy > 5001 {
			t.Errorf("the first flow is %+v", f)
		}
	}
}

// Cells without a top flow are one row.
func TestFlowsOfManyCells(t *testing.T) {
	var obs []decode.Observation
	for i := range 4000 {
		o := at(time.Duration(i) * time.Millisecond)
		setAddr(&o.Src, uint32(i%50), 1)
		setAddr(&o.Dst, uint32(i%7), 1)
		if i%50 != 3 {
			o.Tag.S = 25
		}
		obs = append(obs, o)
	}
	var got collector
	run(t, newShard(t, window.Config{Tap: window.Tap{Tags: true}, Flows: window.FlowLimits{Top: 2}}, &got), obs, 256)
	for i := range got.blocks {
		b := &got.blocks[i]
		checkFlowTotals(t, b)
		rest := b.Flows[len(b.Flows)-1]
		if rest.Flow != (flow.Flow{}) || rest.SrcGroup != uint64(aggregate.OverflowGroup) || rest.Heavy != 0 && len(b.Flows) > 8 || rest.Observations == 0 {
			t.Errorf("window at %d: the last of %d rows is %+v", b.WindowStart, len(b.Flows), rest)
		}
	}
}

// A reload continues the flows, and a shard without limits has none.
func TestFlowsSucceed(t *testing.T) {
	var got collector
	cfg := window.Config{Tap: window.Tap{Tags: true}}
	s := newShard(t, cfg, &got)
	obs := flowTraffic(10, 3)
	run(t, s, obs, 256)
	if n := len(flowTotals(got.blocks)); n != 0 {
		t.Fatalf("%d flows without limits", n)
	}
	cfg.Domain, cfg.Resolver, cfg.Flows.Top = defaultDomain(t), fakeResolver{}, 3
	next, err := s.Reconfigure(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Add(context.Background(), obs); err != nil {
		t.Fatal(err)
	}
	if err := next.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := len(flowTotals(got.blocks)); n == 0 {
		t.Error("no flows after a reload that asks for them")
	}
}
