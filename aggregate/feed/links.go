package feed

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/capture"
)

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
