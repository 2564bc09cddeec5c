package aggregate

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"

	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// FlowRow is what a flow had of the heavy observations of a window, in stored units as
// the rows of its block. A row with the zero Flow is all the rest of its cell, and one of
// OverflowGroup that of all cells without a row: the rows of a signal and kind are
// together exactly those of the block, but for Min and Max. Those of a rest are of the
// whole cell, between which all its values lie.
//
// A flow whose clear observations are of interest is not told apart by them: they are in
// the rest.
type FlowRow struct {
	flow.Flow
	Signal, Kind       uint8
	SrcGroup, DstGroup uint64

	Observations, Bytes uint64
	Measured            uint64 // observations with a value
	Sum, Min, Max       uint64
	Heavy, HeavySum     uint64

	// Location is the one that most of the heavy observations name, the lowest of several;
	// NoLocation without any.
	Location      uint64
	LocationHeavy uint64 // heavy observations that name it
}

// Cell is the cell that the flow is of.
func (f *FlowRow) Cell() CellKey {
	return CellKey{csig.Signal(f.Signal), decode.Kind(f.Kind), GroupID(f.SrcGroup), GroupID(f.DstGroup)}
}

// Add adds what another row counted: of the same flow in another window, or of a flow that
// goes into a rest. Totals saturate. Whose row it is, and its location, stay.
func (f *FlowRow) Add(o *FlowRow) {
	if o.Measured > 0 {
		if f.Measured == 0 || o.Min < f.Min {
			f.Min = o.Min
		}
		f.Max = max(f.Max, o.Max)
	}
	f.Observations = AddSat(f.Observations, o.Observations)
	f.Bytes = AddSat(f.Bytes, o.Bytes)
	f.Measured = AddSat(f.Measured, o.Measured)
	f.Sum = AddSat(f.Sum, o.Sum)
	f.Heavy = AddSat(f.Heavy, o.Heavy)
	f.HeavySum = AddSat(f.HeavySum, o.HeavySum)
}

// AddSums adds a row of the block to a rest.
func (f *FlowRow) AddSums(s *Sums) {
	f.Add(&FlowRow{
		Observations: s.Observations, Bytes: s.Bytes, Measured: s.Measured, Sum: s.Sum, Min: s.Min, Max: s.Max, Heavy: s.Heavy, HeavySum: s.HeavySum,
	})
}

// Subtract takes a flow out of a rest that has it. Sums that are saturated stay what they
// are.
func (f *FlowRow) Subtract(o *FlowRow) {
	f.Observations = subSat(f.Observations, o.Observations)
	f.Bytes = subSat(f.Bytes, o.Bytes)
	f.Measured = subSat(f.Measured, o.Measured)
	f.Sum = subSat(f.Sum, o.Sum)
	f.Heavy = subSat(f.Heavy, o.Heavy)
	f.HeavySum = subSat(f.HeavySum, o.HeavySum)
}

func subSat(a, b uint64) uint64 {
	if a == math.MaxUint64 {
		return a
	}
	return a - min(a, b)
}

// Compare orders rows by their flow.
func (f *FlowRow) Compare(o *flow.Flow) int {
	return cmp.Or(bytes.Compare(f.Src[:], o.Src[:]), bytes.Compare(f.Dst[:], o.Dst[:]),
		cmp.Compare(f.SrcPort, o.SrcPort), cmp.Compare(f.DstPort, o.DstPort), cmp.Compare(f.Proto, o.Proto))
}

// AppendFlow appends what a flow is, for TakeFlow.
func AppendFlow(b []byte, f *flow.Flow) []byte {
	b = append(append(b, f.Src[:]...), f.Dst[:]...)
	b = binary.LittleEndian.AppendUint16(b, f.SrcPort)
	b = binary.LittleEndian.AppendUint16(b, f.DstPort)
	return append(b, f.Proto)
}

// FlowBytes is the length of an encoded flow.
const FlowBytes = 2*16 + 2*2 + 1

// TakeFlow takes what AppendFlow appended.
func TakeFlow(r *StateReader) (f flow.Flow) {
	r.Copy(f.Src[:])
	r.Copy(f.Dst[:])
	f.SrcPort, f.DstPort, f.Proto = r.U16(), r.U16(), r.U8()
	return f
}

// appendBinary appends the row of a block.
func (f *FlowRow) appendBinary(b []byte) []byte {
	b = append(AppendFlow(b, &f.Flow), f.Signal, f.Kind)
	for _, v := range [...]uint64{f.SrcGroup, f.DstGroup, f.Location} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	for _, v := range f.sums() {
		b = binary.AppendUvarint(b, *v)
	}
	return b
}

func (f *FlowRow) sums() [9]*uint64 {
	return [...]*uint64{&f.Observations, &f.Bytes, &f.Measured, &f.Sum, &f.Min, &f.Max, &f.Heavy, &f.HeavySum, &f.LocationHeavy}
}

// minFlowRowBytes is the least that an encoded row takes.
const minFlowRowBytes = FlowBytes + 2 + 3*8 + 9

func takeFlowRow(r *StateReader) (f FlowRow) {
	f.Flow = TakeFlow(r)
	f.Signal, f.Kind = r.U8(), r.U8()
	f.SrcGroup, f.DstGroup, f.Location = r.U64(), r.U64(), r.U64()
	for _, v := range f.sums() {
		*v = r.Uvarint()
	}
	return f
}
