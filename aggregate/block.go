package aggregate

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// GroupID identifies a group. It is stable across configurations and runs, because it derives from
// the group's name, never from its order.
type GroupID uint64

// LocationID identifies a location, as stable as GroupID.
type LocationID uint64

// Reserved identities. Untouched observations and sums over hops have no location; overflow rows
// keep totals exact past a key budget.
const (
	NoLocation       LocationID = 0
	OverflowLocation LocationID = 1
	UnknownGroup     GroupID    = 0
	OverflowGroup    GroupID    = 1
)

// Placeholder returns a text for a group without a known name.
func (id GroupID) Placeholder() string {
	switch id {
	case UnknownGroup:
		return "unknown"
	case OverflowGroup:
		return "overflow"
	}
	return fmt.Sprintf("group %016x", uint64(id))
}

// Placeholder returns a text for a location without a known name.
func (id LocationID) Placeholder() string {
	if id == OverflowLocation {
		return "other locations"
	}
	return fmt.Sprintf("location %016x", uint64(id))
}

// EndOfTime is the end of all times: windows and observations lie in [0, EndOfTime), Unix ns, the
// years 1970 to 2105.
const EndOfTime = int64(136*365+33) * 24 * int64(time.Hour)

// Source identifies the producer of a block. With Block.Seq it gives rows an identity: the same
// rows sent again replace themselves.
type Source struct {
	Producer    uint64 // the measured source: a tap, or a capture file's content
	Incarnation uint64 // of a live tap: the number of its start; of a capture: a hash of the settings
	Epoch       uint64 // hash of the configuration behind the rows
}

// Encoding is the dense number of the tag layout of a row's codes (csig.Layout.Index): codes of
// different layouts never add up.
type Encoding uint8

// Layout returns the tag layout behind the encoding.
func (e Encoding) Layout() csig.Layout { return csig.LayoutAt(int(e)) }

// Block holds the partial aggregates of one window at one resolution, as columns: all slices have
// the same length, except for the distribution's. Values are the signal's stored integers (kbit/s,
// parts per million, nanoseconds, counts). A row is a monoid element: rows with equal keys merge by
// addition, Min and Max by minimum and maximum, and Evidence by its bits.
//
// Trimmed observations count in Observations, Bytes and Trimmed only: their value stands for a part
// of the path. Samples counts the other ones without the weight: one each, whatever number of
// packets it stands for. They have a value if the signal has a table; Sum, Min, Max and the
// distribution cover those values, untouched ones included. A type that neither the profile nor a
// table defines has no value; the distribution holds its raw compact codes. So the number of values
// in a row is the sum of its distribution if csig.Signal.HasValue, and 0 otherwise.
//
// A signal that sums or counts over hops (csig.Aggregation) names no bottleneck: its Location is
// NoLocation, also for heavy observations.
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
	Samples      []uint64
	Unjudged     []uint64 // no threshold decides whether they are heavy
	Bytes        []uint64
	Sum          []uint64
	Min          []uint64 // 0 when nothing has a value
	Max          []uint64
	Untouched    []uint64
	Trimmed      []uint64
	Heavy        []uint64
	HeavySum     []uint64
	Evidence     []uint8 // Evidence of any of the observations; not part of the key

	// The distribution of row i is DistCode[DistEnd[i-1]:DistEnd[i]] (from 0 for the
	// first row), buckets of csig.DistIndex ascending, with their counts.
	DistCode  []uint16
	DistCount []uint64
	DistEnd   []uint32

	// More is set if further blocks of the producer's part have more rows of this window: one with many
	// rows may come in several, and a reload closes windows that have not ended.
	More bool

	// Flows are the flows with the most heavy observations, and the totals of all others, if the
	// shard's FlowLimits ask for them and the window is at least 1 s long.
	Flows []FlowRow
}

// PartShift is the position of the producer's part in Block.Seq. Each part, such as a ring of a
// tap, numbers its blocks separately.
const PartShift = 48

// Part returns the part of the producer that wrote the block.
func (b *Block) Part() uint64 { return b.Seq >> PartShift }

// LiveResolution is the length of the windows that live views keep, that collectors share, and that
// have provisional rows.
const LiveResolution = time.Second

