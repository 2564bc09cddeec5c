package fabric

import (
	"sync"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// Bounds on locations that traffic can make appear.
const (
	maxSets    = 1 << 14
	maxOffPath = 1 << 14
)

// registry holds the locations that are not ports: those of the topology from the
// start, those that evidence calls for as they are met. Safe for concurrent use.
type registry struct {
	mu      sync.RWMutex
	byID    map[aggregate.LocationID]*Location
	numbers map[aggregate.LocationID]number
	sets    int
	offPath int
	met     []*Location // sets and contradictions that evidence called for
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

// get is a location, nil when it is not registered.
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

// add registers a location unless its identity is. The registry owns it then.
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

// addSet registers a set that evidence called for. ok is false beyond the bound.
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

// list is a snapshot in no order.
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
