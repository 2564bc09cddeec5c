package finding

import (
	"fmt"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// minLeast is the number of a flow's values needed to conclude that its first device does not write
// its least delay. One value is enough for the opposite.
const minLeast = 5

// least is the least delay in tags of a type. Every switch adds some delay to any packet, about the
// same everywhere in a quiet fabric, and among hops with equal values the first one's locator stays
// (section 4.1.3): so the device at the sender writes the least delay. For other signals the
// loosest value may be the initial one, or depend on the port's speed.
type least struct {
	of   uint32 // layout, type and code, 0 for none yet
	all  uint64 // values
	late Finding
}

// leastOf is a flow's part of it.
type leastOf struct {
	of          uint32
	early, late uint32 // values of the first device and of others, in a row with pauses
	turns       uint32 // number of changes between the two
	isLate      bool
	edges       []string // first devices, nil if not looked up yet
	stays       bool     // the path has no other device
}

// least counts a value that a port wrote, if it is the least one so far. It skips signals with few
// codes, which have one code for different delays.
func (d *Detector) least(table *csig.Table, code uint32, at *locationState, s *seen) {
	if s.flow == nil || table.Signal() != csig.MaxDelay || table.Codes() < minCodes || d.cfg.Routes == nil {
		return
	}
	tag := &s.o.Tag
	l, of := &s.layout.leasts[tag.T&15], 1<<31|uint32(tag.Layout.Index())<<24|uint32(tag.T&15)<<20|code
	switch {
	case l.of == 0 || of < l.of:
		*l = least{of: of}
	case of > l.of:
		return
	}
	l.all++
	one := &s.flow.least
	if one.edges == nil {
		one.edges = append([]string{}, d.cfg.Routes.Edges(s.src)...)
		one.stays = slices.ContainsFunc(d.cfg.Routes.Edges(s.dst), func(edge string) bool { return slices.Contains(one.edges, edge) })
	}
	if one.of != of {
		*one = leastOf{of: of, edges: one.edges, stays: one.stays}
	}
	if one.stays {
		return
	}
	late := !slices.Contains(one.edges, at.at.Device)
	if one.early+one.late > 0 && late != one.isLate {
		one.turns++
	}
	if one.isLate = late; !late {
		one.early++
		at.early = of
		return
	}
	one.late++
	l.late.seen(s.tap.File, s.o)
}

// lost returns the findings of elements that overwrite the values of earlier ports: flows whose
// least delays name a port behind their first device, if that device names itself in other flows. A
// first device that does so only at times is no sign of it: its delay may vary.
func (d *Detector) lost(c *localizer, l *layoutState, flows []*flow) (list []Finding) {
	behind := *c // the first port of a path has nothing to overwrite
	behind.skip = 1
	for t := range l.leasts {
		of := &l.leasts[t]
		if of.late.Count < minUnknownLMs {
			continue
		}
		devices := d.locations.first(of.of)
		var affected, kept []*flow
		edges, mixed := map[string]bool{}, 0
		for _, one := range flows {
			switch f := &one.least; {
			case f.of != of.of:
			case f.turns > 1:
				mixed++
			case f.late >= minLeast && slices.ContainsFunc(f.edges, func(edge string) bool { return devices[edge] }):
				affected = append(affected, one)
				edges[f.edges[0]] = true
			case f.early > 0 && f.late == 0:
				kept = append(kept, one)
			}
		}
		if len(edges) < 2 || 10*mixed > len(affected) {
			continue
		}
		v := behind.rank(affected, kept, nil)
		if !v.sure || v.host || !behind.explains(&v, affected) {
			continue
		}
		f := of.late
		f.Kind, f.Of = LostValue, of.all
		f.Evidence = fmt.Sprintf("%d values of the least delay name a port behind the first device of their path, which names itself in other flows", f.Count)
		v.nameCulprits(&f)
		list = append(list, f)
	}
	return list
}

// first returns the devices of ports that wrote a least delay as the first one of a path.
func (p *locationStates) first(of uint32) map[string]bool {
	devices := map[string]bool{}
	for _, one := range p.of {
		if one.kind == locationPort && one.early == of {
			devices[one.at.Device] = true
		}
	}
	return devices
}

// explains reports whether almost all of the flows may pass one of the verdict's suspects.
func (c *localizer) explains(v *verdict, flows []*flow) bool {
	return slices.ContainsFunc(v.at, func(at fabric.Location) bool {
		n := 0
		for _, f := range flows {
			if slices.ContainsFunc(c.paths(f), func(path []aggregate.LocationID) bool {
				return slices.ContainsFunc(path[min(c.skip, len(path)):], func(id aggregate.LocationID) bool {
					port := c.location(id)
					return at.ID == id || at.ID == port.Set || at.ID == port.DeviceLoc
				})
			}) {
				n++
			}
		}
		return 10*n >= 9*len(flows)
	})
}
