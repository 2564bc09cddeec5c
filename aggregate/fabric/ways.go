package fabric

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// maxWays bounds the distinct ways, and the results of rules for pairs of attachments.
const maxWays = 1 << 18

// way is the known path of a flow: all ports between devices that it may pass.
type way struct {
	by    aggregate.Evidence // one bit
	ports []stop             // ascending, to devices
	ends  []stop             // devices where paths end
	hops  int                // between devices, of the shortest path; not set by predict
}

// stop is a port or a device on a path, and the number of the hop by which packets leave it, 1 for
// the first.
type stop struct{ at, hop int32 }

func (s stop) compare(o stop) int { return cmp.Or(cmp.Compare(s.at, o.at), cmp.Compare(s.hop, o.hop)) }

// ways numbers ways from 1, in the order of first use. Safe for concurrent use.
type ways struct {
	mu     sync.RWMutex
	list   []way
	byKey  map[string]uint32
	byRule map[ruleEnds]uint32
	counts WayCounts
}

// ruleEnds is a rule of the path table between two attachments.
type ruleEnds struct{ rule, src, dst int32 }

const numEvidence = len(aggregate.EvidenceNames)

// WayCounts are the outcomes of path evidence. Hashes count at each lookup of a flow; rules and sightings, whose ways are
// cached, once for each pair of attachments; contradicting locators at each lookup.
type WayCounts struct {
	Found        [numEvidence]uint64 // flows with a known way, by aggregate.EvidenceNames
	Contradicted uint64              // unused evidence that fits no path of the topology, or not the locator
	Refused      uint64              // ways beyond the bound on their number
}

func (w *ways) snapshot() WayCounts {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.counts
}

func (w *ways) get(id uint32) *way {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return &w.list[id-1]
}

func (w *ways) contradict() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.Contradicted++
}

