package fabric

import (
	"slices"
	"sync"
)

// maxHomes bounds the devices of an attachment. Where a group or a host behind more
// of them is attached counts as unknown.
const maxHomes = 32

// attachment is the set of devices that an endpoint may be attached to.
type attachment struct {
	devices []int32
	// group means that the endpoint is behind one of the devices and nobody knows
	// which; otherwise it is a host with a link to each of them.
	group bool
}

// paths finds the equal-cost shortest paths between devices. Traffic is never
// asked: which of them a flow takes is the hash's secret. Safe for concurrent use.
type paths struct {
	topo *topology
	hops *distances

	mu      sync.Mutex // of what follows, the scratch memory of ports
	epoch   uint32
	visited []uint32 // of devices: epoch of the last visit
	used    []uint32 // of ports: epoch of the last use
	level   [2][]int32
	found   []int32
}

func newPaths(t *topology) *paths { return &paths{topo: t, hops: newDistances(t)} }

// legs calls yield for every device s that the source may enter by and every device
// t by which the paths from s leave, until yield returns false: a host behind several
// devices is reached by the nearest of them. from are distances from s, to those
// toward t. ok is false when the distances of a device are past the bound.
func (p *paths) legs(src, dst *attachment, yield func(s, t int32, from, to []uint8) bool) (ok bool) {
	for _, s := range src.devices {
		from := p.hops.awayFrom(s)
		if from == nil {
			return false
		}
		nearest := uint8(maxHops)
		if !dst.group {
			for _, t := range dst.devices {
				nearest = min(nearest, from[t])
			}
		}
		for _, t := range dst.devices {
			if from[t] > nearest {
				continue
			}
			to := p.hops.toward(t)
			if to == nil {
				return false
			}
			if !yield(s, t, from, to) {
				return true
			}
		}
	}
	return true
}

// passes reports whether a path from src to endpoint e, attached at dst, uses the
// port, and whether there is a path at all.
func (p *paths) passes(port, e int32, src, dst *attachment) (uses, exists bool) {
	at := &p.topo.ports[port]
	known := p.legs(src, dst, func(s, t int32, from, to []uint8) bool {
		exists = true
		if at.peerDevice == none {
			uses = at.device == t && p.topo.isLast(port, e)
		} else {
			uses = int(from[at.device])+1+int(to[at.peerDevice]) == int(from[t])
		}
		return !uses
	})
	return uses && known, exists && known
}

// ports lists the ports that paths from src to endpoint e, attached at dst, use and
// that keep wants, ascending; exists is false without a path. e may be none, which
// leaves out the last ports. reached has a bit for each of the first devices of dst
// where paths end. The list is valid while the caller holds p.mu.
func (p *paths) ports(e int32, src, dst *attachment, keep func(port int32) bool) (list []int32, reached uint8, exists bool) {
	p.found = p.found[:0]
	base := p.prepare(2 * len(src.devices) * len(dst.devices))
	use := func(port int32) {
		if p.used[port] < base {
			p.used[port] = base
			if keep(port) {
				p.found = append(p.found, port)
			}
		}
	}
	known := p.legs(src, dst, func(s, t int32, from, to []uint8) bool {
		exists = true
		n, _ := slices.BinarySearch(dst.devices, t)
		reached |= 1 << n // nothing for the ninth and later ones
		p.walk(s, t, from, to, use)
		if e != none {
			p.topo.eachLast(t, e, use)
		}
		return true
	})
	if !known || !exists {
		return nil, 0, false
	}
	slices.Sort(p.found)
	return p.found, reached, true
}

// prepare reserves n epochs and one before them, so that older marks are lower. The caller
// holds p.mu.
func (p *paths) prepare(n int) uint32 {
	if p.visited == nil {
		p.visited = make([]uint32, len(p.topo.devices))
		p.used = make([]uint32, len(p.topo.ports))
	}
	if int64(p.epoch)+int64(n)+1 >= 1<<32 {
		clear(p.visited)
		clear(p.used)
		p.epoch = 0
	}
	p.epoch++
	return p.epoch
}

// walk uses every port on the shortest paths from s to t. It goes half of the way
// forward and half of it backward, since fabrics widen toward their middle: that
// way it looks at few ports that no path uses.
func (p *paths) walk(s, t int32, from, to []uint8, use func(port int32)) {
	hops := int(from[t])
	half := (hops + 1) / 2
	p.spread(s, half, p.hops.out, func(port *port) (next int32, closer bool) {
		return port.peerDevice, to[port.peerDevice]+1 == to[port.device]
	}, use)
	p.spread(t, hops-half, p.hops.in, func(port *port) (next int32, closer bool) {
		return port.device, from[port.device]+1 == from[port.peerDevice]
	}, use)
}

// spread uses the ports that lead closer to the other end, level by level.
func (p *paths) spread(start int32, levels int, ports [][]int32, step func(*port) (int32, bool), use func(port int32)) {
	p.epoch++
	here, next := p.level[0][:0], p.level[1][:0]
	here = append(here, start)
	for range levels {
		next = next[:0]
		for _, d := range here {
			for _, i := range ports[d] {
				n, closer := step(&p.topo.ports[i])
				if !closer {
					continue
				}
				use(i)
				if p.visited[n] != p.epoch {
					p.visited[n] = p.epoch
					next = append(next, n)
				}
			}
		}
		here, next = next, here
	}
	p.level[0], p.level[1] = here, next
}
