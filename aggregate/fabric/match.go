package fabric

import (
	"slices"

	"github.com/csigscope/csigscope/decode/csig"
)

// fits reports whether port i agrees with every attribute that is set and that
// names a place. TTL and opaque bits name none.
func (t *topology) fits(a *csig.Attributes, i int32) bool {
	p := &t.ports[i]
	d := &t.devices[p.device]
	switch {
	case a.Has(csig.FieldPort) && (p.id != a.Port || p.id == 0):
	case a.Has(csig.FieldDevice) && (d.id != a.Device || d.id == 0):
	case a.Has(csig.FieldStage) && d.stage != a.Stage:
	case a.Has(csig.FieldOrientation) && p.orientation != a.Orientation:
	case a.Has(csig.FieldCapacity) && p.speed != a.Capacity:
	default:
		return true
	}
	return false
}

// matches lists the ports of the whole fabric that fit, ascending.
func (t *topology) matches(a *csig.Attributes) []int32 {
	var found []int32
	keep := func(ports []int32) {
		for _, i := range ports {
			if t.fits(a, i) {
				found = append(found, i)
			}
		}
	}
	switch {
	case a.Has(csig.FieldPort):
		keep(t.portsByID[a.Port])
	case a.Has(csig.FieldDevice):
		for i := range t.devices {
			if t.devices[i].id == a.Device {
				keep(t.devices[i].ports)
			}
		}
	case a.Has(csig.FieldStage):
		keep(t.stages[a.Stage])
	default:
		keep(t.allPorts)
	}
	return found
}

// matchesOn lists the ports of a route, and of its end toward dst, that fit,
// ascending.
func (t *topology) matchesOn(r *route, dst endpoint, a *csig.Attributes) []int32 {
	var found, last []int32
	for _, i := range r.ports {
		if t.fits(a, i) {
			found = append(found, i)
		}
	}
	for _, i := range t.lastPorts(dst, r.reached, last) {
		if t.fits(a, i) {
			found = append(found, i)
		}
	}
	slices.Sort(found)
	return found
}
