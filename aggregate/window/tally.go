package window

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Tally is what a Stream counts of frames. The zero value is ready.
type Tally struct {
	Packets, WireBytes uint64
	First, Last        int64                     // times of the earliest and latest packet, Unix ns; 0 without any
	Frames             [decode.NumReasons]uint64 // by what decoding them came to
	Found              Found                     // observations, by what they are
}

// count takes a packet in.
func (t *Tally) count(f *capture.Frame) {
	t.Packets++
	t.WireBytes += uint64(f.WireLen)
	if !f.NoTime {
		t.between(f.TimeNS, f.TimeNS)
	}
}

// between takes the times of packets in.
func (t *Tally) between(first, last int64) {
	if t.Last == 0 {
		t.First = first
	}
	t.First, t.Last = min(t.First, first), max(t.Last, last)
}

// Merge adds what another Stream counted.
func (t *Tally) Merge(o *Tally) {
	t.Packets += o.Packets
	t.WireBytes += o.WireBytes
	if o.Last != 0 {
		t.between(o.First, o.Last)
	}
	for i, n := range o.Frames {
		t.Frames[i] += n
	}
	t.Found.Merge(&o.Found)
}

// Found counts observations by kind, tag layout and signal type, as they were decoded.
type Found [2][csig.NumLayouts][numTypes]uint64

// numTypes is the number of signal types that the wider layouts can carry.
const numTypes = 16

func (f *Found) add(o *decode.Observation) {
	f[o.Kind-decode.Tag][o.Tag.Layout.Index()][o.Tag.T&(numTypes-1)]++
}

// Merge adds what another Stream found.
func (f *Found) Merge(other *Found) {
	for k := range f {
		for l := range f[k] {
			for t := range f[k][l] {
				f[k][l][t] += other[k][l][t]
			}
		}
	}
}

// Kinds are the observations by kind: tags, reflections.
func (f *Found) Kinds() (n [2]uint64) {
	for k := range f {
		for _, types := range f[k] {
			for _, count := range types {
				n[k] += count
			}
		}
	}
	return n
}

// FoundCount is one count of Found that is not zero.
type FoundCount struct {
	Kind   decode.Kind
	Layout csig.Layout
	Signal csig.Signal
	Count  uint64
}

// List is what was found, by kind, layout and signal type.
func (f *Found) List() (counts []FoundCount) {
	for k := range f {
		for l := range f[k] {
			for t, n := range f[k][l] {
				if n > 0 {
					layout := csig.LayoutAt(l)
					counts = append(counts, FoundCount{decode.Kind(k) + decode.Tag, layout, csig.SignalOf(layout.Profile, uint8(t)), n})
				}
			}
		}
	}
	return counts
}

// ErrLinkType is wrapped by the error for captures of which no packet could be read,
// since all are of link types that the decoder does not know.
var ErrLinkType = errors.New("no packet is of a link type that is read: expected Ethernet, Linux SLL or Linux SLL2")

// Links counts packets of link types that are not read. The zero value is ready.
type Links map[capture.LinkType]uint64

// Add counts n packets of the link type.
func (l *Links) Add(link capture.LinkType, n uint64) {
	if *l == nil {
		*l = Links{}
	}
	(*l)[link] += n
}

// Merge adds what another counted.
func (l *Links) Merge(other Links) {
	for link, n := range other {
		l.Add(link, n)
	}
}

// Total is the number of packets.
func (l Links) Total() (n uint64) {
	for _, packets := range l {
		n += packets
	}
	return n
}

// List calls f for each link type, in the order of their numbers.
func (l Links) List(f func(link capture.LinkType, n uint64)) {
	for _, link := range slices.Sorted(maps.Keys(l)) {
		f(link, l[link])
	}
}

// Refused is an error (ErrLinkType) where all of the packets are of link types that are not read.
func (l Links) Refused(packets uint64) error {
	if packets == 0 || l.Total() < packets {
		return nil
	}
	var found []string
	l.List(func(link capture.LinkType, n uint64) { found = append(found, fmt.Sprintf("%d of %s", n, link)) })
	return fmt.Errorf("%w, found %s", ErrLinkType, strings.Join(found, ", "))
}

// MarshalJSON implements json.Marshaler: packets by the name of their link type.
func (l Links) MarshalJSON() ([]byte, error) {
	names := make(map[string]uint64, len(l))
	l.List(func(link capture.LinkType, n uint64) { names[link.String()] += n })
	b, err := json.Marshal(names)
	if err != nil {
		return nil, fmt.Errorf("encode link types: %w", err)
	}
	return b, nil
}
