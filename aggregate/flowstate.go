package aggregate

import (
	"encoding/binary"

	"github.com/csigscope/csigscope/aggregate/flow"
)

// appendFlow appends what a flow is.
func appendFlow(b []byte, f *flow.Flow) []byte {
	b = append(append(b, f.Src[:]...), f.Dst[:]...)
	b = binary.LittleEndian.AppendUint16(b, f.SrcPort)
	b = binary.LittleEndian.AppendUint16(b, f.DstPort)
	return append(b, f.Proto)
}

// flowBytes is the length of an encoded flow.
const flowBytes = 2*16 + 2*2 + 1

func takeFlow(r *stateReader) (f flow.Flow) {
	r.copy(f.Src[:])
	r.copy(f.Dst[:])
	f.SrcPort, f.DstPort, f.Proto = r.u16(), r.u16(), r.u8()
	return f
}

// appendFlows appends the flows that a window remembers.
func appendFlows(b []byte, t *flow.Table, renumbered []uint32) []byte {
	b = binary.AppendUvarint(b, t.Lacks)
	b = binary.LittleEndian.AppendUint64(b, t.Dice)
	b = binary.AppendUvarint(b, uint64(t.Len()))
	for i := range t.Len() {
		e := t.Entry(i)
		b = appendFlow(b, &e.Flow)
		for _, v := range [...]uint64{uint64(renumbered[e.Ref]), e.Heavy, e.Paid, e.Bytes, e.Sum, e.Min, e.Max} {
			b = binary.AppendUvarint(b, v)
		}
		n := 0
		t.Places(i, func(flow.Place) { n++ })
		b = binary.AppendUvarint(b, uint64(n))
		t.Places(i, func(p flow.Place) {
			b = binary.LittleEndian.AppendUint64(b, p.ID)
			b = binary.AppendUvarint(b, p.Heavy)
		})
	}
	return b
}

func restoreFlows(r *stateReader, to *flow.Table, seeds *flow.Seeds, t *seriesTable) {
	to.Lacks, to.Dice = r.uvarint(), r.u64()
	n := r.count(flowBytes + 8)
	var places []flow.Place
	for i := 0; i < n && r.ok(); i++ {
		var e flow.Entry
		e.Flow = takeFlow(r)
		ref := r.upTo(uint64(len(t.list)))
		e.Heavy, e.Paid, e.Bytes, e.Sum, e.Min, e.Max = r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint()
		places = places[:0]
		for n := r.count(9); n > 0; n-- {
			places = append(places, flow.Place{ID: r.u64(), Heavy: r.uvarint()})
		}
		r.check(ref < uint64(len(t.list)))
		if e.Ref = uint32(ref); r.ok() {
			r.check(to.Restore(seeds, t.cellOf(e.Ref), &e, places))
		}
	}
}

// appendBinary appends the row of a block.
func (f *FlowRow) appendBinary(b []byte) []byte {
	b = append(appendFlow(b, &f.Flow), f.Signal, f.Kind)
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
const minFlowRowBytes = flowBytes + 2 + 3*8 + 9

func takeFlowRow(r *stateReader) (f FlowRow) {
	f.Flow = takeFlow(r)
	f.Signal, f.Kind = r.u8(), r.u8()
	f.SrcGroup, f.DstGroup, f.Location = r.u64(), r.u64(), r.u64()
	for _, v := range f.sums() {
		*v = r.uvarint()
	}
	return f
}
