package emitter

import (
	"errors"
	"fmt"
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
}

const (
	firstSourcePort = 1024
	firstTargetPort = 5001
)

// buildFlows makes the flows of all workloads, in the order of the scenario.
func buildFlows(s *Scenario, t *topology) (*builder, error) {
	b := &builder{scenario: s, topology: t, cells: map[[2]int32]int32{}, nextPort: make([]uint32, t.hosts())}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if err := b.add(w, i); err != nil {
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
		return b.pairs(w, index, 1, len(hosts), func(i int) (int, int) {
			return hosts[i], hosts[(i+1)%len(hosts)]
		})
	case AllToAll:
		peers := len(hosts) - 1
		return b.pairs(w, index, peers, len(hosts)*peers, func(i int) (int, int) {
			from := i / peers
			return hosts[from], hosts[(from+1+i%peers)%len(hosts)]
		})
	case Incast:
		target := (w.Target.Rack-1)*b.topology.perLeaf + w.Target.Host - 1
		sources := spread(without(hosts, target), w.Sources)
		return b.pairs(w, index, 1, len(sources), func(i int) (int, int) { return sources[i], target })
	case Permutation:
		to := derangement(len(hosts), &rng)
		return b.pairs(w, index, 1, len(hosts), func(i int) (int, int) { return hosts[i], hosts[to[i]] })
	case Background:
		return b.background(w, index, hosts, &rng)
	}
	return fmt.Errorf("kind %q: expected %s, %s, %s, %s or %s", w.Kind, Ring, AllToAll, Incast, Background, Permutation)
}

// members lists the hosts of a workload in the order in which rings visit them.
func (b *builder) members(w *Workload) []int {
	racks := w.Racks
	if len(racks) == 0 {
		for l := range b.topology.leaves {
			racks = append(racks, l+1)
		}
	}
	each := w.HostsPerRack
	if each == 0 {
		each = b.topology.perLeaf
	}
	hosts := make([]int, 0, each*len(racks))
	for i := range each * len(racks) {
		rack, host := racks[i%len(racks)], i/len(racks)
		if w.RackOrder {
			rack, host = racks[i/each], i%each
		}
		hosts = append(hosts, (rack-1)*b.topology.perLeaf+host)
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
	return b.pairs(w, index, 1, n, func(i int) (int, int) {
		from, step := i/others, i%others
		if w.Pairs > 0 {
			from, step = int(rng.below(uint64(len(racks)))), int(rng.below(uint64(others)))
		}
		senders, receivers := byRack[racks[from]], byRack[racks[(from+1+step)%len(racks)]]
		return senders[rng.below(uint64(len(senders)))], receivers[rng.below(uint64(len(receivers)))]
	})
}

// pairs adds the connections of n pairs of hosts, of which each sender has so many.
func (b *builder) pairs(w *Workload, index, perSender, n int, pair func(i int) (src, dst int)) error {
	connections := max(w.Connections, 1)
	if n*connections > maxFlows-len(b.flows) {
		return fmt.Errorf("%d flows: a scenario has at most %d", n*connections+len(b.flows), maxFlows)
	}
	for i := range n {
		src, dst := pair(i)
		for range connections {
			if err := b.flow(w, index, perSender*connections, src, dst); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *builder) flow(w *Workload, index, share, src, dst int) error {
	s, t := b.scenario, b.topology
	number := uint64(len(b.flows))
	rng := stream(s.Seed, 2, number)
	sourcePort := firstSourcePort + b.nextPort[src]
	b.nextPort[src]++
	if uint64(w.Rate)*1000 < uint64(share) {
		return fmt.Errorf("rate %s: is less than 1 bit/s for each of the %d flows of a sender", w.Rate, share)
	}
	if sourcePort > 0xffff {
		return fmt.Errorf("host %s: has no source port left for another flow", t.hostName(src))
	}
	f := flow{
		tuple: fiveTuple{
			src: t.address(src), dst: t.address(dst),
			srcPort: uint16(sourcePort), dstPort: uint16(firstTargetPort + index),
		},
		src: int32(src), dst: int32(dst),
		tagEvery:   int32(s.TagEvery),
		sequence:   uint32(rng.next()),
		ackSource:  uint32(rng.next()),
		tags:       uint32(rng.below(1 << 16)),
		ackTags:    uint32(rng.below(1 << 16)),
		acksToCopy: int32(s.RepeatAckEvery),
		dataLength: uint16(ethernetLen + s.MTU),
	}
	if w.TagEvery != 0 {
		f.tagEvery = int32(w.TagEvery)
	}
	f.untilTag = int32(rng.below(uint64(max(f.tagEvery, 1))))
	f.unacked = int32(rng.below(uint64(max(s.AckEvery, 1))))
	f.forward = t.route(s.Seed, f.tuple, src, dst)
	f.reverse = t.route(s.Seed, f.tuple.reversed(), dst, src)
	f.cell, f.cellBack = b.cell(src, dst), b.cell(dst, src)
	f.pace = pacing{
		gap:       int64(mulDiv(uint64(f.dataLength)*8e9, uint64(share), uint64(w.Rate))),
		irregular: w.Kind == Background,
		start:     ps(w.Start), end: ps(s.Duration),
		period: ps(w.Period), burst: ps(w.Burst),
		random: rng,
	}
	if w.End > 0 {
		f.pace.end = min(f.pace.end, ps(w.End))
	}
	b.flows = append(b.flows, f)
	return nil
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
