package finding

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
)

const (
	// minMissing is the number of tags that a flow must lack, and minExcess the number that it must
	// have too many, compared with its other observations.
	minMissing, minExcess = 20, 10
)

// inOrder returns the flows in a stable order.
func (f *flows) inOrder() []*flow {
	return slices.SortedFunc(maps.Values(f.of), func(a, b *flow) int { return a.key.compare(&b.key) })
}

// stripped returns the finding of flows that lose their tags on the way (section 6.1). A host where
// all packets arrive untagged is no finding: tags end at the boundary of the domain. Neither is a
// sender that tags only some flows, if paths do not distinguish them.
func (d *Detector) stripped(c *localizer, all []*flow) (f Finding, ok bool) {
	rates, tagged := d.rates(all)
	var affected, kept []*flow
	witnessed := 0 // by a tap at the sender
	for _, one := range all {
		_, dst := one.key.addrs()
		if !tagged[dst] {
			continue
		}
		gap := one.longest()
		rate, seen := one.rate(rates)
		missing := gap.n
		if seen {
			missing = min(missing, one.lost())
		}
		switch {
		case float64(gap.n)*rate >= minMissing && missing >= minMissing:
			affected = append(affected, one)
			if seen {
				witnessed++
			}
			f.during(gap.from, gap.to)
			f.Count += missing
			f.Of += one.got.tagged + one.got.data
			f.Packets = append(f.Packets, gap.packets[:min(int(gap.n), flowPackets, maxPackets-len(f.Packets))]...)
		case one.got.tagged > 0:
			kept = append(kept, one)
			f.Of += one.got.tagged + one.got.data
		}
	}
	clean := c.clean(affected, kept)
	v := c.rank(affected, kept, func(at aggregate.LocationID) bool {
		return clean[at] >= minAffected || witnessed == len(affected) && senders(at)
	})
	v.sure = v.sure && !v.host // senders may tag some flows and others not
	if len(affected) == 0 || !v.sure && witnessed == 0 {
		return f, false
	}
	f.Kind = StrippedFlows
	f.Evidence = fmt.Sprintf("%d flows arrive without the tags of their senders, %d with them", len(affected), len(kept)) + shared(affected, kept)
	v.nameCulprits(&f)
	return f, true
}

// clean counts the flows that keep their tags although they surely pass a location and have a class
// that affected ones have too: a stripping device strips all packets of a class.
func (c *localizer) clean(affected, kept []*flow) map[aggregate.LocationID]int {
	out := map[aggregate.LocationID]int{}
	if c.cfg.Routes == nil {
		return out
	}
	classes := map[Class]bool{}
	for _, f := range affected {
		classes[f.class] = true
	}
	for _, f := range kept[:min(len(kept), maxWeighed)] {
		paths := c.paths(f)
		if len(paths) == 0 || !classes[f.class] {
			continue
		}
		passes := map[aggregate.LocationID]int{} // of the paths
		for _, path := range paths {
			seen := map[aggregate.LocationID]bool{}
			for _, port := range path {
				at := c.location(port)
				for _, id := range [...]aggregate.LocationID{port, at.Set, at.DeviceLoc} {
					if !seen[id] {
						seen[id] = true
						passes[id]++
					}
				}
			}
		}
		for id, n := range passes {
			if n == len(paths) && id != aggregate.NoLocation {
				out[id]++
			}
		}
	}
	return out
}

// senders clears the senders: a tap beside them saw their packets.
func senders(at aggregate.LocationID) bool { return at == aggregate.NoLocation }

// rates returns the shares of packets with data that senders tag, as seen by receivers of flows
// that keep tags, and the hosts at which tags arrive from behind other edges.
func (d *Detector) rates(all []*flow) (of map[netip.Addr]float64, tagged map[netip.Addr]bool) {
	sums := map[netip.Addr]*traffic{}
	tagged = map[netip.Addr]bool{}
	for _, one := range all {
		if one.got.tagged == 0 {
			continue
		}
		src, dst := one.key.addrs()
		if at := d.edge(dst); at == "" || at != d.edge(src) {
			tagged[dst] = true
		}
		if sums[src] == nil {
			sums[src] = new(traffic)
		}
		sums[src].tagged += one.got.tagged
		sums[src].data += one.got.data - min(one.got.data, one.longest().n)
	}
	of = make(map[netip.Addr]float64, len(sums))
	for src, t := range sums {
		of[src] = float64(t.tagged) / float64(t.tagged+t.data)
	}
	return of, tagged
}

// lost returns the number of packets that surely lost their tags behind a tap at the sender: those
// that arrive untagged beyond the untagged ones that were sent. Only tagged packets may have been
// dropped on the way, so a smaller share of tags alone proves nothing. If the tap at the sender saw
// fewer packets than arrive, untagged ones count in proportion.
func (one *flow) lost() uint64 {
	sent, got := &one.sent, &one.got
	untagged := float64(sent.data) * max(1, float64(got.tagged+got.data)/float64(max(sent.tagged+sent.data, 1)))
	return got.data - min(got.data, uint64(math.Ceil(untagged)))
}

// rate returns the share of a flow's packets with data that its sender tags, 0 if unknown. seen
// reports that a tap at the sender measured it; then it is right on average, with or without tags.
func (one *flow) rate(of map[netip.Addr]float64) (rate float64, seen bool) {
	if t := &one.sent; t.all() > 0 {
		return float64(t.tagged) / float64(max(t.tagged+t.data, 1)), true
	}
	if t := &one.got; t.tagged >= minMissing {
		return float64(t.tagged) / float64(t.tagged+t.data-min(t.data, one.longest().n)), false
	}
	src, _ := one.key.addrs()
	return of[src], false
}

// inserted returns the finding of tags that no sender made (section 4.4.2): in flows that are
// untagged at a tap of the sender.
func (d *Detector) inserted(c *localizer, all []*flow) (f Finding, ok bool) {
	var affected, kept []*flow
	for _, one := range all {
		if one.sent.untagged < minMissing || one.sent.tagged > 0 || one.got.all() == 0 {
			continue
		}
		f.Of += one.got.all()
		if one.got.tagged == 0 {
			kept = append(kept, one)
			continue
		}
		share := float64(one.got.tagged) / float64(one.got.all())
		if share*float64(one.sent.all()) >= minExcess {
			affected = append(affected, one)
			f.during(one.from, one.to)
			f.Count += one.got.tagged
		}
	}
	if len(affected) == 0 {
		return f, false
	}
	v := c.rank(affected, kept, senders)
	f.Kind = RogueInsertion
	f.Evidence = fmt.Sprintf("tags arrive in %d flows whose senders make none", len(affected))
	v.nameCulprits(&f)
	return f, true
}