// MinFineResolution is the length of the shortest windows that live views keep: shorter ones would
// end more often than taps pass on frames.
const MinFineResolution = 10 * time.Millisecond

// FineResolution returns the length of the short windows that live views keep beside those of
// LiveResolution, and that also have provisional rows: the longest of the ascending resolutions
// below LiveResolution. It is 0 if there is none, or if that is below MinFineResolution.
func FineResolution(resolutions []time.Duration) (fine time.Duration) {
	for _, r := range resolutions {
		if r >= MinFineResolution && r < LiveResolution {
			fine = r
		}
	}
	return fine
}

// Provisional holds the rows that one part of a producer, such as a ring of a tap, has of a window of LiveResolution or
// FineResolution that has ended and can still change. A later one of the part replaces it, and the
// part's final Block of the window ends it. Of its Seq only the part counts, and it has no flows.
//
// It is a type of its own so that logs, spools and stores, which are Sinks, cannot take one.
type Provisional Block

// ProvisionalSink takes provisional rows, which belong to the caller again when WriteProvisional
// returns. It never blocks, and several goroutines call it.
type ProvisionalSink interface {
	WriteProvisional(*Provisional)
}

// Len returns the number of rows.
func (b *Block) Len() int { return len(b.Signal) }

// Clone returns a copy that shares no memory with b; empty columns are nil in it.
func (b *Block) Clone() *Block {
	c := *b
	for _, column := range []*[]uint8{&c.Signal, &c.Kind, &c.Encoding, &c.Evidence} {
		*column = append([]uint8(nil), *column...)
	}
	for _, column := range []*[]uint64{
		&c.SrcGroup, &c.DstGroup, &c.Location, &c.Observations, &c.Samples, &c.Unjudged, &c.Bytes, &c.Sum, &c.Min, &c.Max,
		&c.Untouched, &c.Trimmed, &c.Heavy, &c.HeavySum, &c.DistCount,
	} {
		*column = append([]uint64(nil), *column...)
	}
	c.DistCode = append([]uint16(nil), c.DistCode...)
	c.DistEnd = append([]uint32(nil), c.DistEnd...)
	c.Flows = append([]FlowRow(nil), c.Flows...)
	return &c
}

// Reset empties the block's columns and keeps their memory.
func (b *Block) Reset() {
	b.Signal, b.Kind, b.Encoding = b.Signal[:0], b.Kind[:0], b.Encoding[:0]
	b.SrcGroup, b.DstGroup, b.Location = b.SrcGroup[:0], b.DstGroup[:0], b.Location[:0]
	b.Observations, b.Samples, b.Unjudged, b.Bytes = b.Observations[:0], b.Samples[:0], b.Unjudged[:0], b.Bytes[:0]
	b.Sum, b.Min, b.Max = b.Sum[:0], b.Min[:0], b.Max[:0]
	b.Untouched, b.Trimmed = b.Untouched[:0], b.Trimmed[:0]
	b.Heavy, b.HeavySum, b.Evidence = b.Heavy[:0], b.HeavySum[:0], b.Evidence[:0]
	b.DistCode, b.DistCount, b.DistEnd = b.DistCode[:0], b.DistCount[:0], b.DistEnd[:0]
	b.Flows = b.Flows[:0]
}

// Grow makes room in an empty block for rows and the buckets of their distributions, and for somewhat
// more, so that blocks of growing windows seldom need new memory.
func (b *Block) Grow(rows, buckets int) {
	for _, column := range []*[]uint8{&b.Signal, &b.Kind, &b.Encoding, &b.Evidence} {
		*column = roomFor(*column, rows)
	}
	for _, column := range []*[]uint64{
		&b.SrcGroup, &b.DstGroup, &b.Location, &b.Observations, &b.Samples, &b.Unjudged, &b.Bytes,
		&b.Sum, &b.Min, &b.Max, &b.Untouched, &b.Trimmed, &b.Heavy, &b.HeavySum,
	} {
		*column = roomFor(*column, rows)
	}
	b.DistEnd = roomFor(b.DistEnd, rows)
	b.DistCode, b.DistCount = roomFor(b.DistCode, buckets), roomFor(b.DistCount, buckets)
}

