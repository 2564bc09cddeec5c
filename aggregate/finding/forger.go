package finding

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// forgers are the sources of many values that no port of their path writes, in a share many
// times that of all others, where nothing that their packets pass explains them as well.
func (d *Detector) forgers(c *court, s *strays, flows []*flow) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	wrote := d.places.times()
	for _, src := range s.inOrder() {
		one := s.sources[src]
		if one.stray < minStrays || !one.exceeds(s.all.stray-one.stray, s.all.touched-one.touched) {
			continue
		}
		var affected, kept []*flow
		for _, f := range flows {
			from, _ := f.key.addrs()
			switch {
			case from == src && f.strays > 0:
				affected = append(affected, f)
			case f.strays == 0 && f.touched > 0 && len(kept) < maxWeighed:
				kept = append(kept, f)
			}
		}
		when := one.when.now(&d.places.clock)
		v := c.judge(affected, kept, func(at aggregate.LocationID) bool { return overlap(when, wrote[at]) >= 0.5 })
		alone := v.host && (len(v.at) == 1 || d.constant(s.layout, one))
		if len(v.at) == 0 { // the paths are not known
			alone = s.standsOut(src, d.edge)
		}
		if alone {
			out[src] = true
		}
	}
	return out
}

// constant tells whether a source's strays are one value, heavily loaded and not the
// tightest, to the bit: who forges may write such, and a port does for other reasons.
func (d *Detector) constant(l csig.Layout, one *sourceState) bool {
	for i := range one.odd.list {
		v := &one.odd.list[i]
		table := d.cfg.Domain.Table(l, v.t())
		if v.n-v.inherited < minStrays || table == nil || table.Codes() < minCodes || !suspicious(table, 0, table.Code(v.s())) {
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

// minCodes is how many codes a signal must have for equal ones to mean something.
const minCodes = 256

// exceeds tells whether a source's share of strays is many times that of others.
func (one *sourceState) exceeds(stray, touched uint64) bool {
	return float64(one.stray)*float64(touched) >= strayFactor*float64(stray)*float64(one.touched)
}

// standsOut tells whether a source's share is many times that of those at the same edge,
// whose values pass the same ports: of the one with the median share, the lower one of two.
func (s *strays) standsOut(src netip.Addr, edge func(netip.Addr) string) bool {
	at := edge(src)
	var mates []*sourceState
	for other, one := range s.sources {
		if other != src && one.touched >= minStrays && edge(other) == at {
			mates = append(mates, one)
		}
	}
	if at == "" || len(mates) == 0 {
		return true
	}
	share := func(one *sourceState) float64 { return float64(one.stray) / float64(one.touched) }
	slices.SortFunc(mates, func(a, b *sourceState) int { return cmp.Compare(share(a), share(b)) })
	typical := mates[(len(mates)-1)/2]
	return s.sources[src].exceeds(typical.stray, typical.touched)
}
