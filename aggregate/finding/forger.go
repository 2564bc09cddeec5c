package finding

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// forgers returns the sources of many values that no port of their path writes, in a share many
// times that of all others, if no element on their packets' paths explains the values equally well.
// Values that a tap in front shows to be written on the way are not theirs.
func (d *Detector) forgers(c *localizer, s *unknownLMs, cleared map[netip.Addr]clearance, flows []*flow) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	wrote := d.locations.times()
	list := slices.DeleteFunc(s.inOrder(), func(src netip.Addr) bool {
		one := s.sources[src]
		own := one.unknownLM - min(one.unknownLM, cleared[src].values)
		return own < minUnknownLMs || !exceeds(own, one.touched, s.all.unknownLM-one.unknownLM, s.all.touched-one.touched)
	})
	slices.SortStableFunc(list, func(a, b netip.Addr) int { return cmp.Compare(s.sources[b].unknownLM, s.sources[a].unknownLM) })
	for i, src := range list {
		one := s.sources[src]
		var v verdict
		if i < maxBlamed {
			v = c.rank(of(src, flows), others(flows), one.cleared(d, wrote))
		}
		forger := v.host && (len(v.at) == 1 || d.constant(s.layout, one))
		if len(v.at) == 0 { // the paths are unknown
			forger = s.standsOut(src, d.edge)
		}
		if forger {
			out[src] = true
		}
	}
	return out
}

// clearance is the number of a source's values with an unknown LM that were written on the way, and
// the first tap that shows it.
type clearance struct {
	values uint64
	tap    string
}

// clearances returns those of sources whose flows pass a tap in front of the values.
func (d *Detector) clearances(l csig.Layout, flows []*flow) map[netip.Addr]clearance {
	out := map[netip.Addr]clearance{}
	for _, f := range flows {
		src, _ := f.key.addrs()
		for i := range f.taps {
			behind := &f.taps[i]
			if int(behind.layout) != l.Index() || behind.wrong == 0 {
				continue
			}
			if by := slices.IndexFunc(f.taps, func(t tagsAt) bool { return t.clears(behind, &d.flows.clock) }); by >= 0 {
				one := out[src]
				out[src] = clearance{one.values + uint64(behind.wrong), cmp.Or(one.tap, f.taps[by].tap)}
			}
		}
	}
	return out
}

// of returns the flows of a source that have values with an unknown LM; others returns all flows
// without any.
func of(src netip.Addr, flows []*flow) (list []*flow) {
	for _, f := range flows {
		if from, _ := f.key.addrs(); from == src && f.unknownLMs > 0 {
			list = append(list, f)
		}
	}
	return list
}

func others(flows []*flow) (list []*flow) {
	for _, f := range flows {
		if f.unknownLMs == 0 && f.touched > 0 {
			list = append(list, f)
		}
	}
	return list
}

// cleared reports elements that wrote correct values in at least half of the slots of a source's
// values with an unknown LM.
func (one *sourceState) cleared(d *Detector, wrote map[aggregate.LocationID]uint64) func(aggregate.LocationID) bool {
	when := one.when.now(&d.locations.clock)
	return func(at aggregate.LocationID) bool { return overlap(within(when), wrote[at]) >= 0.5 }
}

// constant reports whether a source's values of some type with an unknown LM are nearly all one value, heavy and not the
// tightest: a forger may write such a value, and a port does so for other reasons.
func (d *Detector) constant(l csig.Layout, one *sourceState) bool {
	for i := range one.odd.list {
		v := &one.odd.list[i]
		table := d.cfg.Domain.Table(l, v.t())
		if v.n-v.inherited < minUnknownLMs || table == nil || !suspicious(table, 0, table.Code(v.s())) {
			continue
		}
		var others uint64
		for k := range one.odd.list {
			if other := &one.odd.list[k]; k != i && other.n > 0 && other.t() == v.t() {
				others += other.n
			}
		}
		if 10*others <= v.n {
			return true
		}
	}
	return false
}

// exceeds reports whether a source's share of values with an unknown LM is many times the share of
// others.
func exceeds(unknownLM, touched, unknownLMs, all uint64) bool {
	return float64(unknownLM)*float64(all) >= unknownLMFactor*float64(unknownLMs)*float64(touched)
}

// standsOut reports whether a source's share of values with an unknown LM is many times that of its
// neighbors, the other sources at the same edge, whose values pass the same ports. It compares with
// their median share (the lower one of two), and is true without neighbors.
func (s *unknownLMs) standsOut(src netip.Addr, edge func(netip.Addr) string) bool {
	at := edge(src)
	var mates []*sourceState
	for other, one := range s.sources {
		if other != src && one.touched >= minUnknownLMs && edge(other) == at {
			mates = append(mates, one)
		}
	}
	if at == "" || len(mates) == 0 {
		return true
	}
	share := func(one *sourceState) float64 { return float64(one.unknownLM) / float64(one.touched) }
	slices.SortFunc(mates, func(a, b *sourceState) int { return cmp.Compare(share(a), share(b)) })
	typical := mates[(len(mates)-1)/2]
	return exceeds(s.sources[src].unknownLM, s.sources[src].touched, typical.unknownLM, typical.touched)
}

