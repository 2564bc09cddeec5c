package fabric

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// Bounds up to which the ends of a path are examined each time instead of cached.
const (
	fewLegs  = 16 // devices of the source times devices of the destination
	fewHomes = 8  // devices of the destination; as many as found.reached has bits
	fewLasts = 16 // ports that face the destination
)

// resolver finds the locations of port classes on paths. Its memory has a fixed size once the
// distances are known, and it is safe for concurrent use.
type resolver struct {
	topo    *topology
	classes *classes
	paths   *paths
	answers *portSetIndex

	cache    func() *pathCache // made when needed: ports with identifiers are not cached
	anywhere []atomic.Uint32   // of a class, its answer regardless of the path
	offPath  []atomic.Uint64   // of a class, its location on paths without it
}

func newResolver(f *Fabric, c *classes) *resolver {
	t := f.topo
	return &resolver{
		topo: t, classes: c, paths: &paths{topo: t, hops: newDistances(t)},
		answers:  &portSetIndex{fabric: f, byPorts: map[uint64]answer{}, coarser: map[locationSpeed]answer{}},
		cache:    sync.OnceValue(func() *pathCache { return newPathCache(len(t.attachments)) }),
		anywhere: make([]atomic.Uint32, len(c.from)), offPath: make([]atomic.Uint64, len(c.from)),
	}
}

// Locate resolves locator metadata lm of a tag of layout l and signal type t (section 5.5) that
// measured the path from src to dst. The result is one port only if the locator
// layout, the fields of the metadata, or the path forces it, otherwise the smallest set of ports that
// both allow. Metadata that fits no port, or none on the path, is a location of kind unknown. Without
// a locator layout or devices it is the raw number. capacity is the speed in kbit/s that all
// candidates share, or 0.
//
// l must be one of the four layouts of tags. Locate may be called from several goroutines. Its time is
// small and bounded whatever lm is, and it allocates only for a new location or path.
func (f *Fabric) Locate(l csig.Layout, t uint8, lm uint16, src, dst netip.Addr) (id aggregate.LocationID, capacity uint64) {
	class, located := f.classes.class(l, t, lm)
	if !located {
		return f.raw(l, t, lm)
	}
	if class == none {
		return f.known.unknown(l, lm), 0
	}
	n := f.resolve.on(class, f.classes.hop(l, t, lm), f.topo.attachmentOf(src), f.topo.endpointOf(dst))
	if n == nothing {
		return f.contradiction(class), 0
	}
	p := f.resolve.answers.get(n)
	return p.id, p.capacity
}

// Classes returns the inputs of Locate besides the locator metadata: the attachment of an address
// as a source, and its endpoint as a destination. It implements aggregate.Classifier and may be
// called from several goroutines.
func (f *Fabric) Classes(a netip.Addr) (src, dst uint64) {
	return uint64(f.topo.attachmentOf(a) - none), uint64(f.topo.endpointOf(a) - none)
}

// AddressBits returns the lengths of the longest configured or derived group prefixes, or of whole
// addresses if there are hosts. It implements aggregate.Classifier.
func (f *Fabric) AddressBits() (v4, v6 int) { return f.topo.bits4, f.topo.bits6 }

// on returns the answer for the ports of a class that paths from an attachment to an endpoint use:
// all of the class if there is no such path, nothing if the evidence contradicts itself. A hop
// selects the ports there if the TTL counts hops.
func (r *resolver) on(class int32, hop uint8, src int32, dst endpoint) answer {
	if n, counted := r.atHop(class, hop, src, dst); counted {
		return n
	}
	n := nowhere
	if src != none && dst != none {
		n = r.between(class, src, dst)
	}
	if n == nowhere {
		return r.all(class)
	}
	return n
}

// atHop returns the answer for the ports of a class at a hop; counted is false if there are none.
// Then the TTL does not count hops.
func (r *resolver) atHop(class int32, hop uint8, src int32, dst endpoint) (n answer, counted bool) {
	if hop == 0 || src == none || dst == none {
		return nowhere, false
	}
	n = r.search(class, hop, src, dst, dst).answer
	return n, n >= firstPort
}

