package window

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Tally counts the frames of a Stream. The zero value is ready.
type Tally struct {
	Packets, WireBytes uint64
	Timed              uint64                    // packets that have a time in 1970 to 2105
	First, Last        int64                     // times of the earliest and latest of these, Unix ns; 0 without any
	Frames             [decode.NumReasons]uint64 // by decoding result
	Found              EncodingCounts            // observations by kind, layout and type
}

// count adds packets.
func (t *Tally) count(frames []capture.Frame) {
	bytes, timed, first, last := uint64(0), uint64(0), int64(math.MaxInt64), int64(math.MinInt64)
	for i := range frames {
		f := &frames[i]
		bytes += uint64(f.WireLen)
		if !f.NoTime && f.TimeNS >= 0 && f.TimeNS <= maxTime {
			timed++
			first, last = min(first, f.TimeNS), max(last, f.TimeNS)
		}
	}
	t.Packets += uint64(len(frames))
	t.WireBytes += bytes
	if timed > 0 {
		t.between(timed, first, last)
	}
}

// between adds the times of n packets.
func (t *Tally) between(n uint64, first, last int64) {
	if t.Timed == 0 {
		t.First, t.Last = first, last
	}
	t.Timed += n
	t.First, t.Last = min(t.First, first), max(t.Last, last)
}

// Merge adds the counts of another Tally.
func (t *Tally) Merge(o *Tally) {
	t.Packets += o.Packets
	t.WireBytes += o.WireBytes
	if o.Timed > 0 {
		t.between(o.Timed, o.First, o.Last)
	}
	for i, n := range o.Frames {
		t.Frames[i] += n
	}
	t.Found.Merge(&o.Found)
}

// EncodingCounts counts decoded observations by kind, tag layout and signal type.
type EncodingCounts [2][csig.NumLayouts][numTypes]uint64

// numTypes is the number of signal types that the wider layouts can carry.
const numTypes = 16

func (f *EncodingCounts) add(o *decode.Observation) {
	f[(o.Kind-decode.Tag)&1][o.Tag.Layout.Index()&(csig.NumLayouts-1)][o.Tag.T&(numTypes-1)]++
}

// Merge adds other EncodingCounts.
func (f *EncodingCounts) Merge(other *EncodingCounts) {
	for k := range f {
		for l := range f[k] {
			for t := range f[k][l] {
				f[k][l][t] += other[k][l][t]
			}
		}
	}
}

// Kinds returns the number of observations by kind: tags, reflections.
func (f *EncodingCounts) Kinds() (n [2]uint64) {
	for k := range f {
		for _, types := range f[k] {
			for _, count := range types {
				n[k] += count
			}
		}
	}
	return n
}

// EncodingCount is one nonzero count in EncodingCounts.
type EncodingCount struct {
	Kind   decode.Kind
	Layout csig.Layout
	Signal csig.Signal
	Count  uint64
}

// List returns the nonzero counts, by kind, layout and signal type.
func (f *EncodingCounts) List() (counts []EncodingCount) {
	for k := range f {
		for l := range f[k] {
			for t, n := range f[k][l] {
				if n > 0 {
					layout := csig.LayoutAt(l)
					counts = append(counts, EncodingCount{decode.Kind(k) + decode.Tag, layout, csig.SignalOf(layout.Profile, uint8(t)), n})
				}
			}
		}
	}
	return counts
}

// ErrLinkType is wrapped by the error for captures without a readable packet, because the decoder
// knows none of their link types.
var ErrLinkType = errors.New("expected Ethernet (link type 1), Linux SLL (113) or Linux SLL2 (276)")

// UnreadableLink is an unreadable link type in a capture.
type UnreadableLink struct {
	File string
	Link capture.LinkType
}

// String returns text such as: raw IP (link type 101) in "tun.pcap".
func (u UnreadableLink) String() string { return fmt.Sprintf("%s in %q", u.Link.Numbered(), u.File) }

// UnreadableLinks counts packets of unreadable link types. The zero value is ready.
type UnreadableLinks map[UnreadableLink]uint64

// Add counts n packets.
func (l *UnreadableLinks) Add(u UnreadableLink, n uint64) {
	if *l == nil {
		*l = UnreadableLinks{}
	}
	(*l)[u] += n
}

// Merge adds the counts of other UnreadableLinks.
func (l *UnreadableLinks) Merge(other UnreadableLinks) {
	for u, n := range other {
		l.Add(u, n)
	}
}

// Total returns the number of packets.
func (l UnreadableLinks) Total() (n uint64) {
	for _, packets := range l {
		n += packets
	}
	return n
}

// List calls f for each link type of each file, ordered by name and number.
func (l UnreadableLinks) List(f func(u UnreadableLink, n uint64)) {
	for _, u := range slices.SortedFunc(maps.Keys(l), func(a, b UnreadableLink) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Link, b.Link))
	}) {
		f(u, l[u])
	}
}

// Refused returns the error (ErrLinkType) for captures without any readable packet; nil if l is
// empty.
func (l UnreadableLinks) Refused() error {
	if len(l) == 0 {
		return nil
	}
	var found []string
	l.List(func(u UnreadableLink, n uint64) { found = append(found, fmt.Sprintf("%d of %s", n, u)) })
	return fmt.Errorf("no packet can be read: %s: %w", strings.Join(found, ", "), ErrLinkType)
}

// MarshalJSON implements json.Marshaler: packets by the name of their link type.
func (l UnreadableLinks) MarshalJSON() ([]byte, error) {
	names := make(map[string]uint64, len(l))
	l.List(func(u UnreadableLink, n uint64) { names[u.Link.String()] += n })
	b, err := json.Marshal(names)
	if err != nil {
		return nil, fmt.Errorf("encode link types: %w", err)
	}
	return b, nil
}
