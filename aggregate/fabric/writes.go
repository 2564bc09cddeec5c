package fabric

import (
	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// Writes tells whether locator metadata is what a port writes into tags of the layout and
// signal type (section 5.5.1). known is false for a port that is not in the fabric, and
// where no locator says what metadata holds. It may be called from several goroutines.
func (f *Fabric) Writes(port aggregate.LocationID, l csig.Layout, t uint8, lm uint16) (writes, known bool) {
	i, ok := f.portAt[port]
	if !ok {
		return false, false
	}
	class, located := f.classes.class(l, t, lm)
	if !located {
		return false, false
	}
	return class != none && f.classes.holds(class, i), true
}
