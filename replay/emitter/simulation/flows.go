package simulation

import (
	"errors"
	"fmt"
	"strings"

	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/frames"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// builder turns workloads into flows.
type builder struct {
	scenario *scenario.Scenario
	topology *scenario.Topology
	flows    []flow
	cells    map[[2]int32]int32
	cellList [][2]int32 // pairs of racks
	nextPort []uint32   // source ports, by host
	styles   []uint8    // styles of the framer, by workload
}

// buildFlows builds the flows of all workloads, in scenario order.
func buildFlows(s *scenario.Scenario, t *scenario.Topology) (*builder, error) {
	b := &builder{scenario: s, topology: t, cells: map[[2]int32]int32{}, nextPort: make([]uint32, t.Hosts())}
	var err error
	if _, b.styles, err = s.Styles(); err != nil {
		return nil, fmt.Errorf("build workloads: %w", err)
	}
	t.SpoilHashes(s)
	for i := range s.Workloads {
		w := s.Workloads[i].WithDefaults(s)
		if err := b.add(&w, i); err != nil {
			return nil, fmt.Errorf("build workloads[%d] (%s): %w", i, w.Kind, err)
		}
	}
	return b, nil
}

func (b *builder) add(w *scenario.Workload, index int) error {
	hosts := b.members(w)
	rng := exact.Derive(b.scenario.Seed, 1, uint64(index))
	if len(hosts) < 2 {
		return errors.New("expected at least two hosts")
	}
	switch w.Kind {
	case scenario.Ring:
		return b.pairs(w, index, 1, len(hosts), func(i int) edge {
			return edge{src: hosts[i], dst: hosts[(i+1)%len(hosts)]}
		})
	case scenario.Tree:
		return b.edges(w, index, treeEdges(w, hosts))
	case scenario.Pipeline:
		edges := pipelineEdges(w, hosts, b.topology.Rack)
		if len(edges) == 0 {
			return errors.New("expected at least two racks")
		}
		return b.edges(w, index, edges)
	case scenario.AllToAll, scenario.Probes:
		peers := len(hosts) - 1
		return b.pairs(w, index, peers, len(hosts)*peers, func(i int) edge {
			from := i / peers
			return edge{src: hosts[from], dst: hosts[(from+1+i%peers)%len(hosts)]}
		})
	case scenario.Incast:
		target := b.host(w.Target)
		sources := spread(without(hosts, target), w.Sources)
		return b.pairs(w, index, 1, len(sources), func(i int) edge { return edge{src: sources[i], dst: target} })
	case scenario.Permutation:
		to := derangement(len(hosts), &rng)
		return b.pairs(w, index, 1, len(hosts), func(i int) edge { return edge{src: hosts[i], dst: hosts[to[i]]} })
	case scenario.Background, scenario.Storage:
		return b.background(w, index, hosts, &rng)
	case scenario.Flows:
		return b.pairs(w, index, 1, len(w.Flows), func(i int) edge {
			return edge{src: b.host(w.Flows[i].From), dst: b.host(w.Flows[i].To)}
		})
	}
	return fmt.Errorf("kind %q: expected one of %s", w.Kind, strings.Join(kinds, ", "))
}

var kinds = []string{scenario.Ring, scenario.Tree, scenario.AllToAll, scenario.Pipeline, scenario.Incast, scenario.Background, scenario.Storage, scenario.Permutation, scenario.Probes, scenario.Flows}

// host returns the number of a host.
func (b *builder) host(h scenario.Host) int { return int(b.topology.RackHosts(h.Rack - 1)[h.Host-1]) }

// members lists the hosts of a workload in ring order.
func (b *builder) members(w *scenario.Workload) []int {
	racks := w.Racks
	if len(racks) == 0 {
		for l := range b.topology.Racks {
			racks = append(racks, l+1)
		}
	}
	each := w.HostsPerRack
	if each == 0 {
		each = b.topology.LargestRack()
	}
	var hosts []int
	add := func(rack, host int) {
		if list := b.topology.RackHosts(rack - 1); host < len(list) {
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

// derangement returns a random permutation with a single cycle, so that no element stays in place.
func derangement(n int, rng *exact.Random) []int {
	to := make([]int, n)
	for i := range to {
		to[i] = i
	}
	for i := n - 1; i > 0; i-- {
		j := int(rng.Below(uint64(i)))
		to[i], to[j] = to[j], to[i]
	}
	return to
}

// background adds random pairs of hosts in different racks, or one random pair per ordered pair of
// racks.
func (b *builder) background(w *scenario.Workload, index int, hosts []int, rng *exact.Random) error {
	byRack := map[int][]int{}
	var racks []int
	for _, h := range hosts {
		r := b.topology.Rack(h)
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
			from, step = int(rng.Below(uint64(len(racks)))), int(rng.Below(uint64(others)))
		}
		senders, receivers := byRack[racks[from]], byRack[racks[(from+1+step)%len(racks)]]
		return edge{src: senders[rng.Below(uint64(len(senders)))], dst: receivers[rng.Below(uint64(len(receivers)))]}
	})
}

// cell returns the number of a pair of racks and assigns one on first use.
func (b *builder) cell(src, dst int) int32 {
	key := [2]int32{int32(b.topology.Rack(src)), int32(b.topology.Rack(dst))}
	n, ok := b.cells[key]
	if !ok {
		n = int32(len(b.cellList))
		b.cells[key] = n
		b.cellList = append(b.cellList, key)
	}
	return n
}

// edge is a sender and a receiver in a collective operation, with their part of each step.
type edge struct {
	src, dst int
	share    int   // divides the sender's rate; 0: no division
	offset   int64 // from the start of the step, ps
	burst    int64 // ps; 0: the whole burst of the workload
}

// treeEdges is an all-reduce over a binary tree of hosts in the given order. In the first half of
// the burst, partial sums go up to the root; in the second half, the result comes back down. Chunks
// are pipelined, so all levels are busy at once. Without steps both directions are always busy.
func treeEdges(w *scenario.Workload, hosts []int) []edge {
	half := exact.Picoseconds(w.Burst) / 2
	var edges []edge
	for i := 1; i < len(hosts); i++ {
		parent, child := hosts[(i-1)/2], hosts[i]
		edges = append(edges, edge{src: child, dst: parent, burst: half})
		edges = append(edges, edge{src: parent, dst: child, offset: half, burst: half, share: children((i-1)/2, len(hosts))})
	}
	return edges
}

// children returns the number of children of a node in a binary tree of n nodes.
func children(node, n int) int { return min(max(n-1-2*node, 0), 2) }

// pipelineEdges sends the activations of a step's micro-batches from each rack to the next in the
// first half of the burst, and gradients back in the second half. As in GPipe, a stage starts one
// micro-batch after the previous stage. The i-th host of a rack talks to the i-th host of the next,
// if both racks have one. The micro-batches of a stage follow each other without a gap.
func pipelineEdges(w *scenario.Workload, hosts []int, rack func(int) int) []edge {
	var stages [][]int
	number := map[int]int{}
	for _, h := range hosts {
		n, known := number[rack(h)]
		if !known {
			n = len(stages)
			number[rack(h)] = n
			stages = append(stages, nil)
		}
		stages[n] = append(stages[n], h)
	}
	half := exact.Picoseconds(w.Burst) / 2
	hops := len(stages) - 1
	slot := half / int64(w.MicroBatches+hops)
	var edges []edge
	for n := range hops {
		for i := range min(len(stages[n]), len(stages[n+1])) {
			h, next, active := stages[n][i], stages[n+1][i], slot*int64(w.MicroBatches)
			edges = append(edges, edge{src: h, dst: next, offset: slot * int64(n), burst: active})
			edges = append(edges, edge{src: next, dst: h, offset: half + slot*int64(hops-1-n), burst: active})
		}
	}
	return edges
}

const (
	firstSourcePort = 1024
	firstTargetPort = 5001
)

// pairs adds the connections of n pairs of hosts; each sender occurs in perSender pairs.
func (b *builder) pairs(w *scenario.Workload, index, perSender, n int, pair func(i int) edge) error {
	connections := max(w.Connections, 1)
	if n*connections > scenario.MaxFlows-len(b.flows) {
		return fmt.Errorf("%d flows: a scenario has at most %d", n*connections+len(b.flows), scenario.MaxFlows)
	}
	for i := range n {
		e := pair(i)
		for range connections {
			if err := b.flow(w, index, perSender*connections, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// edges adds the connections of a collective's edges. Edges of one sender that are active at the
// same time share its rate.
func (b *builder) edges(w *scenario.Workload, index int, edges []edge) error {
	connections := max(w.Connections, 1)
	if len(edges)*connections > scenario.MaxFlows-len(b.flows) {
		return fmt.Errorf("%d flows: a scenario has at most %d", len(edges)*connections+len(b.flows), scenario.MaxFlows)
	}
	for _, e := range edges {
		for range connections {
			if err := b.flow(w, index, max(e.share, 1)*connections, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// flow adds one connection with 1/share of its sender's rate.
func (b *builder) flow(w *scenario.Workload, index, share int, e edge) error {
	s, t := b.scenario, b.topology
	number := uint64(len(b.flows))
	rng := exact.Derive(s.Seed, 2, number)
	sourcePort := firstSourcePort + b.nextPort[e.src]
	b.nextPort[e.src]++
	if w.Rate > 0 && uint64(w.Rate)*1000 < uint64(share) {
		return fmt.Errorf("rate %s: is less than 1 bit/s for each of the %d flows of a sender", w.Rate, share)
	}
	if sourcePort > 0xffff {
		return fmt.Errorf("host %s: has no source port left for another flow", t.HostName(e.src))
	}
	f := flow{
		tuple: scenario.FiveTuple{
			Src: t.Address(e.src), Dst: t.Address(e.dst),
			SrcPort: uint16(sourcePort), DstPort: uint16(firstTargetPort + index),
		},
		src: int32(e.src), dst: int32(e.dst),
		tagEvery:   int32(w.TagEvery),
		ackEvery:   int32(w.AckEvery),
		sequence:   uint32(rng.Next()),
		ackSource:  uint32(rng.Next()),
		tags:       uint32(rng.Below(1 << 16)),
		ackTags:    uint32(rng.Below(1 << 16)),
		acksToCopy: int32(s.RepeatAckEvery),
		dataLength: uint16(frames.EthernetLen + w.PacketBytes),
		style:      b.styles[index],
	}
	if w.Transport == scenario.Pony {
		f.tuple.DstPort, f.acksToCopy = scenario.PonyPort, 0
	}
	f.back = scenario.Style{Pony: w.Transport == scenario.Pony}.Opposite(f.tuple)
	f.untilTag = int32(rng.Below(uint64(max(f.tagEvery, 1))))
	f.unacked = int32(rng.Below(uint64(max(f.ackEvery, 1))))
	var err error
	if f.forward, err = t.Route(s.Seed, f.tuple, e.src, e.dst); err != nil {
		return err
	}
	if f.reverse, err = t.Route(s.Seed, f.back, e.dst, e.src); err != nil {
		return err
	}
	for i := range s.Signals {
		if !s.HashesTags() {
			break
		}
		r, err := t.RouteTagged(s.Seed, f.tuple, e.src, e.dst, i+1)
		if err != nil {
			return err
		}
		f.tagged = append(f.tagged, r)
	}
	f.cell, f.cellBack = b.cell(e.src, e.dst), b.cell(e.dst, e.src)
	f.pace = b.pacing(w, index, share, &e, rng, uint64(f.dataLength))
	f.acknowledged, f.urgent, f.highest = f.sequence, f.sequence, f.sequence
	if s.Reflect == scenario.ReflectWorst {
		f.summary = &summary{}
	}
	b.transfers(w, &f, number)
	f.control, f.marks = w.Control, w.Control.Marks()
	if n := int64(len(b.flows) + 1); s.FlowTrace > 0 && n*int64(s.Duration/s.FlowTrace) > maxSamples {
		return fmt.Errorf("flow_trace %s: gives more than %d samples", s.FlowTrace, maxSamples)
	}
	b.flows = append(b.flows, f)
	return nil
}

// pacing returns the packet times of a flow as its workload defines them.
func (b *builder) pacing(w *scenario.Workload, index, share int, e *edge, rng exact.Random, length uint64) pacing {
	s := b.scenario
	p := pacing{
		irregular: w.Kind == scenario.Background,
		start:     exact.Picoseconds(w.Start), end: exact.Picoseconds(s.Duration),
		period: exact.Picoseconds(w.Period), burst: exact.Picoseconds(w.Burst),
		random: rng,
	}
	switch {
	case w.Interval > 0:
		p.gap = exact.Picoseconds(w.Interval)
	case w.Rate > 0:
		p.gap = int64(exact.MulDiv(length*8e9, uint64(share), uint64(w.Rate)))
	}
	if w.End > 0 {
		p.end = min(p.end, exact.Picoseconds(w.End))
	}
	if e.burst > 0 {
		p.burst, p.steps.offset = e.burst, e.offset
	}
	p.steps.jitter = exact.Picoseconds(w.Jitter)
	seed := exact.Derive(s.Seed, 4, uint64(index))
	p.steps.seed, p.steps.every = seed.Next(), int64(w.StraggleEvery)
	for _, h := range w.Stragglers {
		if b.host(h) == e.src {
			p.steps.late = exact.Picoseconds(w.Late)
		}
	}
	return p
}

func (b *builder) transfers(w *scenario.Workload, f *flow, number uint64) {
	if w.Sizes == nil {
		return
	}
	f.transfers = &transfers{sizes: newSizes(w.Sizes), think: exact.Picoseconds(w.Think), count: -1, random: exact.Derive(b.scenario.Seed, 5, number)}
	if w.Transfers > 0 {
		f.transfers.count = int64(w.Transfers)
	}
	if first := f.transfers.begin(0); w.Period == 0 {
		f.pace.start += first
	}
}
