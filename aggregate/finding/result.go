package finding

import (
	"fmt"
	"maps"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// maxBlamed bounds the unknown locators whose writers are searched, and the sources that are
// compared with the elements on their paths: the most frequent ones.
const maxBlamed = 16

// Findings returns the findings, errors first. Observe may be called again afterwards; it does not
// change the list. Time and memory are bounded by the configuration.
func (d *Detector) Findings() []Finding {
	var list []Finding
	var misread [csig.NumLayouts]bool
	for i := range d.layouts {
		if f, ok := d.wrongProfile(i); ok {
			list, misread[i] = append(list, f), true
		}
		if f, ok := d.wrongFormat(i); ok {
			list, misread[i] = append(list, f), true
		}
	}
	c := newLocalizer(&d.cfg)
	flows := d.flows.inOrder()
	for i := range d.cases {
		for key, f := range d.cases[i].of {
			if !misread[i] || !key.kind.readsValues() {
				list = append(list, d.explained(c, *f, flows))
			}
		}
	}
	for i := range d.layouts {
		if misread[i] {
			continue
		}
		l := &d.layouts[i]
		cleared := d.clearances(l.unknownLMs.layout, flows)
		forgers := d.forgers(c, &l.unknownLMs, cleared, flows)
		list = append(list, l.unknownLMs.forged(forgers)...)
		spoofers := d.spoofers(&l.unknownLMs)
		for src, run := range spoofers {
			if !forgers[src] {
				list = append(list, run.forged(src, l.unknownLMs.sources[src]))
			}
		}
		list = append(list, d.unscrubbed(&l.unknownLMs, forgers, spoofers)...)
		unknown := d.unknown(&l.unknownLMs, forgers, cleared)
		d.blameUnknownLMs(c, unknown, flows)
		for k := range unknown {
			list = append(list, unknown[k].Finding)
		}
		list = append(list, d.locatorsAlone(l)...)
		list = append(list, d.lost(c, l, flows)...)
	}
	list = append(list, d.stuckPorts(misread)...)
	list = append(list, c.swapped(flows)...)
	list = append(list, d.ofTaps()...)
	for _, find := range []func(*localizer, []*flow) (Finding, bool){d.stripped, d.inserted, d.retyped} {
		if f, ok := find(c, flows); ok {
			list = append(list, f)
		}
	}
	if f, ok := d.frozen(c, flows, misread); ok {
		list = append(list, f)
	}
	order(list)
	list = merge(list)
	order(list)
	return list
}

// readsValues reports whether findings of the kind depend on fields that a wrong layout misplaces.
func (k Kind) readsValues() bool {
	switch k {
	case ForgedValue, AboveCapacity, ReservedBits:
		return true
	}
	return false
}

// explained adds the total and the culprit to a finding.
func (d *Detector) explained(c *localizer, f Finding, flows []*flow) Finding {
	for i := range d.layouts {
		f.Of += d.layouts[i].n
	}
	switch f.Kind {
	case Leak:
		d.blameEdges(&f)
	case OrphanTag:
		f.Of += f.Count
		d.blameOdd(c, &f, flows, func(one *flow) uint64 { return one.orphans })
	case ReservedBits:
		d.blameOdd(c, &f, flows, func(one *flow) uint64 { return one.reserved })
	}
	return f
}

// blameEdges names the edges by which leaked tags leave.
func (d *Detector) blameEdges(f *Finding) {
	r := d.leaks[f.Subject]
	if r == nil || d.cfg.Routes == nil {
		return
	}
	for _, dst := range r {
		if dst.IsValid() {
			f.Candidates = append(f.Candidates, d.cfg.Routes.Edges(dst)...)
		}
	}
	slices.Sort(f.Candidates)
	f.Candidates = slices.Compact(f.Candidates)
	if len(f.Candidates) == 1 {
		f.Device, f.Candidates = f.Candidates[0], nil
	}
}

// blameOdd names the common element of flows with odd tags.
func (d *Detector) blameOdd(c *localizer, f *Finding, flows []*flow, odd func(*flow) uint64) {
	var affected, kept []*flow
	for _, one := range flows {
		switch {
		case odd(one) > 0:
			affected = append(affected, one)
		case one.got.tagged >= minUnknownLMs:
			kept = append(kept, one)
		}
	}
	if v := c.rank(affected, kept, nil); v.sure {
		v.name(f)
		f.Evidence += fmt.Sprintf(" in %d flows; their paths have %s in common", len(affected), &v)
	}
}

// blameUnknownLMs names the ports and devices that may write the most frequent unknown locators: those
// that their paths have in common and that did not write correct values in at least half of the
// time.
func (d *Detector) blameUnknownLMs(c *localizer, list []unknownLocator, flows []*flow) {
	if len(list) == 0 {
		return
	}
	wrote := d.locations.times()
	for i := range list[:min(len(list), maxBlamed)] {
		f := &list[i]
		when := f.when.now(&d.locations.clock)
		v := c.rank(f.flows, f.by.others(flows), func(at aggregate.LocationID) bool {
			return f.tap != "" && senders(at) || overlap(within(when), wrote[at]) >= 0.5
		})
		if len(v.at) > 0 {
			v.name(&f.Finding)
			f.Evidence += fmt.Sprintf("; their paths have %s in common, and it wrote little else meanwhile", &v)
		}
	}
}

// others returns the flows without this unknown LM, among those into which ports wrote.
func (s *unknownLM) others(flows []*flow) (kept []*flow) {
	for _, one := range flows {
		_, has := s.flows[one]
		if len(s.flows) == maxUnknownLMSources {
			has = one.unknownLMs > 0 // unknown which
		}
		if !has && one.touched > 0 {
			kept = append(kept, one)
		}
	}
	return kept
}

// inOrder returns the flows with this unknown LM in a stable order.
func (s *unknownLM) inOrder() []*flow {
	return slices.SortedFunc(maps.Keys(s.flows), func(a, b *flow) int { return a.key.compare(&b.key) })
}

// times returns the slots in which ports wrote, also for their devices and sets.
func (p *locationStates) times() map[aggregate.LocationID]uint64 {
	when := map[aggregate.LocationID]uint64{}
	for _, one := range p.of {
		if one.kind != locationPort {
			continue
		}
		b := one.when.now(&p.clock)
		for i, id := range [...]aggregate.LocationID{one.at.ID, one.at.Set, one.at.DeviceLoc} {
			if i == 0 || id != one.at.ID {
				when[id] |= b
			}
		}
	}
	return when
}
