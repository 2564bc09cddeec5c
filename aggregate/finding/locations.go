package finding

import (
	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
)

// Bounds on the remembered locations. Locations that are no ports are numbers, contradictions
// and sets of ports, of which few exist in practice; those beyond maxOthers are looked up again each
// time.
const (
	maxPorts  = 1 << 16
	maxOthers = 1 << 17
)

// locationKind is a location's kind, as needed for each packet.
type locationKind uint8

const (
	locationNone    locationKind = iota // unknown, or not in the fabric
	locationUnknown                     // metadata that no port of the path writes
	locationSet                         // one of several ports
	locationPort
)

// locationState is a location, and its written values.
type locationState struct {
	kind   locationKind
	at     fabric.Location // of a port
	delays []lastDelay     // delays of a port, few
	when   slots           // when it wrote
	// early is the least delay that a port last wrote as the first one of a path, in the form of
	// least.of.
	early uint32
}

// locationStates are the known locations.
type locationStates struct {
	of    map[aggregate.LocationID]*locationState
	ports int // number of ports among them
	clock slotClock
}

// statelessLocations stand for locations without state.
var statelessLocations = [...]locationState{{kind: locationNone}, {kind: locationUnknown}, {kind: locationSet}}

// get returns the state of a location. It calls the locator, which may allocate, once for each
// location.
func (p *locationStates) get(id aggregate.LocationID, from Locator) *locationState {
	if known := p.of[id]; known != nil {
		return known
	}
	at, ok := from.Location(id)
	found := &statelessLocations[locationNone]
	switch {
	case !ok:
	case at.Kind == fabric.KindUnknown:
		found = &statelessLocations[locationUnknown]
	case at.Kind == fabric.KindSet:
		found = &statelessLocations[locationSet]
	case at.Kind == fabric.KindPort && p.ports < maxPorts:
		p.ports++
		found = &locationState{kind: locationPort, at: at}
	}
	if found.kind == locationPort || len(p.of)-p.ports < maxOthers {
		p.of[id] = found
	}
	return found
}
