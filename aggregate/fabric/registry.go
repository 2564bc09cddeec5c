package fabric

import (
	"fmt"
	"sync"

	"github.com/csigscope/csigscope/aggregate"
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
	byName  map[string]aggregate.LocationID
	numbers map[number]aggregate.LocationID
	sets    int
	offPath int
	counts  Counts
}

// number is a value of locator metadata that is a location of its own.
type number struct {
	layout uint8 // csig.Layout.Index
	raw    bool  // without meaning here, as opposed to a meaning that fits nothing
	lm     uint16
}

func newRegistry() *registry {
	r := &registry{
		byID:    map[aggregate.LocationID]*Location{},
		byName:  map[string]aggregate.LocationID{},
		numbers: map[number]aggregate.LocationID{},
	}
	r.add(apart(aggregate.OverflowLocation, KindOverflow, overflowName))
	return r
}

// get is a location, nil when it is not registered.
func (r *registry) get(id aggregate.LocationID) *Location {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byID[id]
}

// add registers a location unless its identity is. The registry owns it then.
func (r *registry) add(l *Location) {
	if _, known := r.byID[l.ID]; known {
		return
	}
	// Two digests of 32 bits can be the same; identities are not.
	if _, taken := r.byName[l.Name]; taken {
		l.Name = fmt.Sprintf("%s#%016x", l.Name, uint64(l.ID))
	}
	r.byID[l.ID] = l
	r.byName[l.Name] = l.ID
}

// addSet registers a set that evidence called for. Beyond the bound it is the
// stage instead, or the overflow location.
func (r *registry) addSet(l *Location) aggregate.LocationID {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.byID[l.ID]; known {
		return l.ID
	}
	if r.sets < maxSets {
		r.sets++
		r.add(l)
		return l.ID
	}
	r.counts.SetFallbacks++
	if l.StageLoc != l.ID {
		return l.StageLoc
	}
	return aggregate.OverflowLocation
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
	r.add(l)
	return l.ID
}

// numbered is the location of a number, made on the first call. There are no more
// of them than values of locator metadata.
func (r *registry) numbered(n number, create func() *Location) aggregate.LocationID {
	r.mu.RLock()
	id, ok := r.numbers[n]
	r.mu.RUnlock()
	if ok {
		return id
	}
	l := create()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(l)
	r.numbers[n] = l.ID
	return l.ID
}

// list is a snapshot in no order.
func (r *registry) list() []Location {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := make([]Location, 0, len(r.byID))
	for _, l := range r.byID {
		all = append(all, *l)
	}
	return all
}
