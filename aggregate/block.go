package aggregate

import "github.com/csigscope/csigscope/decode/csig"

// GroupID identifies a group. It is stable across configurations and runs, being
// derived from the group's name, never from order.
type GroupID uint64

// LocationID identifies a location, as stable as GroupID.
type LocationID uint64

// Reserved identities. Untouched observations and sums over hops have no location;
// overflow rows keep totals exact past a key budget.
const (
	NoLocation       LocationID = 0
	OverflowLocation LocationID = 1
	UnknownGroup     GroupID    = 0
	OverflowGroup    GroupID    = 1
)

// Source says who produced a block. Together with Block.Seq it makes rows
// identities: the same rows sent again replace themselves.
type Source struct {
	Producer    uint64 // what was measured: a tap, or a capture file's content
	Incarnation uint64 // one life of the producer under one set of pipeline settings
	Epoch       uint64 // hash of the configuration the rows were made under
}

// Encoding is the dense number of the tag layout that a row's codes belong to
// (csig.Layout.Index): codes of different layouts never add up.
type Encoding uint8

// Layout is the tag layout behind the encoding.
func (e Encoding) Layout() csig.Layout { return csig.LayoutAt(int(e)) }

// Block holds the partial aggregates of one window at one resolution, as columns:
// all slices have the same length, but for the distribution's. Values are the
// signal's stored integers (kbit/s, parts per million, nanoseconds, counts). A row is a
// monoid element: rows with equal keys merge by addition, Min and Max by minimum
// and maximum.
//
// Trimmed observations count in Observations, Bytes and Trimmed only: their value
// stands for a part of the path. All others have a value if the signal has a table;
// Sum, Min, Max and the distribution are over those, untouched ones included. A type
// that neither the profile nor a table defines has no value; its compact codes are kept
// in the distribution as they came. So the number of values in a row is the sum of its
// distribution if csig.Signal.HasValue, and 0 otherwise.
//
// A signal that sums or counts over hops (csig.Aggregation) names no bottleneck: its
// Location is NoLocation, in heavy observations too.
type Block struct {
	Source
	Seq         uint64
	Resolution  int64 // length of the window, ns
	WindowStart int64 // Unix ns, a multiple of Resolution

	Signal   []uint8 // csig.Signal
	Kind     []uint8 // decode.Kind
	Encoding []uint8 // Encoding
	SrcGroup []uint64
	DstGroup []uint64
	Location []uint64

	Observations []uint64
	Bytes        []uint64
	Sum          []uint64
	Min          []uint64 // 0 when nothing has a value
	Max          []uint64
	Untouched    []uint64
	Trimmed      []uint64
	Heavy        []uint64
	HeavySum     []uint64

	// The distribution of row i is DistCode[DistEnd[i-1]:DistEnd[i]] (from 0 for the
	// first row), buckets of csig.DistIndex ascending, with their counts.
	DistCode  []uint16
	DistCount []uint64
	DistEnd   []uint32

	// Flows are the flows with the most heavy observations, and what all others come to,
	// where the shard's FlowLimits ask for them and the window is of 1 s or longer.
	Flows []FlowRow
}

// Len is the number of rows.
func (b *Block) Len() int { return len(b.Signal) }

// Clone is a copy that shares no memory with b; empty columns are nil in it.
func (b *Block) Clone() *Block {
	c := *b
	for _, column := range []*[]uint8{&c.Signal, &c.Kind, &c.Encoding} {
		*column = append([]uint8(nil), *column...)
	}
	for _, column := range []*[]uint64{
		&c.SrcGroup, &c.DstGroup, &c.Location, &c.Observations, &c.Bytes, &c.Sum, &c.Min, &c.Max,
		&c.Untouched, &c.Trimmed, &c.Heavy, &c.HeavySum, &c.DistCount,
	} {
		*column = append([]uint64(nil), *column...)
	}
	c.DistCode = append([]uint16(nil), c.DistCode...)
	c.DistEnd = append([]uint32(nil), c.DistEnd...)
	c.Flows = append([]FlowRow(nil), c.Flows...)
	return &c
}