// roomFor is slices.Grow, but copies nothing of an empty slice's memory.
func roomFor[T any](s []T, n int) []T {
	if n <= cap(s) || len(s) > 0 {
		return slices.Grow(s, n)
	}
	return make([]T, 0, n+n/8)
}

// AppendSums adds the sums of a row; the caller adds its key and distribution.
func (b *Block) AppendSums(s *Sums) {
	b.Observations = append(b.Observations, s.Observations)
	b.Samples = append(b.Samples, s.Samples)
	b.Unjudged = append(b.Unjudged, s.Unjudged)
	b.Bytes = append(b.Bytes, s.Bytes)
	b.Sum = append(b.Sum, s.Sum)
	b.Min = append(b.Min, s.Min)
	b.Max = append(b.Max, s.Max)
	b.Untouched = append(b.Untouched, s.Untouched)
	b.Trimmed = append(b.Trimmed, s.Trimmed)
	b.Heavy = append(b.Heavy, s.Heavy)
	b.HeavySum = append(b.HeavySum, s.HeavySum)
	b.Evidence = append(b.Evidence, uint8(s.Evidence))
}

// Dist gathers the distribution of one row. The zero value is empty.
type Dist struct {
	counts [csig.DistIndexes]uint64
	used   [(csig.DistIndexes + 63) / 64]uint64 // a bit for each bucket that was counted
}

// Add counts n values in a bucket of csig.DistIndex.
func (d *Dist) Add(bucket uint32, n uint64) {
	d.counts[bucket] = AddSat(d.counts[bucket], n)
	d.used[bucket/64] |= 1 << (bucket % 64)
}

// AppendDist moves a distribution to the last row, and leaves it empty.
func (b *Block) AppendDist(d *Dist) {
	for i, used := range d.used {
		for ; used != 0; used &= used - 1 {
			bucket := i*64 + bits.TrailingZeros64(used)
			b.DistCode = append(b.DistCode, uint16(bucket))
			b.DistCount = append(b.DistCount, d.counts[bucket])
			d.counts[bucket] = 0
		}
		d.used[i] = 0
	}
	b.DistEnd = append(b.DistEnd, uint32(len(b.DistCode)))
}

// AppendCounts is AppendDist for the codes of a compact tag: bit c of used is set if code c was
// counted, counts[c] times weight.
func (b *Block) AppendCounts(used uint32, counts *[32]uint8, weight uint64) {
	at, n := len(b.DistCode), bits.OnesCount32(used)
	b.DistCode, b.DistCount = slices.Grow(b.DistCode, n)[:at+n], slices.Grow(b.DistCount, n)[:at+n]
	codes, times := b.DistCode[at:], b.DistCount[at:]
	for i := range min(len(codes), len(times)) {
		c := bits.TrailingZeros32(used)
		used &= used - 1
		codes[i], times[i] = uint16(c), uint64(counts[c&31])*weight
	}
	b.DistEnd = append(b.DistEnd, uint32(len(b.DistCode)))
}

// Cell returns the cell of row i.
func (b *Block) Cell(i int) CellKey {
	return CellKey{csig.Signal(b.Signal[i]), decode.Kind(b.Kind[i]), GroupID(b.SrcGroup[i]), GroupID(b.DstGroup[i])}
}

// Dist returns the distribution of row i: buckets of csig.DistIndex and their counts, which
// belong to the block.
func (b *Block) Dist(i int) (codes []uint16, counts []uint64) {
	from := uint32(0)
	if i > 0 {
		from = b.DistEnd[i-1]
	}
	return b.DistCode[from:b.DistEnd[i]], b.DistCount[from:b.DistEnd[i]]
}

