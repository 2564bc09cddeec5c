package fabric

import (
	"maps"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/csigscope/csigscope/aggregate"
)

// maxHomes bounds the devices of an attachment. A group or a host behind more of them counts as
// attached nowhere.
const maxHomes = 32

// attachment is the set of devices to which an endpoint may be attached.
type attachment struct {
	devices []int32
	// group means that the endpoint is behind one of the devices, and it is unknown which;
	// otherwise it is a host with a link to each of them.
	group bool
}

// paths finds the equal-cost shortest paths between devices. It does not know which of them a flow
// takes: the hash decides that. Safe for concurrent use.
type paths struct {
	topo *topology
	hops *distances

	mu      sync.Mutex // of the following fields, the scratch memory of ports
	epoch   uint32
	visited []uint32 // of devices: epoch of the last visit
	used    []uint32 // of ports: epoch of the last use
	level   [2][]int32
	found   []int32
}

// endpointPairs calls yield for every device s by which the source may enter and every device t by which the
// paths from s leave, until yield returns false: a host behind several devices is reached by the
// nearest of them. from are distances from s, to those toward t. ok is false if the distances of a
// device are past the bound.
func (p *paths) endpointPairs(src, dst *attachment, yield func(s, t int32, from, to []uint8) bool) (ok bool) {
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

// passes reports whether a path from src to endpoint e, attached at dst, uses the port, and whether
// there is a path at all.
func (p *paths) passes(port, e int32, src, dst *attachment) (uses, exists bool) {
	at := &p.topo.ports[port]
	known := p.endpointPairs(src, dst, func(s, t int32, from, to []uint8) bool {
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

// ports lists the ports on paths from src to endpoint e, attached at dst, for which keep returns
// true at their hop, 1 for the first, ascending; exists is false without a path. e may be none,
// which omits the last ports. reached has a bit for each of the first devices of dst where paths
// end. The list is valid while the caller holds p.mu.
func (p *paths) ports(e int32, src, dst *attachment, keep func(port int32, hop int) bool) (list []int32, reached uint8, exists bool) {
	p.found = p.found[:0]
	base := p.prepare(2 * len(src.devices) * len(dst.devices))
	known := p.endpointPairs(src, dst, func(s, t int32, from, to []uint8) bool {
		exists = true
		use := func(port int32) {
			if p.used[port] < base && keep(port, int(from[p.topo.ports[port].device])+1) {
				p.used[port] = base
				p.found = append(p.found, port)
			}
		}
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

// prepare reserves n epochs after the returned one, so that older marks are lower. The caller holds
// p.mu.
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

// walk uses every port on the shortest paths from s to t. It searches half of the way forward and
// half of it backward, because fabrics widen toward their middle: so it examines few ports that no
// path uses.
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

// Bounds of the distance tables.
const (
	// maxHops is the length of the longest path between devices: the hop limit of IP allows no
	// more.
	maxHops = 254
	// maxDistances bounds all distance tables together, in bytes. It is enough for every device of
	// a fabric of 11,000.
	maxDistances = 128 << 20
)

// far is the distance of devices without a path between them.
const far = maxHops + 1

// distances are hops from and to devices, computed on demand and kept. Safe for concurrent use.
type distances struct {
	topo     *topology
	out, in  [][]int32 // of a device: ports to devices, ports that face it
	mutual   bool      // every link has two directions, so that distances are symmetric
	to, from []atomic.Pointer[[]uint8]

	mu      sync.Mutex // of the following fields
	limit   int        // of bytes
	bytes   int
	refused int // devices whose distances are past the bound
	queue   []int32
}

// unreachable is the table of devices past the bound.
var unreachable = new([]uint8)

func newDistances(t *topology) *distances {
	n := len(t.devices)
	d := &distances{topo: t, out: make([][]int32, n), in: make([][]int32, n), to: make([]atomic.Pointer[[]uint8], n), limit: maxDistances}
	for i := range t.ports {
		if p := &t.ports[i]; p.peerDevice != none {
			d.out[p.device] = append(d.out[p.device], int32(i))
			d.in[p.peerDevice] = append(d.in[p.peerDevice], int32(i))
		}
	}
	if d.mutual = d.symmetric(); !d.mutual {
		d.from = make([]atomic.Pointer[[]uint8], n)
	}
	return d
}

// symmetric reports whether each device faces the same devices that face it.
func (d *distances) symmetric() bool {
	var faced, facing []int32
	for i := range d.out {
		faced, facing = faced[:0], facing[:0]
		for _, p := range d.out[i] {
			faced = append(faced, d.topo.ports[p].peerDevice)
		}
		for _, p := range d.in[i] {
			facing = append(facing, d.topo.ports[p].device)
		}
		slices.Sort(faced)
		slices.Sort(facing)
		if !slices.Equal(slices.Compact(faced), slices.Compact(facing)) {
			return false
		}
	}
	return true
}

// toward returns the distance from each device to device t, nil past the bound.
func (d *distances) toward(t int32) []uint8 {
	if known := d.to[t].Load(); known != nil {
		return *known
	}
	return d.measure(&d.to[t], t, d.in, func(p *port) int32 { return p.device })
}

// awayFrom returns the distance from device s to each device, nil past the bound.
func (d *distances) awayFrom(s int32) []uint8 {
	if d.mutual {
		return d.toward(s)
	}
	if known := d.from[s].Load(); known != nil {
		return *known
	}
	return d.measure(&d.from[s], s, d.out, func(p *port) int32 { return p.peerDevice })
}

// measure searches breadth first from a device and keeps the result.
func (d *distances) measure(into *atomic.Pointer[[]uint8], start int32, ports [][]int32, next func(*port) int32) []uint8 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := into.Load(); known != nil {
		return *known
	}
	if d.bytes+len(d.out) > d.limit {
		d.refused++
		into.Store(unreachable)
		return nil
	}
	d.bytes += len(d.out)
	table := slices.Repeat([]uint8{far}, len(d.out))
	table[start] = 0
	queue := d.queue[:0]
	queue = append(queue, start)
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		if table[at] == maxHops {
			break
		}
		for _, p := range ports[at] {
			if n := next(&d.topo.ports[p]); table[n] == far {
				table[n] = table[at] + 1
				queue = append(queue, n)
			}
		}
	}
	d.queue = queue
	into.Store(&table)
	return table
}

// refusals returns the number of devices whose distances are past the bound.
func (d *distances) refusals() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return uint64(d.refused)
}

// Bounds of the cache of paths, in buckets of 64 bytes.
const (
	minBuckets = 1 << 6
	maxBuckets = 1 << 19
	bucketWays = 3
)

// found is the result of searching a class of ports on the paths of a pair.
type found struct {
	answer  answer
	reached uint8 // as in paths.ports
}

// pathCache caches results by a pair of ends (never 0) and a class. It has a fixed size: new
// entries replace old ones. Reading takes no lock, writers take turns. Its hash has a random seed,
// so that nobody can craft colliding traffic.
type pathCache struct {
	buckets []bucket // a power of two
	seed    uint64
}

// bucket is one cache line. version is odd while it is written; a reader that sees it change
// discards its data.
type bucket struct {
	version atomic.Uint64
	ways    [bucketWays]struct{ pair, value atomic.Uint64 }
	_       uint64
}

// newPathCache makes a cache for the pairs of n attachments.
func newPathCache(n int) *pathCache {
	size := minBuckets
	for size < maxBuckets && size/max(n, 1) < n {
		size *= 2
	}
	return &pathCache{make([]bucket, size), rand.Uint64()}
}

func (c *pathCache) bucket(pair uint64, class int32) *bucket {
	hi, lo := bits.Mul64(pair^c.seed, uint64(class)^0x9e3779b97f4a7c15)
	return &c.buckets[(hi^lo)*0x9e3779b97f4a7c15>>(64-bits.Len(uint(len(c.buckets)-1)))]
}

func (c *pathCache) get(pair uint64, class int32) (f found, ok bool) {
	b := c.bucket(pair, class)
	version := b.version.Load()
	for i := range b.ways {
		w := &b.ways[i]
		if w.pair.Load() != pair {
			continue
		}
		v := w.value.Load()
		if v>>32 != uint64(class) {
			continue
		}
		f = found{answer(v & (1<<answerBits - 1)), uint8(v >> answerBits)}
		return f, version&1 == 0 && b.version.Load() == version
	}
	return f, false
}

// put supports one writer at a time.
func (c *pathCache) put(pair uint64, class int32, f found) {
	b := c.bucket(pair, class)
	version := b.version.Add(1)
	w := &b.ways[version/2%bucketWays]
	w.pair.Store(pair)
	w.value.Store(uint64(class)<<32 | uint64(f.reached)<<answerBits | uint64(f.answer))
	b.version.Store(version + 1)
}

// Hop is one step between two groups: the egress ports that packets may take there, one for each
// packet.
type Hop struct {
	Name  string   // unique; for people
	Ports []string // names, ascending, the first 64
	Count int      // of ports
}

// Hops returns the way from one group to another: the ports on shortest paths, hop by hop, the last
// one toward the hosts. It is nil if the topology has no way: for a group without hosts, or whose
// hosts are behind more than 32 devices. It may be called from several goroutines, and allocates
// its result.
func (f *Fabric) Hops(src, dst aggregate.GroupID) []Hop {
	t := f.topo
	e, from, to, ok := t.ends(src, dst)
	if !ok {
		return nil
	}
	sets := f.resolve.paths.hopSets(e, from, to)
	hops := make([]Hop, 0, len(sets))
	for _, set := range sets {
		ports := slices.Sorted(maps.Keys(set))
		if len(ports) == 0 {
			return nil // toward a group to which nothing leads
		}
		hop := Hop{Count: len(ports), Ports: t.portNames(ports[:min(len(ports), maxCandidates)])}
		if hop.Name = hop.Ports[0]; len(ports) > 1 {
			hop.Name = t.describe(ports)
		}
		hops = append(hops, hop)
	}
	return hops
}

// groupAt returns the endpoint for any host of a group.
func (t *topology) groupAt(id aggregate.GroupID) endpoint {
	for i := range t.groups {
		if t.groups[i].id == id {
			return int32(len(t.hosts) + i)
		}
	}
	return none
}

// hopSets returns the ports of paths from src to endpoint e, attached at dst, by the number of
// devices that packets have left before. Paths of several lengths share sets.
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
	p.endpointPairs(src, dst, func(s, t int32, from, to []uint8) bool {
		if from[t] == far {
			return true
		}
		p.walk(s, t, from, to, func(port int32) { use(int(from[p.topo.ports[port].device]), port) })
		p.topo.eachLast(t, e, func(port int32) { use(int(from[t]), port) })
		return true
	})
	return sets
}

// Routes lists the equal-cost shortest paths from src to dst, each as the ports by which packets
// leave its devices, in order; the last one faces dst. ok is false if the topology does not have
// one of the ends or a way between them, if dst is not a listed host, or if there are more than
// most paths. It may be called from several goroutines and allocates its result.
func (f *Fabric) Routes(src, dst netip.Addr, most int) (routes [][]aggregate.LocationID, ok bool) {
	t := f.topo
	from, to := t.attachmentOf(src), t.endpointOf(dst)
	if from == none || to == none || int(to) >= len(t.hosts) {
		return nil, false
	}
	w := walker{fabric: f, to: to, most: most}
	known := f.resolve.paths.endpointPairs(&t.attachments[from], &t.attachments[t.attached[to]], func(s, end int32, _, left []uint8) bool {
		w.left = left
		return left[s] == far || w.from(s, end)
	})
	return w.routes, known && !w.many && len(w.routes) > 0
}

// Edges returns the names of the devices to which an address may be attached, ascending; none if
// the topology does not have it. The caller owns the list.
func (f *Fabric) Edges(a netip.Addr) []string {
	at := f.topo.attachmentOf(a)
	if at == none {
		return nil
	}
	var names []string
	for _, d := range f.topo.attachments[at].devices {
		names = append(names, f.topo.devices[d].name)
	}
	slices.Sort(names)
	return names
}

// walker lists the paths to an endpoint.
type walker struct {
	fabric *Fabric
	to     endpoint
	left   []uint8 // hops from each device to the endpoint's device
	most   int
	coarse bool // omit the last hop if it has several ports
	many   bool // more than most
	route  []aggregate.LocationID
	routes [][]aggregate.LocationID
}

// from lists the paths from a device to the one where the endpoint is attached; it returns false if
// there are too many.
func (w *walker) from(device, end int32) bool {
	depth := len(w.route)
	defer func() { w.route = w.route[:depth] }()
	if device == end {
		var last []int32
		w.fabric.topo.eachLast(device, w.to, func(port int32) { last = append(last, port) })
		if w.coarse && len(last) > 1 {
			last = []int32{none}
		}
		for _, port := range last {
			if w.many = w.many || len(w.routes) >= w.most; w.many {
				break
			}
			route := slices.Clone(w.route)
			if port != none {
				route = append(route, w.fabric.locationsOf[port].port)
			}
			w.routes = append(w.routes, route)
		}
		return !w.many
	}
	for _, i := range w.fabric.resolve.paths.hops.out[device] {
		next := w.fabric.topo.ports[i].peerDevice
		if int(w.left[next])+1 != int(w.left[device]) {
			continue
		}
		w.route = append(w.route[:depth], w.fabric.locationsOf[i].port)
		if !w.from(next, end) {
			return false
		}
	}
	return true
}