// lastDelay is the last delay that a port wrote, by layout and type, with the number of its changes.
type lastDelay struct {
	layout  csig.Layout
	t       uint8
	code    uint32
	changes uint64
}

// says takes a delay that a port wrote, and returns the number of changes so far.
func (p *locationState) says(tag *csig.Tag, code uint32) (changes uint64) {
	for i := range p.delays {
		if one := &p.delays[i]; one.t == tag.T && one.layout == tag.Layout {
			if one.code != code {
				one.code = code
				one.changes++
			}
			return one.changes
		}
	}
	p.delays = append(p.delays, lastDelay{layout: tag.Layout, t: tag.T, code: code})
	return 0
}

// minTurns is the number of changes that a port must write while one source keeps one value of it.
const minTurns = 20

// minSpoofed is the minimum time for which a source keeps that value.
const minSpoofed = 200 * time.Millisecond

// spoofedRun is a run of one delay, heavy and not the tightest, in the tags of a source, with
// the locator of a port. If the port wrote it, it would write it into others' tags as well.
type spoofedRun struct {
	value
	table   *csig.Table
	port    *locationState
	before  uint64 // changes of the port's delay when the run began
	turns   uint64 // changes since then
	packets []Packet
}

// followSpoofed follows a source's values with a port's locator. It uses only delays, which differ
// from packet to packet; a sender of constant rate may load a port constantly.
func (one *sourceState) followSpoofed(table *csig.Table, capacity uint64, code uint32, at *locationState, s *seen) {
	if table.Signal() != csig.MaxDelay {
		return
	}
	tag := &s.o.Tag
	changes := at.says(tag, code)
	if one == nil || s.o.Kind != decode.Tag {
		return
	}
	packed := valueOf(tag)
	run := &one.spoofed[tag.T%uint8(len(one.spoofed))]
	if run.packed != packed || run.port != at {
		one.keep(run)
		*run = spoofedRun{packets: run.packets[:0]}
		if !suspicious(table, capacity, code) {
			return
		}
		run.packed, run.table, run.port, run.before = packed, table, at, changes
	}
	run.n++
	run.cover(s.o.TimeNS, s.o.TimeNS)
	run.turns = changes - run.before
	if len(run.packets) < unknownLMPackets {
		run.packets = append(run.packets, Packet{s.tap.File, s.o.Packet})
	}
}

// keep remembers the longest run that is evidence against a source.
func (one *sourceState) keep(run *spoofedRun) {
	if run.n >= minUnknownLMs && run.turns >= minTurns && run.n > one.kept.n {
		one.kept, run.packets = *run, nil
	}
}

// spoofers returns the sources that write values with the locators of ports, with the longest run
// of each.
func (d *Detector) spoofers(s *unknownLMs) map[netip.Addr]*spoofedRun {
	out := map[netip.Addr]*spoofedRun{}
	for src, one := range s.sources {
		longest := one.kept
		for i := range one.spoofed {
			probe := sourceState{kept: longest}
			run := one.spoofed[i]
			probe.keep(&run)
			longest = probe.kept
		}
		if longest.n > 0 && longest.to-longest.from >= int64(minSpoofed) && s.onlySource(src, longest.packed) {
			out[src] = &longest
		}
	}
	return out
}

// onlySource reports whether hardly any other source has a value.
func (s *unknownLMs) onlySource(src netip.Addr, packed uint64) bool {
	var here, elsewhere uint64
	for other, state := range s.sources {
		switch there := state.arrived.find(packed); {
		case there == nil:
		case other == src:
			here = there.n
		default:
			elsewhere += there.n - there.inherited
		}
	}
	return unknownLMFactor*elsewhere <= here
}

// forged returns the finding of the run.
func (run *spoofedRun) forged(src netip.Addr, of *sourceState) Finding {
	low, _, _ := run.table.Range(run.table.Code(run.s()))
	return Finding{
		Kind: ForgedValue, ID: idOf(ForgedValue, src.String()), Subject: src.String(), From: run.from, To: run.to,
		Count: run.n, Of: of.touched, Packets: run.packets,
		Evidence: fmt.Sprintf("%d values in a row from %s are %s of %s, bit for bit, while that port gives others another value, and changes it %d times",
			run.n, src, csig.FormatQuantity(run.table.Signal().Unit(), float64(low)), run.port.at.Name, run.turns),
	}
}