// Sums returns the sums of row i. Every code in its distribution is a value, except for unknown
// types, whose raw codes are kept.
func (b *Block) Sums(i int) Sums {
	s := Sums{
		Observations: b.Observations[i], Samples: b.Samples[i], Unjudged: b.Unjudged[i], Bytes: b.Bytes[i], Sum: b.Sum[i], Min: b.Min[i], Max: b.Max[i],
		Untouched: b.Untouched[i], Trimmed: b.Trimmed[i], Heavy: b.Heavy[i], HeavySum: b.HeavySum[i],
		Evidence: Evidence(b.Evidence[i]),
	}
	if csig.Signal(b.Signal[i]).HasValue() {
		_, counts := b.Dist(i)
		for _, n := range counts {
			s.Measured = AddSat(s.Measured, n)
		}
	}
	return s
}

// FlowRow holds the heavy observations of a flow in a window, in stored units like the rows of its
// block. A row with the zero Flow is the rest of its cell, and one of OverflowGroup is the rest of
// all cells without a row: the rows of a signal and kind add up exactly to those of the block,
// except for Min and Max. Those of a rest cover the whole cell, and so bound all its values.
//
// The clear observations of a flow are in the rest.
type FlowRow struct {
	flow.Flow
	Signal, Kind       uint8
	SrcGroup, DstGroup uint64

	Observations, Bytes uint64
	Measured            uint64 // observations with a value
	Sum, Min, Max       uint64
	Heavy, HeavySum     uint64

	// Location is the one that most of the heavy observations name, the lowest of equals;
	// NoLocation without any.
	Location      uint64
	LocationHeavy uint64 // heavy observations that name it

	// Sampled is the number of heavy observations that were sampled, from which the row's counts are
	// estimated; 0 if each was counted.
	Sampled uint64
}

// Cell returns the cell of the flow.
func (f *FlowRow) Cell() CellKey {
	return CellKey{csig.Signal(f.Signal), decode.Kind(f.Kind), GroupID(f.SrcGroup), GroupID(f.DstGroup)}
}

// Add adds another row's counts: of the same flow in another window, or of a flow that moves into a
// rest. Totals saturate. The row's flow and location stay.
func (f *FlowRow) Add(o *FlowRow) {
	f.AddSums(&Sums{
		Observations: o.Observations, Bytes: o.Bytes, Measured: o.Measured, Sum: o.Sum, Min: o.Min, Max: o.Max, Heavy: o.Heavy, HeavySum: o.HeavySum,
	})
	f.Sampled = AddSat(f.Sampled, o.Sampled)
}

// AddSums adds a row of the block to a rest.
func (f *FlowRow) AddSums(s *Sums) {
	if s.Measured > 0 {
		if f.Measured == 0 || s.Min < f.Min {
			f.Min = s.Min
		}
		f.Max = max(f.Max, s.Max)
	}
	f.Observations = AddSat(f.Observations, s.Observations)
	f.Bytes = AddSat(f.Bytes, s.Bytes)
	f.Measured = AddSat(f.Measured, s.Measured)
	f.Sum = AddSat(f.Sum, s.Sum)
	f.Heavy = AddSat(f.Heavy, s.Heavy)
	f.HeavySum = AddSat(f.HeavySum, s.HeavySum)
}

// Subtract removes a flow's counts from a rest that includes them. Saturated sums stay unchanged. Min and
// Max stay bounds of the rest.
func (f *FlowRow) Subtract(o *FlowRow) {
	f.Observations = subSat(f.Observations, o.Observations)
	f.Bytes = subSat(f.Bytes, o.Bytes)
	f.Measured = subSat(f.Measured, o.Measured)
	f.Sum = subSat(f.Sum, o.Sum)
	f.Heavy = subSat(f.Heavy, o.Heavy)
	f.HeavySum = subSat(f.HeavySum, o.HeavySum)
	if f.Measured == 0 {
		f.Min, f.Max = 0, 0
	}
}

func subSat(a, b uint64) uint64 {
	if a == math.MaxUint64 {
		return a
	}
	return a - min(a, b)
}

// Compare orders rows by flow.
func (f *FlowRow) Compare(o *flow.Flow) int {
	return cmp.Or(bytes.Compare(f.Src[:], o.Src[:]), bytes.Compare(f.Dst[:], o.Dst[:]),
		cmp.Compare(f.SrcPort, o.SrcPort), cmp.Compare(f.DstPort, o.DstPort), cmp.Compare(f.Proto, o.Proto))
}
