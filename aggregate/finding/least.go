package finding

import (
	"fmt"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// minLeast is how many values of a flow it takes to tell that its first device does not write
// its least delay. That it does, one tells.
const minLeast = 5

// least is the least delay that tags of a type say. A switch adds some to any packet, in a
// quiet fabric as much as the next one, and of hops that say the same the first one's
// locator stays (section 4.1.3): it is the device at the sender that writes the least. Of other
// signals the loosest value may be the initial one, or differ with the port's speed.
type least struct {
	of   uint32 // layout, type and code, 0 for none yet
	all  uint64 // values
	late Finding
}

// leastOf is a flow's part in it.
type leastOf struct {
	of          uint32
	early, late uint32 // values of the first device and of others, in a row with pauses
	turns       uint32 // from one to the other
	isLate      bool
	edges       []string // first devices, nil if not asked for yet
	stays       bool     // there is no other device on the path
}

// least counts a value that a port wrote, where it is the least one so far. Signals of few
// codes say the same of different delays.
func (d *Detector) least(table *csig.Table, code uint32, at *place, s *seen) {
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

// lost returns the findings of what takes values back that ports before it wrote: flows whose
// least delays name a port behind their first device, where that names itself in others. First
// devices that do so at times alone are no sign of it: what they add may vary.
func (d *Detector) lost(c *court, l *layoutState, flows []*flow) (list []Finding) {
	behind := *c // the first port of a path has nothing to take back
	behind.skip = 1
	for t := range l.leasts {
		of := &l.leasts[t]
		if of.late.Count < minStrays {
			continue
		}
		devices := d.places.first(of.of)
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
		v := behind.judge(affected, kept, nil)
		if !v.sure || v.host || !behind.explains(&v, affected) {
			continue
		}
		f := of.late
		f.Kind, f.Of = LostValue, of.all
		f.Evidence = fmt.Sprintf("%d values of the least delay name a port behind the first device of their path, which names itself in other flows", f.Count)
		v.accuse(&f)
		list = append(list, f)
	}
	return list
}

// first returns the devices of ports that wrote a least delay as the first one of a path.
func (p *places) first(of uint32) map[string]bool {
	devices := map[string]bool{}
	for _, one := range p.of {
		if one.kind == placePort && one.early == of {
			devices[one.at.Device] = true
		}
	}
	return devices
}

// explains reports whether almost all of the flows may pass one of those that a verdict names.
func (c *court) explains(v *verdict, flows []*flow) bool {
	return slices.ContainsFunc(v.at, func(at fabric.Location) bool {
		n := 0
		for _, f := range flows {
			if slices.ContainsFunc(c.paths(f), func(path []aggregate.LocationID) bool {
				return slices.ContainsFunc(path[min(c.skip, len(path)):], func(id aggregate.LocationID) bool {
					port := c.place(id)
					return at.ID == id || at.ID == port.Set || at.ID == port.DeviceLoc
				})
			}) {
				n++
			}
		}
		return 10*n >= 9*len(flows)
	})
}
