package finding

import (
	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
)

// Bounds on the remembered locations. Locations that are no ports are always fewer than maxOthers:
// each locator metadata of each layout, and contradictions.
const (
	maxPorts  = 1 << 16
	maxOthers = 1 << 17
)

// placeKind is a location's kind, as needed for each packet.
type placeKind uint8

const (
	placeNone    placeKind = iota // unknown, or no place in the fabric
	placeUnknown                  // metadata that no port of the path writes
	placeSet                      // one of several ports
	placePort
)

// place is a location, and its written values.
type place struct {
	kind   placeKind
	at     fabric.Location // of a port
	delays []lastDelay     // delays of a port, few
	when   slots           // when it wrote
	// early is the least delay that a port last wrote as the first one of a path, in the form of
	// least.of.
	early uint32
}

// places are the known locations.
type places struct {
	of    map[aggregate.LocationID]*place
	ports int // number of ports among them
	clock slotClock
}

// noPlaces stand for locations without state.
var noPlaces = [...]place{{kind: placeNone}, {kind: placeUnknown}, {kind: placeSet}}

// get returns the place of a location. It calls the locator, which may allocate, once for each
// location.
func (p *places) get(id aggregate.LocationID, from Locator) *place {
	if known := p.of[id]; known != nil {
		return known
	}
	at, ok := from.Location(id)
	found := &noPlaces[placeNone]
	switch {
	case !ok:
	case at.Kind == fabric.KindUnknown:
		found = &noPlaces[placeUnknown]
	case at.Kind == fabric.KindSet:
		found = &noPlaces[placeSet]
	case at.Kind == fabric.KindPort && p.ports < maxPorts:
		p.ports++
		found = &place{kind: placePort, at: at}
	}
	if found.kind == placePort || len(p.of)-p.ports < maxOthers {
		p.of[id] = found
	}
	return found
}
