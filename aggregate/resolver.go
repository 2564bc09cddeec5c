// Package aggregate is the vocabulary of results: blocks and their rows, cells, states, the
// mode of the bottleneck, and the identities of groups, locations and producers.
//
// It knows what rows mean and how they add up. It must never know how they are computed,
// SQL or sockets: who takes blocks is behind Sink, and what addresses and locator metadata
// stand for is behind Resolver.
package aggregate

import (
	"context"
	"net/netip"

	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode/csig"
)

// Resolver maps addresses to groups and locator metadata to locations. Shards call
// it when they meet a new key, not for each packet, from several goroutines.
type Resolver interface {
	// Group is the group of an address, UnknownGroup if no group holds it. A shard
	// remembers the answer.
	Group(netip.Addr) GroupID
	// Locate resolves the locator metadata of a tag to a location: one port where
	// the layout or the path from src to dst forces it, otherwise the smallest set
	// of ports that the evidence allows. capacity is the speed in kbit/s that all
	// candidates share, or 0. src and dst are the ends of the measured path, invalid
	// when the frame has no addresses.
	Locate(l csig.Layout, t uint8, lm uint16, src, dst netip.Addr) (id LocationID, capacity uint64)
}

// Classifier is what a Resolver may be besides. It says which addresses the resolver
// does not tell apart, so that shards resolve them once.
type Classifier interface {
	// Classes are the address's class as a source and as a destination. Addresses of
	// one group and class can stand for each other: Locate answers the same for them,
	// in that role.
	Classes(netip.Addr) (src, dst uint64)
	// AddressBits are how many leading bits of an IPv4 and of an IPv6 address say its group and
	// its classes. They never change.
	AddressBits() (v4, v6 int)
}

// Forgetter is what a Resolver may be besides. It forgets groups that no rows name for long,
// and may find later a group for an address that had none. Shards call it for windows and
// batches, not for each packet.
type Forgetter interface {
	// InRows tells it that rows of a window that starts at a time, Unix ns, name these
	// groups. It keeps nothing of the slice.
	InRows(start int64, groups []uint64)
	// Revision changes when addresses may have another group than before: shards resolve
	// theirs again.
	Revision() uint64
}

// Flow is who sends what to whom.
type Flow = flow.Flow

// Wayfinder is what a Resolver may be besides: it has evidence of the paths that flows take.
// Shards call it for flows and keys that they meet, not for each packet.
type Wayfinder interface {
	// HasWays reports whether there is any; it never changes.
	HasWays() bool
	// Way numbers what is known of the path of a flow at a time, Unix ns: 0 for nothing. The
	// answer is the same at all times from from on and before until.
	Way(f *Flow, ns int64) (way uint32, from, until int64)
	// See notes that packets of a flow passed a place, by Tap.Stand, at a time. It is called once
	// a second for a flow.
	See(stand uint32, f *Flow, ns int64)
	// LocateOn is Locate for a packet on a way that Way returned. by is the evidence of the way
	// where it changes what Locate returns, else 0.
	LocateOn(way uint32, l csig.Layout, t uint8, lm uint16, src, dst netip.Addr) (id LocationID, capacity uint64, by Evidence)
}

// Sink takes closed windows. The block belongs to the caller again when WriteBlock
// returns, so a Sink copies what it keeps. It is called from several goroutines.
type Sink interface {
	WriteBlock(context.Context, *Block) error
}

// Sinks hands every block to all of its members.
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
