package fabric

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// Bounds on locations that traffic can cause.
const (
	maxSets    = 1 << 14
	maxOffPath = 1 << 14
)

// registry holds the locations that are not ports: those of the topology from the start, and those
// that evidence requires as it is seen. Safe for concurrent use.
type registry struct {
	mu      sync.RWMutex
	byID    map[aggregate.LocationID]*Location
	numbers map[aggregate.LocationID]number
	sets    int
	offPath int
	met     []*Location // sets and contradictions that evidence required
	counts  Counts

	rawIDs, unknownIDs [csig.NumLayouts]numberIDs
}

func newRegistry() *registry {
	r := &registry{
		byID:    map[aggregate.LocationID]*Location{},
		numbers: map[aggregate.LocationID]number{},
	}
	r.add(apart(KindOverflow, overflowName))
	return r
}

// get returns a location, nil if it is not registered.
func (r *registry) get(id aggregate.LocationID) *Location {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if l, ok := r.byID[id]; ok {
		return l
	}
	if n, ok := r.numbers[id]; ok {
		return n.location()
	}
	return nil
}

// add registers a location unless its identity is registered. The registry then owns it.
func (r *registry) add(l *Location) {
	if _, known := r.byID[l.ID]; !known {
		r.byID[l.ID] = l
	}
}

// setsLeft reports whether another set can be registered.
func (r *registry) setsLeft() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.sets < maxSets
}

// addSet registers a set that evidence requires. ok is false beyond the bound.
func (r *registry) addSet(l *Location) (id aggregate.LocationID, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.byID[l.ID]; known {
		return l.ID, true
	}
	if r.sets == maxSets {
		return 0, false
	}
	r.sets++
	r.met = append(r.met, l)
	r.add(l)
	return l.ID, true
}

// fallBack counts a set that became coarser.
func (r *registry) fallBack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.SetFallbacks++
}

// addOffPath registers contradictory evidence, or counts it as overflow.
func (r *registry) addOffPath(l *Location) aggregate.LocationID {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.byID[l.ID]; known {
		return l.ID
	}
	if r.offPath == maxOffPath {
		r.counts.OffPathFallbacks++
		return aggregate.OverflowLocation
	}
	r.offPath++
	r.met = append(r.met, l)
	r.add(l)
	return l.ID
}

// list returns a snapshot in no order.
func (r *registry) list() []Location {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := make([]Location, 0, len(r.byID)+len(r.numbers))
	for _, l := range r.byID {
		all = append(all, *l)
	}
	for _, n := range r.numbers {
		all = append(all, *n.location())
	}
	return all
}

// rawName begins the names of raw locations.
const rawName = "lm"

// number is a value of locator metadata that is a location of its own.
type number struct {
	layout uint8 // csig.Layout.Index
	raw    bool  // no locator of the layout reads the number (KindRaw); else one does, and no port fits (KindUnknown)
	lm     uint16
}

// location makes the location of a number on demand.
func (n number) location() *Location {
	l := csig.LayoutAt(int(n.layout))
	if n.raw {
		return apart(KindRaw, fmt.Sprintf("%s:%s:%d", rawName, l, n.lm))
	}
	return apart(KindUnknown, fmt.Sprintf("unknown lm 0x%02x (%s)", n.lm, l))
}

// numberIDs are the identities of the numbers seen, in pages of 256; 0 for one that was not seen.
type numberIDs [256]atomic.Pointer[[256]atomic.Uint64]

func (ids *numberIDs) get(lm uint16) aggregate.LocationID {
	if page := ids[lm>>8].Load(); page != nil {
		return aggregate.LocationID(page[lm&255].Load())
	}
	return 0
}

// set supports one writer at a time.
func (ids *numberIDs) set(lm uint16, id aggregate.LocationID) {
	page := ids[lm>>8].Load()
	if page == nil {
		page = new([256]atomic.Uint64)
		ids[lm>>8].Store(page)
	}
	page[lm&255].Store(uint64(id))
}

// raw returns the location of a number without meaning.
func (r *registry) raw(l csig.Layout, lm uint16) aggregate.LocationID {
	index := l.Index()
	if id := r.rawIDs[index].get(lm); id != 0 {
		return id
	}
	return r.meet(&r.rawIDs[index], number{uint8(index), true, lm})
}

// unknown returns the location of a number that fits no port.
func (r *registry) unknown(l csig.Layout, lm uint16) aggregate.LocationID {
	index := l.Index()
	if id := r.unknownIDs[index].get(lm); id != 0 {
		return id
	}
	return r.meet(&r.unknownIDs[index], number{uint8(index), false, lm})
}

// meet adds a number. There are at most as many as values of locator metadata. Their names differ
// from those of all other locations.
func (r *registry) meet(ids *numberIDs, n number) aggregate.LocationID {
	id := n.location().ID
	r.mu.Lock()
	defer r.mu.Unlock()
	r.numbers[id] = n
	ids.set(n.lm, id)
	return id
}
