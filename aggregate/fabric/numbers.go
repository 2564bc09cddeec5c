package fabric

import (
	"fmt"
	"sync/atomic"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// rawName begins the names of raw locations.
const rawName = "lm"

// number is a value of locator metadata that is a location of its own.
type number struct {
	layout uint8 // csig.Layout.Index
	raw    bool  // without meaning here, as opposed to a meaning that fits nothing
	lm     uint16
}

// location makes what is known of a number, when it is asked for.
func (n number) location() *Location {
	l := csig.LayoutAt(int(n.layout))
	if n.raw {
		return apart(KindRaw, fmt.Sprintf("%s:%s:%d", rawName, l, n.lm))
	}
	return apart(KindUnknown, fmt.Sprintf("unknown lm 0x%02x (%s)", n.lm, l))
}

// numberIDs are the identities of the numbers met: of a page of 256, 0 for one that
// was not met.
type numberIDs [256]atomic.Pointer[[256]atomic.Uint64]

func (ids *numberIDs) get(lm uint16) aggregate.LocationID {
	if page := ids[lm>>8].Load(); page != nil {
		return aggregate.LocationID(page[lm&255].Load())
	}
	return 0
}

// set is for one writer at a time.
func (ids *numberIDs) set(lm uint16, id aggregate.LocationID) {
	page := ids[lm>>8].Load()
	if page == nil {
		page = new([256]atomic.Uint64)
		ids[lm>>8].Store(page)
	}
	page[lm&255].Store(uint64(id))
}

// raw is the location of a number without meaning.
func (r *registry) raw(l csig.Layout, lm uint16) aggregate.LocationID {
	index := l.Index()
	if id := r.rawIDs[index].get(lm); id != 0 {
		return id
	}
	return r.meet(&r.rawIDs[index], number{uint8(index), true, lm})
}

// unknown is the location of a number that fits no port.
func (r *registry) unknown(l csig.Layout, lm uint16) aggregate.LocationID {
	index := l.Index()
	if id := r.unknownIDs[index].get(lm); id != 0 {
		return id
	}
	return r.meet(&r.unknownIDs[index], number{uint8(index), false, lm})
}

// meet enters a number. There are no more of them than values of locator metadata.
// Their names are unlike those of all other locations.
func (r *registry) meet(ids *numberIDs, n number) aggregate.LocationID {
	id := n.location().ID
	r.mu.Lock()
	defer r.mu.Unlock()
	r.numbers[id] = n
	ids.set(n.lm, id)
	return id
}
