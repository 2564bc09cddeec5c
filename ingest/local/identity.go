package local

import (
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
)

// ringShift is where the ring is in a block's sequence number, so that the rings of a tap
// are one producer.
const ringShift = 48

// seqBase is the number of a ring's first block. No block has the number 0.
func seqBase(ring int) uint64 { return uint64(ring)<<ringShift | 1 }

// RingOf is the ring that a block with this number came from.
func RingOf(seq uint64) int { return int(seq >> ringShift) }

// Producer identifies what a tap of an instance measures.
func Producer(instance, tap string) uint64 {
	return xxhash.Sum64String(fmt.Sprintf("live %q %q", instance, tap))
}

// incarnation is a new one, above all before it. It is that of a ring without a state,
// whose numbers begin again; rings that begin together have the same.
func (p *Pipeline) incarnation() uint64 {
	p.last = max(p.last+1, uint64(max(p.cfg.Now().UnixNano(), 0)))
	return p.last
}

// Mark is how far the rows of one ring go, as of a round.
type Mark struct {
	Name string // of the tap
	Ring int
	// Of and Session are as in RingStats.
	Of, Session string
	Source      aggregate.Source
	// At is the time (Unix ns) up to which the ring has taken frames in; 0 before the first.
	At int64
	// Closed says that all of its windows have closed: none was open at At.
	Closed bool
}
