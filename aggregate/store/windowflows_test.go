package store

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

// flowBlocks are blocks of several producers and windows with flows. Some flows are named twice,
// at other locations, or as tags and as reflections.
func flowBlocks(rng *rand.Rand) (list []*aggregate.Block) {
	for window := range int64(6) {
		for producer := range uint64(3) {
			b := withFlows(uint64(window) + 1)
			b.Producer, b.WindowStart = producer+1, b.WindowStart+window*b.Resolution
			named := b.Flows[0]
			b.Flows = b.Flows[:0]
			for range 12 {
				f := named
				f.Kind = uint8(1 + rng.IntN(2))
				f.DstGroup = 11 + rng.Uint64N(2)
				f.Observations = 1 + rng.Uint64N(9)
				f.Bytes, f.Measured, f.Heavy = 100*f.Observations, rng.Uint64N(f.Observations+1), 0
				f.Sum, f.Min, f.Max = 0, 0, 0
				if f.Measured > 0 {
					f.Min, f.Max, f.Sum, f.Heavy = 5, 9, 7*f.Measured, rng.Uint64N(f.Measured+1)
				}
				f.HeavySum, f.Location, f.LocationHeavy, f.Sampled = 6*f.Heavy, 0, 0, 0
				if f.Flow = (flow.Flow{}); rng.IntN(4) > 0 {
					f.Flow = named.Flow
					f.SrcPort = uint16(rng.IntN(4))
					if f.Heavy > 0 {
						f.Location, f.LocationHeavy, f.Sampled = 2+rng.Uint64N(3), f.Heavy, rng.Uint64N(f.Heavy+1)
					}
				}
				b.Flows = append(b.Flows, f)
			}
			b.Flows = onceEach(b.Flows)
			list = append(list, b)
		}
	}
	return list
}

// onceEach leaves one row of each cell and flow: a row with the same key would replace it.
func onceEach(flows []aggregate.FlowRow) (out []aggregate.FlowRow) {
	type key struct {
		cell aggregate.CellKey
		flow flow.Flow
	}
	seen := map[key]bool{}
	for i := range flows {
		if k := (key{flows[i].Cell(), flows[i].Flow}); !seen[k] {
			seen[k] = true
			out = append(out, flows[i])
		}
	}
	return out
}

// TestWindowFlows checks that the flows of windows in memory and those of the view are equal.
func TestWindowFlows(t *testing.T) {
	sequential(t)
	s := openStore(t)
	memory := table.NewMemory(table.MemoryOptions{Windows: 100, Ahead: -1})
	list := flowBlocks(rand.New(rand.NewPCG(5, 5)))
	for _, b := range list {
		if err := memory.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	memory.Publish()
	write(t, s, list)
	signal := csig.Signal(list[0].Signal[0])
	from := time.Unix(0, list[0].WindowStart).UTC()
	got, err := s.Flows(t.Context(), FlowQuestion{Signal: signal, From: from, To: from.Add(6 * time.Second), Limit: 1000})
	if err != nil || len(got) < 8 {
		t.Fatalf("%d flows, %v", len(got), err)
	}
	rows, complete := table.Flows(memory.State().Windows, signal, nil)
	if !complete {
		t.Error("flows made room for others")
	}
	var want []FlowTotal
	for i := range rows {
		want = append(want, totalOf(signal, &rows[i]))
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b float64) bool {
			return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) < 1e-9*math.Abs(a)
		})); diff != "" {
		t.Errorf("(-memory +stored):\n%s", diff)
	}
	some := FlowQuestion{Signal: signal, From: from, To: from.Add(6 * time.Second), Limit: 1000, Locations: []aggregate.LocationID{2, 3}}
	chosen, err := s.Flows(t.Context(), some)
	if err != nil || len(chosen) == 0 || len(chosen) >= len(got) {
		t.Fatalf("%d flows of %d at two locations, %v", len(chosen), len(got), err)
	}
	for _, f := range chosen {
		if f.Location != 2 && f.Location != 3 || f.LocationHeavy == 0 {
			t.Errorf("%+v", f)
		}
	}
}

func totalOf(s csig.Signal, r *table.WindowFlow) FlowTotal {
	f := FlowTotal{
		SrcGroup: aggregate.GroupID(r.SrcGroup), DstGroup: aggregate.GroupID(r.DstGroup), Kind: 1, Observations: r.Observations, Bytes: r.Bytes,
		Mean: math.NaN(), Min: math.NaN(), Max: math.NaN(), Heavy: r.Heavy, Windows: r.Windows, Location: aggregate.LocationID(r.Location), LocationHeavy: r.LocationHeavy, Sampled: r.Sampled,
	}
	if f.Kind = 2; r.Kind == 1 {
		f.Kind = 1
	}
	if r.Measured > 0 {
		f.Mean = s.Unit().FromStoredMean(float64(r.Sum) / float64(r.Measured))
		f.Min, f.Max = s.Unit().FromStored(r.Min), s.Unit().FromStored(r.Max)
	}
	f.Flow = FlowOf(r.Src, r.Dst, r.SrcPort, r.DstPort, r.Proto)
	return f
}
