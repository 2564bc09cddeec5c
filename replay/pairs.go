package replay

import (
	"net/netip"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
)

// GroupPackets counts the packets from one group to another, at taps that see whole paths.
type GroupPackets struct {
	Src, Dst aggregate.GroupID
	// Untagged counts packets without a tag that carry data, as reported by
	// decode.Decoder.DecodeUntagged: acknowledgements need no tag.
	Tagged, Untagged uint64
	// Incapable counts empty and invalid reflections, which mean that the path is not CSIG-capable
	// (draft -01, section 6.3.3).
	Incapable uint64
}

// maxPairs is the maximum number of pairs of groups; packets of other pairs are not counted.
const maxPairs = 1 << 16

// pairCounts counts packets with and without tags.
type pairCounts struct {
	group  func(netip.Addr) aggregate.GroupID
	counts map[groupPair]*GroupPackets
	seen   uint64 // empty and invalid reflections before the present packet
}

type groupPair struct{ src, dst aggregate.GroupID }

// newPairCounts returns nil without groups.
func newPairCounts(group func(netip.Addr) aggregate.GroupID) *pairCounts {
	if group == nil {
		return nil
	}
	return &pairCounts{group: group, counts: make(map[groupPair]*GroupPackets)}
}

// count counts a decoded packet, and the one that carried it in a mirror session. It uses its tags or,
// without one, its endpoints in untagged if they are known; data says whether the packet carries data.
// Packets at taps that do not see whole paths are not counted.
func (w *pairCounts) count(r *decode.Result, untagged *decode.Observation, data bool, counters decode.Counters, whole bool) {
	incapable := counters.EmptyReflections + counters.InvalidReflections - w.seen
	w.seen += incapable
	if !whole {
		return
	}
	w.tagged(r.Obs[:r.Carrier])
	own := w.tagged(r.Obs[r.Carrier:r.N])
	if own == nil && untagged != nil {
		own = untagged
		if data {
			w.of(untagged, false).Untagged++
		}
	}
	if own != nil {
		w.of(own, true).Incapable += incapable
	}
}

// tagged counts a packet with a tag, and returns the tag; nil if there is none.
func (w *pairCounts) tagged(list []decode.Observation) *decode.Observation {
	for i := range list {
		if o := &list[i]; o.Kind == decode.Tag && o.Flags&(decode.Orphan|decode.HasAddrs) == decode.HasAddrs {
			w.of(o, false).Tagged++
			return o
		}
	}
	return nil
}

// of returns the counts of a packet's groups, or of the opposite direction; beyond the maximum, counts
// that are discarded.
func (w *pairCounts) of(o *decode.Observation, back bool) *GroupPackets {
	from, to := o.Addrs()
	if back {
		from, to = to, from
	}
	k := groupPair{w.group(from), w.group(to)}
	one := w.counts[k]
	if one == nil {
		one = &GroupPackets{Src: k.src, Dst: k.dst}
		if len(w.counts) < maxPairs {
			w.counts[k] = one
		}
	}
	return one
}

// list returns all pairs of groups with packets, in any order.
func (w *pairCounts) list() []GroupPackets {
	if w == nil {
		return nil
	}
	var list []GroupPackets
	for _, one := range w.counts {
		if one.Tagged+one.Untagged+one.Incapable > 0 {
			list = append(list, *one)
		}
	}
	return list
}
