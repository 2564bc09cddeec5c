package window

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// appendState appends the flows that are remembered, with the seeds that they are told
// apart by.
func (m *repeats) appendState(b []byte) []byte {
	for _, seed := range m.seeds {
		b = binary.LittleEndian.AppendUint64(b, seed)
	}
	used := 0
	for i := range m.sets {
		if m.sets[i][0].flow != 0 {
			used++
		}
	}
	b = binary.AppendUvarint(b, uint64(used))
	for i := range m.sets {
		set, n := &m.sets[i], 0
		for n < repeatWays && set[n].flow != 0 {
			n++
		}
		if n == 0 {
			continue
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(i))
		b = append(b, uint8(n))
		for _, f := range set[:n] {
			b = binary.LittleEndian.AppendUint64(b, f.flow)
			b = binary.LittleEndian.AppendUint64(b, f.said)
		}
	}
	return b
}

func (m *repeats) restore(r *aggregate.StateReader) {
	for i := range m.seeds {
		m.seeds[i] = r.U64()
	}
	used := r.Count(2 + 1 + 16)
	for range used {
		at, n := r.U16(), r.U8()
		r.Check(at < repeatSets && n >= 1 && n <= repeatWays)
		if !r.Ok() {
			return
		}
		for i := range n {
			f := repeatFlow{flow: r.U64(), said: r.U64()}
			r.Check(f.flow != 0)
			m.sets[at][i] = f
		}
	}
}

// appendState appends the series of this life, and gives their numbers in it by their
// numbers here: those of earlier lives change nothing and are left out.
func (t *seriesTable) appendState(b []byte) (_ []byte, renumbered []uint32) {
	renumbered = make([]uint32, len(t.list))
	b = binary.AppendUvarint(b, uint64(t.current))
	next := uint32(0)
	for i := range t.list {
		s := &t.list[i]
		if s.life != t.life {
			continue
		}
		renumbered[i] = next
		next++
		b = binary.LittleEndian.AppendUint64(b, uint64(s.src))
		b = binary.LittleEndian.AppendUint64(b, uint64(s.dst))
		b = binary.LittleEndian.AppendUint64(b, uint64(s.loc))
		b = binary.AppendUvarint(b, uint64(s.heavyLo))
		b = binary.AppendUvarint(b, uint64(s.heavyHi))
		b = append(b, s.traits, uint8(s.kind), uint8(s.class))
		b = aggregate.AppendFlag(b, s.overflow)
	}
	return b, renumbered
}

func (t *seriesTable) restore(r *aggregate.StateReader) {
	n := r.Count(3*8 + 2 + 4)
	for i := 0; i < n && r.Ok(); i++ {
		k := seriesKey{src: aggregate.GroupID(r.U64()), dst: aggregate.GroupID(r.U64()), loc: aggregate.LocationID(r.U64())}
		k.heavyLo, k.heavyHi = uint32(r.UpTo(math.MaxUint32)), uint32(r.UpTo(math.MaxUint32))
		k.traits, k.kind, k.class, k.overflow = r.U8(), decode.Kind(r.U8()), class(r.U8()), r.Flag()
		_, twice := t.ids[k]
		r.Check(!twice && k.traits < numTraits && k.class >= classValue && k.class <= classCount &&
			(k.kind == decode.Tag || k.kind == decode.Reflection) && (k.overflow || t.own < t.maxKeys))
		if !r.Ok() {
			return
		}
		r.Check(t.traits[k.traits].wide || k.heavyHi < 32)
		if r.Ok() {
			t.insert(k)
		}
	}
}

