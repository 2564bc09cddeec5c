package finding

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

const (
	// minUnknownLMs is the number of values without a writer needed to name their source.
	minUnknownLMs = 20
	// unknownLMFactor is the ratio of a source's share of values without a writer to that of all
	// others at which the source counts as a forger. An outdated switch or fabric file affects all
	// sources behind a port alike.
	unknownLMFactor = 10
	// unknownLMPackets is the number of packets that a source's finding names.
	unknownLMPackets = 16
	// maxUnknownLMSources bounds the distinct sources and flows of one location, and
	// maxUnknownLMPairs those of all locations.
	maxUnknownLMSources = 256
	maxUnknownLMPairs   = 1 << 16
)

// unknownLMs are values of a layout whose locator metadata no port of their path writes.
type unknownLMs struct {
	layout  csig.Layout
	sources map[netip.Addr]*sourceState
	all     sourceState
	at      map[aggregate.LocationID]*unknownLM
	pairs   int
}

// unknownLM is one location that is no port of the path, with the sources and flows that name it.
type unknownLM struct {
	Finding
	sources map[netip.Addr]uint64
	flows   map[*flow]struct{}
	when    slots
}

// sourceState is the state of one source's values that some hop replaced.
type sourceState struct {
	touched, unknownLM uint64
	span                     // of values with an unknown LM
	when               slots // of values with an unknown LM
	packets            []Packet
	wrote, arrived     values        // at taps of senders, and elsewhere
	odd                values        // the arrived ones that no port of the path wrote
	spoofed            [4]spoofedRun // by type, of which there are few
	kept               spoofedRun    // the longest completed run
}

// source counts a value of a source, and returns the source's state; nil beyond limit.
func (s *unknownLMs) source(of *seen, limit int) *sourceState {
	s.all.touched++
	at := s.known(of.src, limit)
	if at == nil {
		return nil
	}
	at.touched++
	if of.o.Kind == decode.Tag {
		at.arrived.add(of)
	}
	return at
}

// known returns the state of a source, nil beyond limit.
func (s *unknownLMs) known(src netip.Addr, limit int) *sourceState {
	at := s.sources[src]
	if at == nil && len(s.sources) < limit {
		at = new(sourceState)
		s.sources[src] = at
	}
	return at
}

// add counts a value that no port wrote, and remembers the source and flow that name the location.
func (s *unknownLMs) add(location aggregate.LocationID, of *sourceState, o *seen, clock *slotClock, limit int) {
	s.all.unknownLM++
	if of != nil {
		of.unknownLM++
		of.cover(o.o.TimeNS, o.o.TimeNS)
		of.when.set(clock, o.o.TimeNS)
		of.odd.add(o)
		if len(of.packets) < unknownLMPackets {
			of.packets = append(of.packets, Packet{o.tap.File, o.o.Packet})
		}
	}
	names := s.at[location]
	if names == nil {
		if len(s.at) >= limit {
			location = 0 // stands for all others
		}
		if names = s.at[location]; names == nil {
			names = &unknownLM{sources: make(map[netip.Addr]uint64), flows: make(map[*flow]struct{})}
			s.at[location] = names
		}
	}
	names.seen(o.tap.File, o.o)
	names.when.set(clock, o.o.TimeNS)
	if _, known := names.sources[o.src]; known || len(names.sources) < maxUnknownLMSources && s.room() {
		names.sources[o.src]++
	}
	if o.flow == nil {
		return
	}
	o.flow.unknownLMs++
	if _, known := names.flows[o.flow]; !known && len(names.flows) < maxUnknownLMSources && s.room() {
		names.flows[o.flow] = struct{}{}
	}
}

// room counts another source or flow, and reports whether there is room for it.
func (s *unknownLMs) room() bool {
	s.pairs++
	return s.pairs <= maxUnknownLMPairs
}

// forged returns the findings of sources that forge values.
func (s *unknownLMs) forged(by map[netip.Addr]bool) (list []Finding) {
	for src := range by {
		one := s.sources[src]
		list = append(list, Finding{
			Kind: ForgedValue, ID: idOf(ForgedValue, src.String()), Subject: src.String(), From: one.from, To: one.to,
			Count: one.unknownLM, Of: one.touched, Packets: one.packets,
			Evidence: fmt.Sprintf("%d of %d values of %s name no port of their path, and %d of %d of all other sources",
				one.unknownLM, one.touched, src, s.all.unknownLM-one.unknownLM, s.all.touched-one.touched),
		})
	}
	return list
}

// only limits the time and the packets of a finding to the values of sources that no port writes, also those with
// other locators, and returns their time. If one source is beyond the bound on subjects, all stay as they are, since
// its values are not known.
func (s *unknownLMs) only(f *Finding, when slots, sources []netip.Addr, clock *slotClock) slots {
	if slices.ContainsFunc(sources, func(src netip.Addr) bool { return s.sources[src] == nil }) {
		return when
	}
	f.From, f.To, f.Packets = 0, 0, nil
	when = slots{first: clock.first(), step: clock.step}
	for _, src := range slices.SortedFunc(slices.Values(sources), netip.Addr.Compare) {
		one := s.sources[src]
		f.during(one.from, one.to)
		f.Packets = append(f.Packets, one.packets[:min(len(one.packets), maxPackets-len(f.Packets))]...)
		when.bits |= one.when.now(clock)
	}
	return when
}

// unknownLocator is a finding of a locator that no port writes, with its sources and flows.
type unknownLocator struct {
	Finding
	by    *unknownLM
	flows []*flow // with the locator, without those of forgers
	when  slots   // of its values; like the Finding's time and packets without those of forgers
	tap   string  // clears the senders, empty if they are not cleared
}

// unknown returns the locators that no port writes, without the values of forgers, the most
// frequent ones first.
func (d *Detector) unknown(s *unknownLMs, forgers map[netip.Addr]bool, cleared map[netip.Addr]clearance) (list []unknownLocator) {
	for at, names := range s.at {
		f := names.Finding
		f.Kind, f.Of, f.Subject = UnknownLocator, s.all.touched, beyond
		if at != 0 {
			l, _ := d.cfg.Locator.Location(at)
			f.Subject = l.Name
		}
		f.ID = idOf(f.Kind, f.Subject)
		var others []netip.Addr
		var taps []string // of each cleared source
		for src, n := range names.sources {
			if forgers[src] {
				f.Count -= min(n, f.Count)
				continue
			}
			others = append(others, src)
			if by, one := cleared[src], s.sources[src]; one != nil && by.values > 0 && one.unknownLM < by.values+minUnknownLMs {
				taps = append(taps, by.tap)
			}
		}
		if f.Count == 0 || len(others) == 0 {
			continue
		}
		flows, when := names.inOrder(), names.when
		if len(others) < len(names.sources) {
			flows = slices.DeleteFunc(flows, func(one *flow) bool { return forgers[one.key.source()] })
			when = s.only(&f, when, others, &d.locations.clock)
		}
		f.Evidence = fmt.Sprintf("values of %d sources name no port of their path: %s", len(others), f.Subject)
		tap := ""
		if len(taps) == len(others) {
			tap = slices.Min(taps)
			f.Evidence += fmt.Sprintf("; their flows pass tap %s without them, so a device behind it wrote them", tap)
		}
		list = append(list, unknownLocator{f, names, flows, when, tap})
	}
	slices.SortFunc(list, func(a, b unknownLocator) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Subject, b.Subject))
	})
	return list
}
