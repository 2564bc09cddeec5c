package fabric

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// rawName begins the names of raw locations.
const rawName = "lm"

// maxMemo bounds each of the caches of resolutions; a full one starts over.
const maxMemo = 1 << 16

// memo remembers resolutions. Safe for concurrent use.
type memo struct {
	mu       sync.RWMutex
	resolved map[question]answer
	anywhere map[csig.Attributes]answer // regardless of the path
	sets     map[uint64]answer          // by a digest of the ports
}

// question is what a resolution depends on: sources behind the same devices have
// the same paths, destinations also differ in their last ports.
type question struct {
	locator *csig.Locator
	lm      uint16
	src     int32 // attachment, or none
	dst     endpoint
}

type answer struct {
	id       aggregate.LocationID
	capacity uint64
	ok       bool // some port fits
}

// remember enters a resolution into one of the caches.
func remember[K comparable](m *memo, cache map[K]answer, k K, a answer) answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(cache) >= maxMemo {
		clear(cache)
	}
	cache[k] = a
	return a
}

func recall[K comparable](m *memo, cache map[K]answer, k K) (answer, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	a, ok := cache[k]
	return a, ok
}

// Locate resolves locator metadata lm of a tag with layout l and signal type t
// (section 5.5) that measured the path from src to dst. The result is one port
// only if the layout or the path forces it, otherwise the smallest set of ports
// that both allow. Metadata that fits no port, or none on the path, is a location
// of kind unknown. Without a locator layout or devices it is the raw number.
// capacity is the speed in kbit/s that all candidates share, or 0.
//
// l must be one of the four layouts. Locate may be called from several goroutines.
func (f *Fabric) Locate(l csig.Layout, t uint8, lm uint16, src, dst netip.Addr) (id aggregate.LocationID, capacity uint64) {
	loc := f.domain.Locator(l, t)
	if loc == nil || len(f.topo.ports) == 0 {
		return f.raw(l, loc, lm)
	}
	attributes, ok := loc.Decode(lm)
	if !ok {
		return f.unknown(l, lm), 0
	}
	q := question{loc, lm, f.topo.attachmentOf(src), f.topo.endpointOf(dst)}
	a, ok := recall(&f.memo, f.memo.resolved, q)
	if !ok {
		a = remember(&f.memo, f.memo.resolved, q, f.resolve(&attributes, q))
	}
	if !a.ok {
		return f.unknown(l, lm), 0
	}
	return a.id, a.capacity
}

// Classes are what Locate depends on besides the locator metadata: the attachment of
// an address as a source, its endpoint as a destination. It implements
// aggregate.Classifier and may be called from several goroutines.
func (f *Fabric) Classes(a netip.Addr) (src, dst uint64) {
	return uint64(f.topo.attachmentOf(a) - none), uint64(f.topo.endpointOf(a) - none)
}

// resolve takes the ports on the path that fit. If the path has none, and others
// fit, the evidence contradicts itself.
func (f *Fabric) resolve(attributes *csig.Attributes, q question) answer {
	var r *route
	if q.src != none && q.dst != none {
		r = f.paths.between(q.src, f.topo.attached[q.dst])
	}
	if r == nil {
		return f.anywhere(attributes)
	}
	if ports := f.topo.matchesOn(r, q.dst, attributes); len(ports) > 0 {
		return f.answer(ports)
	}
	other := f.anywhere(attributes)
	if !other.ok {
		return other
	}
	return answer{id: f.offPath(other.id), ok: true}
}

// anywhere resolves without a path.
func (f *Fabric) anywhere(attributes *csig.Attributes) answer {
	k := *attributes
	k.TTL, k.Opaque = 0, 0
	if a, ok := recall(&f.memo, f.memo.anywhere, k); ok {
		return a
	}
	var a answer
	if ports := f.topo.matches(attributes); len(ports) > 0 {
		a = f.answer(ports)
	}
	return remember(&f.memo, f.memo.anywhere, k, a)
}

// answer is the location of one or more ports, ascending.
func (f *Fabric) answer(ports []int32) answer {
	if len(ports) == 1 {
		return answer{f.places[ports[0]].port, f.topo.ports[ports[0]].speed, true}
	}
	digest := digestOf(ports)
	if a, ok := recall(&f.memo, f.memo.sets, digest); ok {
		return a
	}
	l := f.setOf(ports)
	return remember(&f.memo, f.memo.sets, digest, answer{f.known.addSet(l), l.Capacity, true})
}

// digestOf tells sets of ports apart as surely as identities do.
func digestOf(ports []int32) uint64 {
	b := make([]byte, 0, 4*len(ports))
	for _, i := range ports {
		b = binary.LittleEndian.AppendUint32(b, uint32(i))
	}
	return xxhash.Sum64(b)
}

// offPath is the location of evidence that names ports which the path does not use.
func (f *Fabric) offPath(named aggregate.LocationID) aggregate.LocationID {
	place, _ := f.Location(named)
	l := apart(locationID(fmt.Sprintf("off-path:%016x", uint64(named))), KindUnknown, "off-path: "+place.Name)
	l.Candidates, l.CandidateCount = place.Candidates, place.CandidateCount
	return f.known.addOffPath(l)
}

// raw is the location of a number that has no meaning here, but for a capacity
// that a locator layout may read from it.
func (f *Fabric) raw(l csig.Layout, loc *csig.Locator, lm uint16) (aggregate.LocationID, uint64) {
	var capacity uint64
	if loc != nil {
		if a, ok := loc.Decode(lm); ok {
			capacity = a.Capacity
		}
	}
	return f.known.numbered(number{uint8(l.Index()), true, lm}, func() *Location {
		name := fmt.Sprintf("%s:%s:%d", rawName, l, lm)
		return apart(locationID("raw:"+name), KindRaw, name)
	}), capacity
}

// unknown is the location of a number that fits no port.
func (f *Fabric) unknown(l csig.Layout, lm uint16) aggregate.LocationID {
	return f.known.numbered(number{uint8(l.Index()), false, lm}, func() *Location {
		name := fmt.Sprintf("unknown lm 0x%02x (%s)", lm, l)
		return apart(locationID("unknown:"+name), KindUnknown, name)
	})
}