// enter numbers a way; ok is false for one that contradicts the topology.
func (w *ways) enter(one way, ok bool) uint32 {
	key := []byte{byte(one.by)}
	for _, list := range []*[]stop{&one.ports, &one.ends} {
		slices.SortFunc(*list, stop.compare)
		*list = slices.Compact(*list)
		key = binary.LittleEndian.AppendUint32(key, uint32(len(*list)))
		for _, s := range *list {
			key = binary.LittleEndian.AppendUint32(key, uint32(s.at))
			key = binary.LittleEndian.AppendUint32(key, uint32(s.hop))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !ok {
		w.counts.Contradicted++
		return 0
	}
	w.counts.Found[bits.TrailingZeros8(uint8(one.by))]++
	if id, known := w.byKey[string(key)]; known {
		return id
	}
	if len(w.list) == maxWays {
		w.counts.Refused++
		return 0
	}
	w.list = append(w.list, one)
	w.byKey[string(key)] = uint32(len(w.list))
	return uint32(len(w.list))
}

// HasWays reports whether there is any evidence of paths, or may be. It implements
// aggregate.PathResolver.
func (f *Fabric) HasWays() bool {
	return len(f.rules.list) > 0 || len(f.ecmp.devices) > 0 || len(f.seen.points) > 0
}

// Way returns a number for the known path of a flow at ns, Unix ns, beyond the topology: 0 if
// nothing is known. The path table has priority over the sightings of taps in the fabric, and those
// over hashes. The result is the same at all times in [from, until). It implements
// aggregate.PathResolver, may be called from several goroutines, and takes a bounded time.
func (f *Fabric) Way(fl *aggregate.Flow, ns int64) (way uint32, from, until int64) {
	from, until = math.MinInt64, math.MaxInt64
	src, dst := netip.AddrFrom16(fl.Src).Unmap(), netip.AddrFrom16(fl.Dst).Unmap()
	a, e := f.topo.attachmentOf(src), f.topo.endpointOf(dst)
	if a == none || e == none {
		return 0, from, until
	}
	b := f.topo.attached[e]
	rule, from, until := f.rules.find(src, dst, fl, ns)
	if rule != none {
		if way = f.ruled(ruleEnds{rule, a, b}); way != 0 {
			return way, from, until
		}
	}
	if way, from, until = f.sighted(fl, a, b, ns, from, until); way != 0 {
		return way, from, until
	}
	if len(f.ecmp.devices) > 0 {
		way = f.ways.enter(f.ecmp.predict(f.resolve.paths, fl, &f.topo.attachments[a], &f.topo.attachments[b]))
	}
	return way, from, until
}

// sighted returns the way of a flow by the sightings of taps in the fabric, and the time range in
// which the result is the same.
func (f *Fabric) sighted(fl *aggregate.Flow, a, b int32, ns, from, until int64) (way uint32, since, till int64) {
	if len(f.seen.points) == 0 || !f.seen.used.Load() {
		return 0, from, until
	}
	stands, since, till := f.seen.at(fl, ns)
	if f.seen.live {
		since, till = ns, min(till, ns+sightingStep/4)
	}
	if len(stands) > 0 {
		way = f.seenWay(stands, a, b)
	}
	return way, max(from, since), min(until, till)
}

// ruled returns the way that a rule gives between attachments.
func (f *Fabric) ruled(k ruleEnds) uint32 {
	f.ways.mu.RLock()
	id, known := f.ways.byRule[k]
	f.ways.mu.RUnlock()
	if known {
		return id
	}
	id = f.ways.enter(f.resolve.paths.via(aggregate.ByPathTable, &f.topo.attachments[k.src], &f.topo.attachments[k.dst], f.rules.list[k.rule].via))
	f.ways.mu.Lock()
	defer f.ways.mu.Unlock()
	if len(f.ways.byRule) < maxWays {
		f.ways.byRule[k] = id
	}
	return id
}

// LocateOn is Locate for a packet with a way from Way: it returns the ports that the locator names
// and that are on the way, at the locator's hop if its TTL counts hops. If there are none, the evidence
// contradicts the packet and is not used. by is the evidence of the way, 0 if the ports are those of Locate. It implements
// aggregate.PathResolver.
func (f *Fabric) LocateOn(way uint32, l csig.Layout, t uint8, lm uint16, src, dst netip.Addr) (id aggregate.LocationID, capacity uint64, by aggregate.Evidence) {
	id, capacity = f.Locate(l, t, lm, src, dst)
	class, located := f.classes.class(l, t, lm)
	if way == 0 || !located || class == none {
		return id, capacity, 0
	}
	w, e, hop := f.ways.get(way), f.topo.endpointOf(dst), f.classes.hop(l, t, lm)
	ports := f.onWay(w, class, hop, e)
	if len(ports) == 0 {
		if _, counted := f.resolve.atHop(class, hop, f.topo.attachmentOf(src), e); !counted {
			ports = f.onWay(w, class, 0, e)
		}
	}
	if len(ports) == 0 {
		f.ways.contradict()
		return id, capacity, 0
	}
	slices.Sort(ports)
	p := f.resolve.answers.get(f.resolve.answers.of(slices.Compact(ports)))
	if p.id != id {
		by = w.by
	}
	return p.id, p.capacity, by
}

// onWay lists the ports of a class on a way to endpoint e, at a hop or, with 0, at any. A port may be
// listed several times.
func (f *Fabric) onWay(w *way, class int32, hop uint8, e endpoint) (ports []int32) {
	add := func(p, at int32) {
		if f.classes.holds(class, p) && (hop == 0 || at == int32(hop)) {
			ports = append(ports, p)
		}
	}
	for _, s := range w.ports {
		add(s.at, s.hop)
	}
	if e != none {
		for _, s := range w.ends {
			f.topo.eachLast(s.at, e, func(p int32) { add(p, s.hop) })
		}
	}
	return ports
}

// passage is one way to pass a waypoint: a port, or a device.
type passage struct {
	in, out int32 // devices before and after; the same for a device
	port    int32 // none for a device
}

func (p passage) hops() int {
	if p.port == none {
		return 0
	}
	return 1
}

// waypoint is a known point of paths: they pass one of several passages.
type waypoint []passage

// noPassage is the error for an unknown waypoint name.
const noPassage = "%q: no device or port has that name: expected one such as spine1 or leaf1:up2"

// passages returns the passages of a port, or those of a device. A port that faces no device is
// passed where paths end.
func (t *topology) passages(name string) waypoint {
	if d, ok := t.deviceIndex[name]; ok {
		return waypoint{{d, d, none}}
	}
	i, ok := slices.BinarySearchFunc(t.ports, name, func(p port, name string) int { return strings.Compare(p.name, name) })
	if !ok {
		return nil
	}
	if p := &t.ports[i]; p.peerDevice != none {
		return waypoint{{p.device, p.peerDevice, int32(i)}}
	}
	return waypoint{{t.ports[i].device, t.ports[i].device, none}}
}

// via returns the way of the shortest paths that pass waypoints in order, as in segment routing
// (RFC 8402, section 3.1.1: a node or adjacency segment by the shortest path to it). A host with
// several homes sends by the one that is closest to the first waypoint, and receives by the one that
// is closest to the last. ok is false if there is no such way.
func (p *paths) via(by aggregate.Evidence, src, dst *attachment, points []waypoint) (w way, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.by = by
	w.hops = unreached
	var starts []segments
	closest := unreached // a source to the first waypoint
	for _, s := range src.devices {
		r := segments{paths: p, points: append([]waypoint{{{s, s, none}}}, points...)}
		if !r.forward() {
			continue
		}
		first := slices.Min(r.hops[min(1, len(points))])
		if first > closest && !src.group {
			continue
		}
		if first < closest && !src.group {
			closest, starts = first, starts[:0]
		}
		starts = append(starts, r)
	}
	for i := range starts {
		r := &starts[i]
		nearest := math.MaxInt
		for _, t := range dst.devices {
			if n := r.total(t); n < nearest && !dst.group {
				nearest = n
			}
		}
		for _, t := range dst.devices {
			if n := r.total(t); n < unreached && n <= nearest {
				ok, w.hops = true, min(w.hops, n)
				w.ends = append(w.ends, stop{t, int32(n + 1)})
				r.backward(t, n, func(port int32, hop int) { w.ports = append(w.ports, stop{port, int32(hop)}) })
			}
		}
	}
	return w, ok
}

// unreached is more hops than any path has.
const unreached = math.MaxInt / 4

// segments are the paths from waypoint to waypoint; the first one is their start.
type segments struct {
	paths  *paths
	points []waypoint
	hops   [][]int // of each passage, from the start until it was passed
}

// between returns the distance of two devices.
func (r *segments) between(from, to int32) int {
	if table := r.paths.hops.awayFrom(from); table != nil && table[to] != far {
		return int(table[to])
	}
	return unreached
}

// forward measures from the start. It returns false if a waypoint cannot be reached.
func (r *segments) forward() bool {
	r.hops = [][]int{{0}}
	for i, point := range r.points[1:] {
		list := make([]int, len(point))
		reached := false
		for n, to := range point {
			list[n] = unreached
			for m, from := range r.points[i] {
				list[n] = min(list[n], r.hops[i][m]+r.between(from.out, to.in)+to.hops())
			}
			reached = reached || list[n] < unreached
		}
		if !reached {
			return false
		}
		r.hops = append(r.hops, list)
	}
	return true
}

// total returns the length of the shortest paths to a device.
func (r *segments) total(t int32) int {
	last := len(r.points) - 1
	n := unreached
	for m, from := range r.points[last] {
		n = min(n, r.hops[last][m]+r.between(from.out, t))
	}
	return n
}

// backward uses the ports of all paths of that length to a device.
func (r *segments) backward(t int32, total int, use func(port int32, hop int)) {
	ends := map[int32]int{t: total} // devices to which the leg behind leads, and their distance from the start
	for i := len(r.points) - 1; i >= 0; i-- {
		before := map[int32]int{}
		for m, from := range r.points[i] {
			for to, at := range ends {
				if r.hops[i][m]+r.between(from.out, to) != at {
					continue
				}
				r.paths.prepare(2)
				away := r.paths.hops.awayFrom(from.out)
				r.paths.walk(from.out, to, away, r.paths.hops.toward(to), func(port int32) {
					use(port, r.hops[i][m]+int(away[r.paths.topo.ports[port].device])+1)
				})
				if from.port != none {
					use(from.port, r.hops[i][m])
				}
				before[from.in] = r.hops[i][m] - from.hops()
			}
		}
		ends = before
	}
}
