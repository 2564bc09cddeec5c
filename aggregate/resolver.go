// Package aggregate is the vocabulary of results: blocks and their rows, cells, states, the mode of
// the bottleneck, and the identities of groups, locations and producers.
//
// It knows the meaning of rows and how they add up. It must never know how they are computed, SQL
// or sockets: consumers of blocks are behind Sink, and the meaning of addresses and locator
// metadata is behind Resolver.
package aggregate

import (
	"context"
	"net/netip"

	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode/csig"
)

// Resolver maps addresses to groups and locator metadata to locations. Shards call it for new keys,
// not for each packet, from several goroutines.
type Resolver interface {
	// Group returns the group of an address, UnknownGroup if no group holds it. A shard remembers
	// the result.
	Group(netip.Addr) GroupID
	// Locate resolves the locator metadata of a tag to a location: one port where the locator layout
	// or the path from src to dst forces it, otherwise the smallest set of ports that the evidence allows.
	// capacity is the speed in kbit/s that all candidates share, or 0. src and dst are the
	// endpoints of the measured path, invalid if the frame has no addresses.
	Locate(l csig.Layout, t uint8, lm uint16, src, dst netip.Addr) (id LocationID, capacity uint64)
}

// Classifier is an optional interface of a Resolver. It groups addresses that the resolver treats
// alike, so that shards resolve them once.
type Classifier interface {
	// Classes returns the address's class as a source and as a destination. Addresses of one group
	// and class are interchangeable: Locate returns the same for them, in that role.
	Classes(netip.Addr) (src, dst uint64)
	// AddressBits returns the numbers of leading bits of an IPv4 and of an IPv6 address that
	// determine its group and classes. They never change.
	AddressBits() (v4, v6 int)
}

// Partitioner is an optional interface of a Resolver that lists the prefixes which tell addresses
// apart, for programs that resolve addresses elsewhere.
type Partitioner interface {
	// Regions returns the prefixes that decide the group and the classes of an address: the longest one
	// that contains it applies. An address in none of them has UnknownGroup and the classes of an
	// invalid address. fixed is false if groups are made as addresses appear: then the first AddressBits
	// bits of an address are its group.
	Regions() (list []Region, fixed bool)
	// Capacities returns the speeds, in kbit/s, that Locate may return in addition to 0.
	Capacities() []uint64
}

// Region is the addresses whose longest prefix among those of a Partitioner is Prefix. Address is one of
// them.
type Region struct {
	Prefix  netip.Prefix
	Address netip.Addr
}

// Forgetter is an optional interface of a Resolver that forgets groups which no rows have named for
// long, and may later find a group for an address that had none. Shards call it for windows and
// batches, not for each packet.
type Forgetter interface {
	// InRows records that rows of a window name these groups; start is the window's start, Unix ns.
	// It does not keep the slice.
	InRows(start int64, groups []uint64)
	// Revision changes when addresses may have got another group: shards then resolve theirs again.
	Revision() uint64
}

// Flow is the endpoints and the protocol of a flow.
type Flow = flow.Flow

// PathResolver is an optional interface of a Resolver that has evidence of the paths of flows.
// Shards call it for new flows and keys, not for each packet.
type PathResolver interface {
	// HasWays reports whether there is any; the result never changes.
	HasWays() bool
	// Way returns a number for the known path of a flow at ns, Unix ns: 0 if nothing is known. The
	// result is the same at all times in [from, until).
	Way(f *Flow, ns int64) (way uint32, from, until int64)
	// RecordSighting records that packets of a flow passed an observation point, a
	// window.Tap.ObservationPoint, at ns, Unix ns. It is called once a second for a flow.
	RecordSighting(point uint32, f *Flow, ns int64)
	// LocateOn is Locate for a packet on a way returned by Way. by is the way's evidence if it
	// changes the result of Locate, else 0.
	LocateOn(way uint32, l csig.Layout, t uint8, lm uint16, src, dst netip.Addr) (id LocationID, capacity uint64, by Evidence)
}

// Sink takes closed windows. The block belongs to the caller again when WriteBlock returns, so a
// Sink copies the data that it keeps. Several goroutines call it.
type Sink interface {
	WriteBlock(context.Context, *Block) error
}

// Sinks passes every block to all of its members.
type Sinks []Sink

// WriteBlock implements Sink.
func (s Sinks) WriteBlock(ctx context.Context, b *Block) error {
	for _, sink := range s {
		if err := sink.WriteBlock(ctx, b); err != nil {
			return err
		}
	}
	return nil
}