func (r *resolver) between(class, src int32, dst endpoint) answer {
	t := r.topo
	from, to := &t.attachments[src], &t.attachments[t.attached[dst]]
	members := r.classes.ports(class)
	if len(members) == 1 && len(from.devices)*len(to.devices) <= fewLegs {
		switch uses, exists := r.paths.passes(members[0], dst, from, to); {
		case uses:
			return firstPort + answer(members[0])
		case exists:
			return nothing
		}
		return nowhere
	}
	switch edge := r.classes.edge[class]; {
	case edge == inside:
		return r.search(class, 0, src, none, dst).answer
	case edge == mixed || to.group || len(to.devices) > fewHomes || len(t.hosts[dst].ports) > fewLasts:
		return r.search(class, 0, src, dst, dst).answer
	}
	reached, exists := r.ends(class, src, dst)
	if !exists {
		return nowhere
	}
	switch port, several := r.last(class, dst, to, reached); {
	case several:
		return r.search(class, 0, src, dst, dst).answer
	case port != none:
		return firstPort + answer(port)
	}
	return nothing
}

// ends returns the devices where the paths end, as in found, for a class without ports between
// devices.
func (r *resolver) ends(class, src int32, dst endpoint) (reached uint8, exists bool) {
	from, to := &r.topo.attachments[src], &r.topo.attachments[r.topo.attached[dst]]
	if len(from.devices) == 1 && len(to.devices) == 1 {
		hops := r.paths.hops.awayFrom(from.devices[0])
		return 1, hops != nil && hops[to.devices[0]] != far
	}
	f := r.search(class, 0, src, none, dst)
	return f.reached, f.answer != nowhere
}

// last returns the first of the class's ports that face host dst at the devices where paths end,
// none if there is none.
func (r *resolver) last(class int32, dst endpoint, at *attachment, reached uint8) (first int32, several bool) {
	first = none
	for _, p := range r.topo.hosts[dst].ports {
		if !r.classes.holds(class, p) {
			continue
		}
		for i, d := range at.devices {
			if reached>>i&1 == 0 || r.topo.ports[p].device != d {
				continue
			}
			if first != none {
				return first, true
			}
			first = p
		}
	}
	return first, false
}

// search returns the ports of a class on the paths to dst, at a hop or, with 0, at any. last is dst
// if the ports that leave the fabric count. For a class without such ports it is none, and all
// endpoints of an attachment share the result.
func (r *resolver) search(class int32, hop uint8, src int32, last, dst endpoint) found {
	end, key := r.topo.attached[dst], at(class, hop)
	pair := uint64(src+1)<<32 | uint64(end)
	if last != none {
		pair = uint64(src+1)<<32 | 1<<31 | uint64(last)
	}
	if f, ok := r.cache().get(pair, key); ok {
		return f
	}
	r.paths.mu.Lock()
	defer r.paths.mu.Unlock()
	ports, reached, exists := r.paths.ports(last, &r.topo.attachments[src], &r.topo.attachments[end], func(p int32, number int) bool {
		return r.classes.holds(class, p) && (hop == 0 || number == int(hop))
	})
	f := found{nothing, reached}
	switch {
	case !exists:
		f.answer = nowhere
	case len(ports) > 0:
		f.answer = r.answers.of(ports)
	}
	r.cache().put(pair, key, f)
	return f
}

// all returns the answer for a class regardless of the path.
func (r *resolver) all(class int32) answer {
	if n := answer(r.anywhere[class].Load()); n != unset {
		return n
	}
	n := r.answers.of(r.classes.ports(class))
	r.anywhere[class].Store(uint32(n))
	return n
}

// contradiction returns the location of evidence that names ports which the path does not use.
func (f *Fabric) contradiction(class int32) aggregate.LocationID {
	at := &f.resolve.offPath[class]
	if id := at.Load(); id != 0 {
		return aggregate.LocationID(id)
	}
	named := f.resolve.answers.get(f.resolve.all(class)).id
	location, _ := f.Location(named)
	l := apart(KindUnknown, "off-path: "+location.Name)
	l.Candidates, l.CandidateCount = location.Candidates, location.CandidateCount
	id := f.known.addOffPath(l)
	at.Store(uint64(id))
	return id
}