// appendState appends an open window. The builder lends its buffers.
func (w *window) appendState(b []byte, renumbered []uint32, rows *rowBuilder) []byte {
	b = binary.AppendUvarint(b, uint64(w.start))
	b = binary.AppendUvarint(b, uint64(w.due))
	b = aggregate.AppendFlag(b, w.delta)
	b = binary.AppendUvarint(b, uint64(len(w.compact)))
	for i := range w.compact {
		e := &w.compact[i]
		b = binary.AppendUvarint(b, uint64(renumbered[e.series]))
		b = binary.AppendUvarint(b, e.bytes)
		b = binary.LittleEndian.AppendUint32(b, e.used)
		for used := e.used; used != 0; used &= used - 1 {
			b = binary.AppendUvarint(b, uint64(e.hist[bits.TrailingZeros32(used)&31]))
		}
	}
	b = binary.AppendUvarint(b, uint64(len(w.wide)))
	for i := range w.wide {
		e := &w.wide[i]
		for _, v := range [...]uint64{uint64(renumbered[e.series]), uint64(e.count), uint64(e.heavy), e.bytes, e.sum, e.min, e.max, e.heavySum} {
			b = binary.AppendUvarint(b, v)
		}
	}
	rows.sortCells(w)
	b = binary.AppendUvarint(b, uint64(w.dist.n))
	last := uint64(0)
	for _, c := range rows.cells {
		b = binary.AppendUvarint(b, c>>32-last)
		b = binary.AppendUvarint(b, c&math.MaxUint32)
		last = c >> 32
	}
	return appendFlows(b, &w.flows, renumbered)
}

// restore opens the windows of a state whose series are in the table.
func (l *level) restore(r *aggregate.StateReader, t *seriesTable, seeds *flow.Seeds) {
	l.refs = make([]entryRef, len(t.list))
	first := r.Varint()
	r.Check(first >= -1 && first <= maxTime)
	last := int64(-1)
	for n := r.Count(16); n > 0 && r.Ok(); n-- {
		start, due, delta := r.Time(), r.Time(), r.Flag()
		r.Check(start > last && start <= maxTime && start%l.res == 0 && (!delta || l.deltas < maxDeltas))
		if !r.Ok() {
			return
		}
		last = start
		l.begin(start, due, delta).restore(r, t, seeds)
	}
	l.first = first
}

func (w *window) restore(r *aggregate.StateReader, t *seriesTable, seeds *flow.Seeds) {
	for n := r.Count(7); n > 0 && r.Ok(); n-- {
		e := w.entryOf(r, t, false)
		if e < 0 {
			return
		}
		w.compact[e].restore(r)
	}
	for n := r.Count(8); n > 0 && r.Ok(); n-- {
		e := w.entryOf(r, t, true)
		if e < 0 {
			return
		}
		w.wide[e].restore(r)
	}
	limit := uint64(len(w.wide)) << distIndexBits
	key := uint64(0)
	for n := r.Count(2); n > 0 && r.Ok(); n-- {
		key += r.UpTo(limit)
		count := r.UpTo(math.MaxUint32)
		r.Check(key < limit && key&(1<<distIndexBits-1) < csig.DistIndexes && count > 0)
		if !r.Ok() {
			return
		}
		slot, twice := w.dist.at(uint32(key))
		r.Check(!twice)
		*slot = uint32(count)
	}
	restoreFlows(r, &w.flows, seeds, t)
}

// entryOf adds the entry of the series that comes next, which has to be wide or not;
// -1 when it is not there. Of several entries of a series the last one is not sealed.
func (w *window) entryOf(r *aggregate.StateReader, t *seriesTable, wide bool) int {
	id := r.Uvarint()
	r.Check(id < uint64(len(t.list)) && len(w.wide) < 1<<(32-distIndexBits)-1)
	if !r.Ok() || t.list[id].wide != wide {
		r.Fail()
		return -1
	}
	e := w.add(uint32(id), &t.list[id])
	slot, _ := w.index.at(uint32(id))
	*slot = e
	return int(e)
}

// maxEntryCount is where a count of an entry seals it.
const maxEntryCount = math.MaxUint32 - 1

func (e *compactEntry) restore(r *aggregate.StateReader) {
	e.bytes, e.used = r.Uvarint(), r.U32()
	for used := e.used; used != 0 && r.Ok(); used &= used - 1 {
		n := r.UpTo(maxEntryCount)
		r.Check(n > 0)
		e.hist[bits.TrailingZeros32(used)&31] = uint32(n)
	}
}

func (e *wideEntry) restore(r *aggregate.StateReader) {
	e.count, e.heavy = uint32(r.UpTo(maxEntryCount)), uint32(r.UpTo(maxEntryCount))
	e.bytes, e.sum, e.min, e.max, e.heavySum = r.Uvarint(), r.Uvarint(), r.Uvarint(), r.Uvarint(), r.Uvarint()
}
