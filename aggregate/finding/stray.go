package finding

import (
	"fmt"
	"net/netip"

	"github.com/csigscope/csigscope/decode"
)

const (
	// minStrays is how many values without a writer it takes to name their source.
	minStrays = 20
	// strayFactor is how many times the share of values without a writer of one source is
	// that of all others, when the source forges them. A switch or a fabric file that is
	// out of step concerns all sources behind a port alike.
	strayFactor = 10
	// strayPackets is how many packets a source's finding names.
	strayPackets = 16
	// maxStraySources bounds the sources that are told apart of one location.
	maxStraySources = 256
)

// strays are values whose locator metadata no port of their path writes.
type strays struct {
	sources map[netip.Addr]*sourceState
	all     sourceState
	at      map[string]map[netip.Addr]uint64 // by the location that they name, and source
}

// sourceState is what the values of one source come to, of those that some hop replaced.
type sourceState struct {
	touched, stray uint64
	from, to       int64
	packets        []Packet
}

// source counts a value of a source, and gives what is known of it; nil beyond limit.
func (s *strays) source(src netip.Addr, limit int) *sourceState {
	s.all.touched++
	at := s.sources[src]
	if at == nil {
		if len(s.sources) >= limit {
			return nil
		}
		at = new(sourceState)
		s.sources[src] = at
	}
	at.touched++
	return at
}

// add counts a value that no port wrote, and remembers who names which location.
func (s *strays) add(location string, src netip.Addr, of *sourceState, tap *Tap, o *decode.Observation) {
	s.all.stray++
	if of != nil {
		if of.stray++; of.stray == 1 {
			of.from, of.to = o.TimeNS, o.TimeNS
		}
		of.from, of.to = min(of.from, o.TimeNS), max(of.to, o.TimeNS)
		if len(of.packets) < strayPackets {
			of.packets = append(of.packets, Packet{tap.File, o.Packet})
		}
	}
	names := s.at[location]
	if names == nil {
		names = make(map[netip.Addr]uint64)
		s.at[location] = names
	}
	if _, known := names[src]; known || len(names) < maxStraySources {
		names[src]++
	}
}

// forges tells whether a source stands out from all others.
func (s *strays) forges(src netip.Addr) bool {
	one := s.sources[src]
	if one == nil || one.stray < minStrays {
		return false
	}
	stray, touched := s.all.stray-one.stray, s.all.touched-one.touched
	return float64(one.stray)*float64(touched) >= strayFactor*float64(stray)*float64(one.touched)
}

// forgers are the findings of sources that forge values.
func (s *strays) forgers() (list []Finding) {
	for src, one := range s.sources {
		if !s.forges(src) {
			continue
		}
		list = append(list, Finding{
			Kind: ForgedValue, ID: idOf(ForgedValue, src.String()), Subject: src.String(), From: one.from, To: one.to,
			Count: one.stray, Of: one.touched, Packets: one.packets,
			Evidence: fmt.Sprintf("%d of %d values of %s name no port of their path, of all other sources %d of %d",
				one.stray, one.touched, src, s.all.stray-one.stray, s.all.touched-one.touched),
		})
	}
	return list
}

// left is a finding of an unknown locator without what forgers account for; ok is false
// when nothing is left.
func (s *strays) left(f Finding) (_ Finding, ok bool) {
	others := 0
	for src, n := range s.at[f.Subject] {
		if s.forges(src) {
			f.Count -= min(n, f.Count)
		} else {
			others++
		}
	}
	f.Of = s.all.touched
	f.Evidence = fmt.Sprintf("values of %d sources name no port of their path: %s", others, f.Subject)
	return f, f.Count > 0 && others > 0
}
