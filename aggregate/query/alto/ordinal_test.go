package alto_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOrdinal: ranks are in the order of the costs, best first, for each metric; parts of a map
// have the ranks of the whole one, and constraints apply to ranks.
func TestOrdinal(t *testing.T) {
	s := newServed(t)
	s.window(t, 0)
	for metric, roomy := range map[string]bool{"routingcost": false, "bw-available": true, "bw-available-min": true, "csig-max-hop-delay": false} {
		costs := document[costMap](t, s.ask("GET", "/alto/costmap/num-"+metric, "", ""), prefix+"costmap"+suffix)
		ranks := document[costMap](t, s.ask("GET", "/alto/costmap/ord-"+metric, "", ""), prefix+"costmap"+suffix)
		if m := ranks.Meta; m.CostType.Mode != "ordinal" || m.CostType.Metric != costs.Meta.CostType.Metric || !slices.Equal(m.Dependent, costs.Meta.Dependent) {
			t.Errorf("%s: %+v", metric, m)
		}
		byRank := map[float64]float64{}
		for src, row := range costs.Map {
			for dst, cost := range row {
				rank, ok := ranks.Map[src][dst]
				if was, met := byRank[rank]; !ok || met && was != cost {
					t.Errorf("%s: %s to %s at %g has rank %g, as has %g", metric, src, dst, cost, rank, was)
				}
				byRank[rank] = cost
			}
		}
		best := math.Inf(-1)
		for i, rank := range slices.Sorted(maps.Keys(byRank)) {
			cost := byRank[rank]
			if roomy {
				cost = -cost
			}
			if rank != float64(i+1) || cost <= best {
				t.Errorf("%s: place %d has the rank %g at %g", metric, i+1, rank, byRank[rank])
			}
			best = cost
		}
		if len(byRank) < racks {
			t.Errorf("%s: %d ranks", metric, len(byRank))
		}
	}
	whole := document[costMap](t, s.ask("GET", "/alto/costmap/ord-bw-available", "", ""), prefix+"costmap"+suffix)
	const kind = `{"cost-type": {"cost-mode": "ordinal", "cost-metric": "bw-available"}`
	some := document[costMap](t, s.ask("POST", "/alto/costmap/filtered", prefix+"costmapfilter"+suffix, kind+`, "pids": {"srcs": ["rack2"], "dsts": []}}`), prefix+"costmap"+suffix)
	if diff := cmp.Diff(map[string]map[string]float64{"rack2": whole.Map["rack2"]}, some.Map); diff != "" {
		t.Errorf("filtered (-want +got):\n%s", diff)
	}
	best := document[costMap](t, s.ask("POST", "/alto/costmap/filtered", prefix+"costmapfilter"+suffix, kind+`, "constraints": ["le 2"]}`), prefix+"costmap"+suffix)
	chosen := map[float64]bool{}
	for _, row := range best.Map {
		for _, rank := range row {
			chosen[rank] = true
		}
	}
	if !maps.Equal(chosen, map[float64]bool{1: true, 2: true}) {
		t.Errorf("the best two are %v", best.Map)
	}
	ends := document[endpointCosts](t, s.ask("POST", "/alto/endpointcost", prefix+"endpointcostparams"+suffix,
		kind+`, "endpoints": {"srcs": ["ipv4:10.0.1.7"], "dsts": ["ipv4:10.0.2.1", "ipv4:10.0.3.1"]}}`), prefix+"endpointcost"+suffix)
	if want := fmt.Sprint(map[string]float64{"ipv4:10.0.2.1": whole.Map["rack1"]["rack2"], "ipv4:10.0.3.1": whole.Map["rack1"]["rack3"]}); fmt.Sprint(ends.Map["ipv4:10.0.1.7"]) != want || ends.Meta.CostType.Mode != "ordinal" {
		t.Errorf("endpoints: %v, want %s", ends, want)
	}
}
