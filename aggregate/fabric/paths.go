package fabric

import (
	"slices"
	"sync"
)

// Bounds of the path caches; a full one starts over.
const (
	maxDistances  = 8 << 20 // entries of all distance tables
	maxRoutePorts = 4 << 20 // ports of all cached routes
	maxHomes      = 32      // devices of a group beyond which its paths say little
)

// attachment is the set of devices that an endpoint may be attached to.
type attachment struct {
	devices []int32
	// group means that the endpoint is behind one of the devices and nobody knows
	// which; otherwise it is a host with a link to each of them.
	group bool
}

// route is what the shortest paths between two attachments use.
type route struct {
	ports   []int32 // between devices, ascending
	reached []int32 // devices where the paths end, ascending
}

// paths finds the equal-cost shortest paths between devices. Traffic is never
// asked: which of them a flow takes is the hash's secret. Safe for concurrent use.
type paths struct {
	topo *topology
	into [][]int32 // devices with a port that faces the device

	mu         sync.Mutex
	distances  map[int32][]int32
	routes     map[routeKey]*route
	routePorts int
}

type routeKey struct{ src, dst int32 } // attachments

func newPaths(t *topology) *paths {
	p := &paths{
		topo: t, into: make([][]int32, len(t.devices)),
		distances: map[int32][]int32{}, routes: map[routeKey]*route{},
	}
	for i := range t.ports {
		if to := t.ports[i].peerDevice; to != none {
			p.into[to] = append(p.into[to], t.ports[i].device)
		}
	}
	for i := range p.into {
		slices.Sort(p.into[i])
		p.into[i] = slices.Compact(p.into[i])
	}
	return p
}

// between is the route between two attachments, by their indices, or nil when the
// topology has no path.
func (p *paths) between(src, dst int32) *route {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := routeKey{src, dst}
	if r, ok := p.routes[key]; ok {
		return r
	}
	r := p.find(&p.topo.attachments[src], &p.topo.attachments[dst])
	if len(p.routes) >= maxRoutePorts || p.routePorts >= maxRoutePorts {
		clear(p.routes)
		p.routePorts = 0
	}
	p.routes[key] = r
	if r != nil {
		p.routePorts += len(r.ports) + len(r.reached)
	}
	return r
}

// find unites the paths of every device that the source may enter by. A host
// behind several devices is reached by the nearest of them.
func (p *paths) find(src, dst *attachment) *route {
	used := make([]bool, len(p.topo.ports))
	r := &route{}
	for _, t := range dst.devices {
		distance := p.distancesTo(t)
		visited := map[int32]bool{}
		for _, s := range src.devices {
			if distance[s] == none || (!dst.group && !p.nearest(s, t, dst.devices)) {
				continue
			}
			r.reached = append(r.reached, t)
			p.walk(s, distance, visited, used)
		}
	}
	if len(r.reached) == 0 {
		return nil
	}
	slices.Sort(r.reached)
	r.reached = slices.Compact(r.reached)
	for i, u := range used {
		if u {
			r.ports = append(r.ports, int32(i))
		}
	}
	return r
}

// nearest reports whether no target is nearer to s than t is.
func (p *paths) nearest(s, t int32, targets []int32) bool {
	best := p.distancesTo(t)[s]
	for _, other := range targets {
		if d := p.distancesTo(other)[s]; d != none && d < best {
			return false
		}
	}
	return true
}

// walk marks every port that leads from s one hop closer to the target.
func (p *paths) walk(s int32, distance []int32, visited map[int32]bool, used []bool) {
	stack := []int32{s}
	visited[s] = true
	for len(stack) > 0 {
		d := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, i := range p.topo.devices[d].ports {
			next := p.topo.ports[i].peerDevice
			if next == none || distance[next] == none || distance[next] != distance[d]-1 {
				continue
			}
			used[i] = true
			if !visited[next] {
				visited[next] = true
				stack = append(stack, next)
			}
		}
	}
}

// distancesTo is the number of hops from each device to t, none where there is no
// path.
func (p *paths) distancesTo(t int32) []int32 {
	if d, ok := p.distances[t]; ok {
		return d
	}
	distance := slices.Repeat([]int32{none}, len(p.topo.devices))
	distance[t] = 0
	queue := []int32{t}
	for len(queue) > 0 {
		d := queue[0]
		queue = queue[1:]
		for _, from := range p.into[d] {
			if distance[from] == none {
				distance[from] = distance[d] + 1
				queue = append(queue, from)
			}
		}
	}
	if (len(p.distances)+1)*len(p.topo.devices) > maxDistances {
		clear(p.distances)
	}
	p.distances[t] = distance
	return distance
}
