// Package hop measures packets between two taps: their delay, the change of their tags, and the
// relation of the taps' clocks.
//
// It knows records of packets. It must never know where they were captured or how packets get
// their IDs.
package hop

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate/clock"
	"github.com/csigscope/csigscope/decode/csig"
)

// PacketRecord is a packet at a tap.
type PacketRecord struct {
	ID     uint64 // the same at every tap
	TimeNS int64  // by the tap's clock, Unix ns
	Size   uint32 // of the frame, bytes
	Hops   uint8  // remaining hops: its TTL or hop limit
	Tagged bool
	Tag    csig.Tag
	// Src and Dst are the endpoints of the packet; the meaning of the tag's locator metadata
	// depends on them.
	Src, Dst netip.Addr
}

// Tap holds the packets of one tap, in any order.
type Tap struct {
	Packets           []PacketRecord
	Tags, Reflections []SegmentTag
}

// MinPackets is the number of packets that two taps must have in common, or of tags that one saw
// and whose reflections the other saw.
const MinPackets = 100

// Comparison is the relation of two taps A and B.
type Comparison struct {
	Forward, Backward Direction // from A to B, and from B to A
	// Unclear is the number of packets seen at both taps with the same remaining hops: their
	// direction is unknown.
	Unclear int
	// Clock is B's clock relative to A's, nil if unknown; then Why gives the reason.
	Clock *clock.Relation
	Why   string
}

// Direction is the packets of one direction.
type Direction struct {
	Packets int
	// Reflected is the number of tags that the first tap saw and whose reflections the other saw
	// later. They relate the clocks even if no packet passes both taps.
	Reflected int
	// Delays are from tap to tap, with both times on A's clock: right within the bound of Clock,
	// and known only if Clock covers both directions.
	Median, P99, Longest time.Duration
	Tagged               int // at both taps
	Changes              []Change
}

// Change counts the tags that changed between two taps, by their new fields and the endpoints of
// their packets. Together these give the location: "this tag took its value at leaf3".
type Change struct {
	Changed
	Count int
}

// Changed is the fields of tags after a change, and the endpoints of their packets.
type Changed struct {
	Layout   csig.Layout
	T        uint8
	LM       uint16
	Src, Dst netip.Addr
}

// Compare compares the packets of two taps, which it sorts. off is the largest error of the
// timestamps, both taps together. It ignores packets that a tap saw twice.
func Compare(a, b *Tap, off time.Duration) *Comparison {
	out := &Comparison{}
	forward, backward, unclear := match(unique(a.Packets), unique(b.Packets))
	out.Unclear = unclear
	there, back := reflectedPairs(a, b)
	relation, err := clock.Between(append(times(forward, false), there...), append(times(backward, true), back...), clock.Options{Error: off})
	if err != nil {
		out.Why, relation = err.Error(), nil
	}
	out.Clock = relation
	out.Forward, out.Backward = way(forward, relation, false), way(backward, relation, true)
	out.Forward.Reflected, out.Backward.Reflected = len(there), len(back)
	return out
}

// match finds the packets that both taps saw, by the tap that saw them first.
func match(a, b []PacketRecord) (forward, backward []pair, unclear int) {
	for i, k := 0, 0; i < len(a) && k < len(b); {
		switch c := cmp.Compare(a[i].ID, b[k].ID); {
		case c < 0:
			i++
			continue
		case c > 0:
			k++
			continue
		}
		switch p := (pair{&a[i], &b[k]}); {
		case p.a.Hops > p.b.Hops:
			forward = append(forward, p)
		case p.a.Hops < p.b.Hops:
			backward = append(backward, p)
		default:
			unclear++
		}
		i, k = i+1, k+1
	}
	return forward, backward, unclear
}

// pair is one packet at both taps.
type pair struct{ a, b *PacketRecord }

// unique returns the records of packets that were seen once, by ID.
func unique(list []PacketRecord) []PacketRecord {
	slices.SortFunc(list, func(x, y PacketRecord) int { return cmp.Compare(x.ID, y.ID) })
	kept := list[:0:0]
	for i := 0; i < len(list); {
		k := i + 1
		for k < len(list) && list[k].ID == list[i].ID {
			k++
		}
		if k == i+1 {
			kept = append(kept, list[i])
		}
		i = k
	}
	return kept
}

func times(list []pair, back bool) []clock.Pair {
	out := make([]clock.Pair, len(list))
	for i, p := range list {
		from, to := p.a, p.b
		if back {
			from, to = p.b, p.a
		}
		out[i] = clock.Pair{A: p.a.TimeNS, B: p.b.TimeNS, Kind: kind(from.Size, from.Hops-to.Hops, false)}
	}
	return out
}

// kind returns the same number for frames that take equally long without queueing: those of one
// size over equally many hops. For a tag and its reflection, size is the sum of both.
func kind(size uint32, hops uint8, reflected bool) uint32 {
	k := size<<9 | uint32(hops)<<1
	if reflected {
		k |= 1
	}
	return k
}

