package finding

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/decode/csig"
)

// maxValues is the number of a source's frequent values that are distinguished.
const maxValues = 8

// minPassed is how often one value must arrive behind the edge to be evidence of a passed forgery.
const minPassed = 5

// values are the most frequent values of one source, with their locator metadata. A rarer one
// replaces the rarest and inherits its count, as in Space-Saving (Metwally et al., 2005).
type values struct {
	list [maxValues]value
}

// value is a type, a value and locator metadata, as in tags.
type value struct {
	packed       uint64
	n, inherited uint64 // inherited: the part of n that may belong to others
	span
	first Packet
}

func valueOf(t *csig.Tag) uint64 {
	return 1<<63 | uint64(t.T)<<40 | uint64(t.LM)<<20 | uint64(t.S)
}

// t and s return the type and the signal field.
func (v *value) t() uint8  { return uint8(v.packed >> 40 & 15) }
func (v *value) s() uint32 { return uint32(v.packed & (1<<20 - 1)) }

// add counts a value.
func (v *values) add(s *seen) {
	packed, rarest := valueOf(&s.o.Tag), 0
	for i := range v.list {
		one := &v.list[i]
		if one.packed == packed {
			one.n++
			one.cover(s.o.TimeNS, s.o.TimeNS)
			return
		}
		if one.n < v.list[rarest].n {
			rarest = i
		}
	}
	old := v.list[rarest].n
	v.list[rarest] = value{packed, old + 1, old, span{s.o.TimeNS, s.o.TimeNS}, Packet{s.tap.File, s.o.Packet}}
}

// find returns a value, nil if it is not among the frequent ones.
func (v *values) find(packed uint64) *value {
	for i := range v.list {
		if v.list[i].packed == packed {
			return &v.list[i]
		}
	}
	return nil
}

// forged remembers a value that a sender wrote.
func (l *layoutState) forged(s *seen, limit int) {
	if of := l.unknownLMs.known(s.src, limit); of != nil {
		of.wrote.add(s)
	}
}

// passed returns the values of a source that its own tap saw and that arrived unchanged behind the
// edge, if they are at least minUnknownLMs together. A port may write the same value sometimes; the
// share in other sources' values accounts for that.
func (s *unknownLMs) passed(src netip.Addr) (list []*value) {
	one, all := s.sources[src], uint64(0)
	for i := range one.wrote.list {
		if one.wrote.list[i].packed == 0 {
			continue
		}
		here := one.arrived.find(one.wrote.list[i].packed)
		if here == nil || here.n-here.inherited < minPassed {
			continue
		}
		var elsewhere uint64
		for other, state := range s.sources {
			if there := state.arrived.find(here.packed); other != src && there != nil {
				elsewhere += there.n
			}
		}
		if float64(here.n)*float64(s.all.touched-one.touched) >= unknownLMFactor*float64(elsewhere)*float64(one.touched) {
			list = append(list, here)
			all += here.n - here.inherited
		}
	}
	if all < minUnknownLMs {
		return nil
	}
	return list
}

// unscrubbed returns the findings of edges that let senders' values pass (IBCS 4.1).
func (d *Detector) unscrubbed(s *unknownLMs, forgers map[netip.Addr]bool, spoofers map[netip.Addr]*spoofedRun) (list []Finding) {
	by := map[string]*Finding{}
	for _, src := range s.inOrder() {
		one := s.sources[src]
		f := Finding{Kind: ScrubFailure, From: one.from, To: one.to, Count: one.unknownLM, Of: one.touched, Packets: one.packets}
		if !forgers[src] {
			f = Finding{Kind: ScrubFailure, Of: one.touched}
			for _, v := range s.passed(src) {
				f.during(v.from, v.to)
				f.Count += v.n - v.inherited
				f.Packets = append(f.Packets, v.first)
			}
			if run := spoofers[src]; run != nil && f.Count == 0 {
				f = run.forged(src, one)
				f.Kind = ScrubFailure
			}
		}
		if f.Count == 0 {
			continue
		}
		f.Device = d.edge(src)
		if f.Subject = f.Device; f.Subject == "" {
			f.Subject = "edge of " + src.String()
		}
		if at := by[f.Subject]; at != nil {
			at.add(&f)
			at.Of += f.Of
			at.Evidence += ", " + src.String()
			continue
		}
		f.ID = idOf(f.Kind, f.Subject)
		f.Evidence = fmt.Sprintf("values arrive as their senders wrote them: %s", src)
		by[f.Subject] = &f
	}
	for _, f := range by {
		f.Evidence = cut(f.Evidence)
		if strings.Contains(f.Device, " ") {
			f.Device, f.Candidates = "", strings.Split(f.Device, " or ")
		}
		list = append(list, *f)
	}
	return list
}

// maxEvidence bounds the evidence text of a finding, in bytes.
const maxEvidence = 500

func cut(text string) string {
	if len(text) > maxEvidence {
		return text[:maxEvidence] + " ..."
	}
	return text
}

// inOrder returns the sources, ascending.
func (s *unknownLMs) inOrder() []netip.Addr {
	return slices.SortedFunc(maps.Keys(s.sources), netip.Addr.Compare)
}

// edge names the devices to which a source may be attached, empty if unknown.
func (d *Detector) edge(src netip.Addr) string {
	if d.cfg.Routes == nil {
		return ""
	}
	return strings.Join(d.cfg.Routes.Edges(src), " or ")
}
