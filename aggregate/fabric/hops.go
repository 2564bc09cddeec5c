package fabric

import (
	"maps"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
)

// Hop is one step of the way between two groups: the egress ports that packets may take
// there, of which each takes one.
type Hop struct {
	Name  string   // unique; for people
	Ports []string // names, ascending, the first 64
	Count int      // of ports
}

// Hops is the way from one group to another: the ports that shortest paths may take, hop
// by hop, the last one toward the hosts. It is nil where the topology knows no way: for a
// group without hosts, or whose hosts are behind more than 32 devices. It may be called from
// several goroutines, and allocates what it returns.
func (f *Fabric) Hops(src, dst aggregate.GroupID) []Hop {
	t := f.topo
	from, to := t.groupAt(src), t.groupAt(dst)
	if from == none || to == none || t.attached[from] == none || t.attached[to] == none {
		return nil
	}
	sets := f.resolve.paths.hopSets(to, &t.attachments[t.attached[from]], &t.attachments[t.attached[to]])
	hops := make([]Hop, 0, len(sets))
	for _, set := range sets {
		ports := slices.Sorted(maps.Keys(set))
		if len(ports) == 0 {
			return nil // toward a group that nothing leads to
		}
		hop := Hop{Count: len(ports), Ports: t.portNames(ports[:min(len(ports), maxCandidates)])}
		if hop.Name = hop.Ports[0]; len(ports) > 1 {
			hop.Name = t.describe(ports)
		}
		hops = append(hops, hop)
	}
	return hops
}

// groupAt is the endpoint that stands for any host of a group.
func (t *topology) groupAt(id aggregate.GroupID) endpoint {
	for i := range t.groups {
		if t.groups[i].id == id {
			return int32(len(t.hosts) + i)
		}
	}
	return none
}

// hopSets are the ports of paths from src to endpoint e, attached at dst, by how many
// devices packets have left before. Paths of several lengths share sets.
func (p *paths) hopSets(e endpoint, src, dst *attachment) (sets []map[int32]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prepare(2 * len(src.devices) * len(dst.devices))
	use := func(hop int, port int32) {
		for len(sets) <= hop {
			sets = append(sets, map[int32]bool{})
		}
		sets[hop][port] = true
	}
	p.legs(src, dst, func(s, t int32, from, to []uint8) bool {
		if from[t] == far {
			return true
		}
		p.walk(s, t, from, to, func(port int32) { use(int(from[p.topo.ports[port].device]), port) })
		p.topo.eachLast(t, e, func(port int32) { use(int(from[t]), port) })
		return true
	})
	return sets
}