// raw returns the location of a number without meaning here, with a capacity if a locator layout
// can read one from it.
func (f *Fabric) raw(l csig.Layout, t uint8, lm uint16) (aggregate.LocationID, uint64) {
	var capacity uint64
	if loc := f.domain.Locator(l, t); loc != nil {
		if a, ok := loc.Decode(lm); ok {
			capacity = a.Capacity
		}
	}
	return f.known.raw(l, lm), capacity
}

// maxCoarser bounds the answers that stand for sets past maxSets.
const maxCoarser = 1 << 10

// answer numbers the results of Locate: the fixed ones below, then the ports in order, then sets.
// There are fewer than 1<<24: at most maxPorts ports, three sets of the topology for each of them,
// maxSets and maxCoarser.
type answer uint32

const (
	unset      answer = iota
	nothing           // no port of the path fits
	nowhere           // the topology has no path, or none is known
	firstPort         // the answer of port 0
	answerBits = 24
)

// locationSpeed is a location with its speed.
type locationSpeed struct {
	id       aggregate.LocationID
	capacity uint64 // kbit/s that all candidates share, or 0
}

// portSetIndex interns sets of ports. Reading an answer takes no lock: its number is published only
// after it was entered.
type portSetIndex struct {
	fabric *Fabric
	sets   []locationSpeed // of its final length once the fabric is made

	mu      sync.Mutex        // of the following fields
	entered int               // sets
	byPorts map[uint64]answer // by a digest of the ports
	coarser map[locationSpeed]answer
	key     []byte
}

// name enters a set of the topology, two or more ports, unless the same ports already have another
// name. Only while the fabric is made.
func (a *portSetIndex) name(ports []int32, l *Location) {
	digest := a.digest(ports)
	if _, named := a.byPorts[digest]; named {
		return
	}
	a.sets = append(a.sets, locationSpeed{})
	a.byPorts[digest] = a.push(locationSpeed{l.ID, l.Capacity})
}

// seal makes room for the sets that traffic can require, once the whole topology is named.
func (a *portSetIndex) seal() {
	a.sets = slices.Concat(a.sets, make([]locationSpeed, maxSets+maxCoarser))
}

// get returns the location for an answer from firstPort on.
func (a *portSetIndex) get(n answer) locationSpeed {
	f := a.fabric
	i := int(n - firstPort)
	if i < len(f.locationsOf) {
		return locationSpeed{f.locationsOf[i].port, f.topo.ports[i].speed}
	}
	return a.sets[i-len(f.locationsOf)]
}

func (a *portSetIndex) push(p locationSpeed) answer {
	a.sets[a.entered] = p
	a.entered++
	return firstPort + answer(len(a.fabric.locationsOf)+a.entered-1)
}

// of returns the answer for one or more ports, ascending.
func (a *portSetIndex) of(ports []int32) answer {
	if len(ports) == 1 {
		return firstPort + answer(ports[0])
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	digest := a.digest(ports)
	if n, ok := a.byPorts[digest]; ok {
		return n
	}
	f := a.fabric
	if f.known.setsLeft() {
		l := f.setLocation(f.topo.describe(ports), ports)
		if id, ok := f.known.addSet(l); ok {
			n := a.push(locationSpeed{id, l.Capacity})
			a.byPorts[digest] = n
			return n
		}
	}
	return a.coarse(ports)
}

// coarse returns the answer for a set past the bound: the ports' stage, or the overflow location.
// It is not cached by the ports, so that memory stays bounded.
func (a *portSetIndex) coarse(ports []int32) answer {
	f := a.fabric
	f.known.fallBack()
	c := f.topo.traitOf(ports)
	p := locationSpeed{aggregate.OverflowLocation, c.speed}
	if c.stage != "" {
		p.id = f.locationsOf[ports[0]].stage
	}
	n, ok := a.coarser[p]
	if !ok && len(a.coarser) >= maxCoarser-1 {
		p = locationSpeed{id: aggregate.OverflowLocation}
		n, ok = a.coarser[p]
	}
	if !ok {
		n = a.push(p)
		a.coarser[p] = n
	}
	return n
}

// digest identifies sets of ports as reliably as identities do.
func (a *portSetIndex) digest(ports []int32) uint64 {
	a.key = a.key[:0]
	for _, i := range ports {
		a.key = binary.LittleEndian.AppendUint32(a.key, uint32(i))
	}
	return xxhash.Sum64(a.key)
}
