package window

import (
	"encoding/binary"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
)

// appendFlows appends the flows that a window remembers.
func appendFlows(b []byte, t *flow.Table, renumbered []uint32) []byte {
	b = binary.AppendUvarint(b, t.Lacks)
	b = binary.LittleEndian.AppendUint64(b, t.Dice)
	b = binary.AppendUvarint(b, uint64(t.Len()))
	for i := range t.Len() {
		e := t.Entry(i)
		b = aggregate.AppendFlow(b, &e.Flow)
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

func restoreFlows(r *aggregate.StateReader, to *flow.Table, seeds *flow.Seeds, t *seriesTable) {
	to.Lacks, to.Dice = r.Uvarint(), r.U64()
	n := r.Count(aggregate.FlowBytes + 8)
	var places []flow.Place
	for i := 0; i < n && r.Ok(); i++ {
		var e flow.Entry
		e.Flow = aggregate.TakeFlow(r)
		ref := r.UpTo(uint64(len(t.list)))
		e.Heavy, e.Paid, e.Bytes, e.Sum, e.Min, e.Max = r.Uvarint(), r.Uvarint(), r.Uvarint(), r.Uvarint(), r.Uvarint(), r.Uvarint()
		places = places[:0]
		for n := r.Count(9); n > 0; n-- {
			places = append(places, flow.Place{ID: r.U64(), Heavy: r.Uvarint()})
		}
		r.Check(ref < uint64(len(t.list)))
		if e.Ref = uint32(ref); r.Ok() {
			r.Check(to.Restore(seeds, t.cellOf(e.Ref), &e, places))
		}
	}
}
