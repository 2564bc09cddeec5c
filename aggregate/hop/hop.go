// Package hop tells what happens to packets between two taps: how long they take, what
// their tags say before and after, and how the taps' clocks go against each other.
//
// It knows sightings of packets. It must never know where they were captured or how they
// were known again.
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

// Sighting is a packet at a tap.
type Sighting struct {
	ID     uint64 // the same at every tap
	TimeNS int64  // by the tap's clock, Unix ns
	Size   uint32 // of the frame, bytes
	Hops   uint8  // that the packet may still go: its TTL or hop limit
	Tagged bool
	Tag    csig.Tag
	// Src and Dst are the ends of the packet, which tell what the tag's locator metadata
	// means.
	Src, Dst netip.Addr
}

// Tap is what one tap saw, in any order.
type Tap struct {
	Packets           []Sighting
	Tags, Reflections []Mark
}

// MinPackets is how many packets two taps have to have in common, or tags that one saw and
// whose reflections the other did.
const MinPackets = 100

// Between is what is known of two taps A and B.
type Between struct {
	Forward, Backward Way // from A to B, and from B to A
	// Unclear packets were seen at both taps with as many hops to go: which of them came
	// first is not known.
	Unclear int
	// Clock is how B's clock goes against A's, nil where Why says why nobody knows.
	Clock *clock.Relation
	Why   string
}

// Way is what happens to packets in one direction.
type Way struct {
	Packets int
	// Reflected is the tags that the first tap saw and whose reflections the other saw
	// later: they tell clocks apart also where no packet passes both.
	Reflected int
	// Delays are from tap to tap, with both times on A's clock: right within the bound of
	// Clock, and known only if there is one for both directions.
	Median, P99, Longest time.Duration
	Tagged               int // at both taps
	Changes              []Change
}

// Change is the tags that got other values between two taps, by what they say after it and
// between whom they travelled, which together tell where: "this tag took its value at leaf3".
type Change struct {
	Changed
	Count int
}

// Changed is what tags say after a change, and the ends of their packets.
type Changed struct {
	Layout   csig.Layout
	T        uint8
	LM       uint16
	Src, Dst netip.Addr
}

// Compare compares what two taps saw, which it sorts. The error is how far timestamps of
// both taps together are off at most. Packets that a tap saw twice are left out.
func Compare(a, b *Tap, off time.Duration) *Between {
	out := &Between{}
	forward, backward, unclear := match(unique(a.Packets), unique(b.Packets))
	out.Unclear = unclear
	there, back := echoes(a, b)
	relation, err := clock.Between(append(times(forward, false), there...), append(times(backward, true), back...), clock.Options{Error: off})
	if err != nil {
		out.Why, relation = err.Error(), nil
	}
	out.Clock = relation
	out.Forward, out.Backward = way(forward, relation, false), way(backward, relation, true)
	out.Forward.Reflected, out.Backward.Reflected = len(there), len(back)
	return out
}

// match finds the packets that both taps saw, by which of them came first.
func match(a, b []Sighting) (forward, backward []pair, unclear int) {
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
type pair struct{ a, b *Sighting }

// unique returns the sightings of packets that were seen once, by ID.
func unique(list []Sighting) []Sighting {
	slices.SortFunc(list, func(x, y Sighting) int { return cmp.Compare(x.ID, y.ID) })
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

// kind returns the same for what takes equally long where it meets no queue: frames of one size
// over as many hops. A tag and its reflection have both sizes together.
func kind(size uint32, hops uint8, reflected bool) uint32 {
	k := size<<9 | uint32(hops)<<1
	if reflected {
		k |= 1
	}
	return k
}

func way(list []pair, r *clock.Relation, back bool) Way {
	w := Way{Packets: len(list)}
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

// Common returns how many packets were seen at both taps.
func (b *Between) Common() int { return b.Forward.Packets + b.Backward.Packets + b.Unclear }

// Related reports whether the taps have enough in common.
func (b *Between) Related() bool {
	return b.Common() >= MinPackets || b.Forward.Reflected+b.Backward.Reflected >= MinPackets
}

// String returns the clocks' relation in one line.
func (b *Between) String() string {
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

// side returns one bound, which packets of one direction leave open.
func side(ns float64) string {
	if math.IsNaN(ns) || math.Abs(ns) > 1e18 {
		return "unknown"
	}
	return time.Duration(ns).String()
}

// Mark is data on its way with the newest tag of its flow, or a reflection of that tag with
// the acknowledgement of the data, as a tap saw it.
type Mark struct {
	Segment uint64 // the data: the same number at every tap, and in its acknowledgement
	Tag     csig.Tag
	TimeNS  int64  // by the tap's clock, Unix ns
	Size    uint32 // of the frame, bytes
}

// reflected returns the tags that one tap saw and whose reflections the other saw: where data
// was, before its receiver had it and acknowledged it, and where the acknowledgement was
// afterwards. Data that was seen twice may have been acknowledged between; of equal
// acknowledgements the first one counts. It sorts the marks. The first of each two is the tag.
func reflected(tags, reflections []Mark) (list [][2]*Mark) {
	slices.SortFunc(tags, compareMarks)
	slices.SortFunc(reflections, compareMarks)
	for i, k := 0, 0; i < len(tags) && k < len(reflections); {
		t := &tags[i]
		twice := i > 0 && tags[i-1].Segment == t.Segment || i+1 < len(tags) && tags[i+1].Segment == t.Segment
		switch r := &reflections[k]; {
		case twice || t.Segment < r.Segment:
			i++
		case t.Segment > r.Segment || t.Tag != r.Tag:
			k++ // another tag's, of several that the acknowledgement covers
		default:
			list = append(list, [2]*Mark{t, r})
			i, k = i+1, k+1
		}
	}
	return list
}

func compareMarks(a, b Mark) int {
	return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.TimeNS, b.TimeNS))
}

// echoes returns the tags that A saw first, and those that B did.
func echoes(a, b *Tap) (forward, backward []clock.Pair) {
	for _, p := range reflected(a.Tags, b.Reflections) {
		forward = append(forward, clock.Pair{A: p[0].TimeNS, B: p[1].TimeNS, Kind: kind(p[0].Size+p[1].Size, 0, true)})
	}
	for _, p := range reflected(b.Tags, a.Reflections) {
		backward = append(backward, clock.Pair{A: p[1].TimeNS, B: p[0].TimeNS, Kind: kind(p[0].Size+p[1].Size, 0, true)})
	}
	return forward, backward
}