func way(list []pair, r *clock.Relation, back bool) Direction {
	w := Direction{Packets: len(list)}
	changes := map[Changed]int{}
	var delays []time.Duration
	for _, p := range list {
		from, to := p.a, p.b
		if back {
			from, to = p.b, p.a
		}
		if r != nil && !r.OneWay {
			d := time.Duration(r.ToA(p.b.TimeNS) - p.a.TimeNS)
			if back {
				d = -d
			}
			delays = append(delays, d)
		}
		if !from.Tagged || !to.Tagged {
			continue
		}
		w.Tagged++
		if from.Tag != to.Tag {
			changes[Changed{to.Tag.Layout, to.Tag.T, to.Tag.LM, to.Src, to.Dst}]++
		}
	}
	for k, n := range changes {
		w.Changes = append(w.Changes, Change{k, n})
	}
	slices.SortFunc(w.Changes, func(x, y Change) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Layout.Index(), y.Layout.Index()), cmp.Compare(x.T, y.T), cmp.Compare(x.LM, y.LM),
			x.Src.Compare(y.Src), x.Dst.Compare(y.Dst))
	})
	if len(delays) > 0 {
		slices.Sort(delays)
		w.Median, w.P99, w.Longest = delays[len(delays)/2], delays[len(delays)*99/100], delays[len(delays)-1]
	}
	return w
}

// Common returns the number of packets seen at both taps.
func (b *Comparison) Common() int { return b.Forward.Packets + b.Backward.Packets + b.Unclear }

// Related reports whether the taps have enough in common.
func (b *Comparison) Related() bool {
	return b.Common() >= MinPackets || b.Forward.Reflected+b.Backward.Reflected >= MinPackets
}

// String returns the clocks' relation in one line.
func (b *Comparison) String() string {
	if b.Clock == nil {
		return "clocks unknown: " + b.Why
	}
	low, high := b.Clock.Bound(b.Clock.At)
	sure := ""
	if !math.IsInf(b.Clock.DriftError, 1) {
		sure = fmt.Sprintf(" ± %.3f", b.Clock.DriftError/1000)
	}
	return fmt.Sprintf("offset %s (%s to %s), drift %.3f%s ppm (%.3f to %.3f)", time.Duration(b.Clock.Offset), side(low), side(high),
		b.Clock.Drift/1000, sure, b.Clock.DriftLow/1000, b.Clock.DriftHigh/1000)
}

// side returns one bound as text; packets of one direction leave the other one open.
func side(ns float64) string {
	if math.IsNaN(ns) || math.Abs(ns) > 1e18 {
		return "unknown"
	}
	return time.Duration(ns).String()
}

// SegmentTag is data on its way with the newest tag of its flow, or a reflection of that tag with the
// acknowledgement of the data, as seen by a tap.
type SegmentTag struct {
	Segment uint64 // number of the data: the same at every tap, and in its acknowledgement
	Tag     csig.Tag
	TimeNS  int64  // by the tap's clock, Unix ns
	Size    uint32 // of the frame, bytes
}

// reflected returns the tags that one tap saw and whose reflections the other saw. The data passed
// the first tap before its receiver got and acknowledged it; the acknowledgement passed the second
// tap afterwards. It skips data that was seen twice, which may have been acknowledged in between;
// of equal acknowledgements the first one counts. It sorts both lists. The first of each pair is the
// tag.
func reflected(tags, reflections []SegmentTag) (list [][2]*SegmentTag) {
	slices.SortFunc(tags, compareSegmentTags)
	slices.SortFunc(reflections, compareSegmentTags)
	for i, k := 0, 0; i < len(tags) && k < len(reflections); {
		t := &tags[i]
		twice := i > 0 && tags[i-1].Segment == t.Segment || i+1 < len(tags) && tags[i+1].Segment == t.Segment
		switch r := &reflections[k]; {
		case twice || t.Segment < r.Segment:
			i++
		case t.Segment > r.Segment || t.Tag != r.Tag:
			k++ // reflects another of the tags that the acknowledgement covers
		default:
			list = append(list, [2]*SegmentTag{t, r})
			i, k = i+1, k+1
		}
	}
	return list
}

func compareSegmentTags(a, b SegmentTag) int {
	return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.TimeNS, b.TimeNS))
}

// reflectedPairs returns the pairs of tags that A saw first, and of those that B saw first.
func reflectedPairs(a, b *Tap) (forward, backward []clock.Pair) {
	for _, p := range reflected(a.Tags, b.Reflections) {
		forward = append(forward, clock.Pair{A: p[0].TimeNS, B: p[1].TimeNS, Kind: kind(p[0].Size+p[1].Size, 0, true)})
	}
	for _, p := range reflected(b.Tags, a.Reflections) {
		backward = append(backward, clock.Pair{A: p[1].TimeNS, B: p[0].TimeNS, Kind: kind(p[0].Size+p[1].Size, 0, true)})
	}
	return forward, backward
}
