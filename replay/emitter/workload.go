package emitter

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// builder turns workloads into flows.
type builder struct {
	scenario *Scenario
	topology *topology
	flows    []flow
	cells    map[[2]int32]int32
	cellList [][2]int32 // racks
	nextPort []uint32   // source ports, per host
	styles   []uint8    // of the framer, per workload
}

// buildFlows makes the flows of all workloads, in the order of the scenario.
func buildFlows(s *Scenario, t *topology) (*builder, error) {
	b := &builder{scenario: s, topology: t, cells: map[[2]int32]int32{}, nextPort: make([]uint32, t.hosts())}
	var err error
	if _, b.styles, err = s.styles(); err != nil {
		return nil, fmt.Errorf("build workloads: %w", err)
	}
	t.spoilHashes(s)
	for i := range s.Workloads {
		w := s.Workloads[i].withDefaults(s)
		if err := b.add(&w, i); err != nil {
			return nil, fmt.Errorf("build workloads[%d] (%s): %w", i, w.Kind, err)
		}
	}
	return b, nil
}

func (b *builder) add(w *Workload, index int) error {
	hosts := b.members(w)
	rng := stream(b.scenario.Seed, 1, uint64(index))
	if len(hosts) < 2 {
		return errors.New("expected at least two hosts")
	}
	switch w.Kind {
	case Ring:
		return b.pairs(w, index, 1, len(hosts), func(i int) edge {
			return edge{src: hosts[i], dst: hosts[(i+1)%len(hosts)]}
		})
	case Tree:
		return b.edges(w, index, treeEdges(w, hosts))
	case Pipeline:
		edges := pipelineEdges(w, hosts, b.topology.rack)
		if len(edges) == 0 {
			return errors.New("expected at least two racks")
		}
		return b.edges(w, index, edges)
	case AllToAll, Probes:
		peers := len(hosts) - 1
		return b.pairs(w, index, peers, len(hosts)*peers, func(i int) edge {
			from := i / peers
			return edge{src: hosts[from], dst: hosts[(from+1+i%peers)%len(hosts)]}
		})
	case Incast:
		target := b.host(w.Target)
		sources := spread(without(hosts, target), w.Sources)
		return b.pairs(w, index, 1, len(sources), func(i int) edge { return edge{src: sources[i], dst: target} })
	case Permutation:
		to := derangement(len(hosts), &rng)
		return b.pairs(w, index, 1, len(hosts), func(i int) edge { return edge{src: hosts[i], dst: hosts[to[i]]} })
	case Background, Storage:
		return b.background(w, index, hosts, &rng)
	case Flows:
		return b.pairs(w, index, 1, len(w.Flows), func(i int) edge {
			return edge{src: b.host(w.Flows[i].From), dst: b.host(w.Flows[i].To)}
		})
	}
	return fmt.Errorf("kind %q: expected one of %s", w.Kind, strings.Join(kinds, ", "))
}

var kinds = []string{Ring, Tree, AllToAll, Pipeline, Incast, Background, Storage, Permutation, Probes, Flows}

// host is the number of a host.
func (b *builder) host(h Host) int { return int(b.topology.rackHosts(h.Rack - 1)[h.Host-1]) }

// members lists the hosts of a workload in the order in which rings visit them.
func (b *builder) members(w *Workload) []int {
	racks := w.Racks
	if len(racks) == 0 {
		for l := range b.topology.racks {
			racks = append(racks, l+1)
		}
	}
	each := w.HostsPerRack
	if each == 0 {
		each = b.topology.largestRack()
	}
	var hosts []int
	add := func(rack, host int) {
		if list := b.topology.rackHosts(rack - 1); host < len(list) {
			hosts = append(hosts, int(list[host]))
		}
	}
	for i := range each * len(racks) {
		if w.RackOrder {
			add(racks[i/each], i%each)
		} else {
			add(racks[i%len(racks)], i/len(racks))
		}
	}
	return hosts
}

func without(hosts []int, target int) []int {
	var out []int
	for _, h := range hosts {
		if h != target {
			out = append(out, h)
		}
	}
	return out
}

// spread picks n of the hosts, evenly spaced.
func spread(hosts []int, n int) []int {
	if n == 0 || n >= len(hosts) {
		return hosts
	}
	out := make([]int, n)
	for i := range out {
		out[i] = hosts[i*len(hosts)/n]
	}
	return out
}

// derangement is a random permutation of one cycle, so that nobody stays in place.
func derangement(n int, rng *random) []int {
	to := make([]int, n)
	for i := range to {
		to[i] = i
	}
	for i := n - 1; i > 0; i-- {
		j := int(rng.below(uint64(i)))
		to[i], to[j] = to[j], to[i]
	}
	return to
}

// background makes random pairs of hosts in different racks, or one random pair for
// each ordered pair of racks.
func (b *builder) background(w *Workload, index int, hosts []int, rng *random) error {
	byRack := map[int][]int{}
	var racks []int
	for _, h := range hosts {
		r := b.topology.rack(h)
		if byRack[r] == nil {
			racks = append(racks, r)
		}
		byRack[r] = append(byRack[r], h)
	}
	if len(racks) < 2 {
		return errors.New("expected at least two racks")
	}
	others, n := len(racks)-1, w.Pairs
	if n == 0 {
		n = len(racks) * others
	}
	return b.pairs(w, index, 1, n, func(i int) edge {
		from, step := i/others, i%others
		if w.Pairs > 0 {
			from, step = int(rng.below(uint64(len(racks)))), int(rng.below(uint64(others)))
		}
		senders, receivers := byRack[racks[from]], byRack[racks[(from+1+step)%len(racks)]]
		return edge{src: senders[rng.below(uint64(len(senders)))], dst: receivers[rng.below(uint64(len(receivers)))]}
	})
}

// cell numbers the pairs of racks between which anything can travel.
func (b *builder) cell(src, dst int) int32 {
	key := [2]int32{int32(b.topology.rack(src)), int32(b.topology.rack(dst))}
	n, ok := b.cells[key]
	if !ok {
		n = int32(len(b.cellList))
		b.cells[key] = n
		b.cellList = append(b.cellList, key)
	}
	return n
}

func ps(d time.Duration) int64 { return d.Nanoseconds() * 1000 }
