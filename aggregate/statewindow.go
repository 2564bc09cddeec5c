package aggregate

import (
	"encoding/binary"
	"math"
	"math/bits"

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

func (m *repeats) restore(r *stateReader) {
	for i := range m.seeds {
		m.seeds[i] = r.u64()
	}
	used := r.count(2 + 1 + 16)
	for range used {
		at, n := r.u16(), r.u8()
		r.check(at < repeatSets && n >= 1 && n <= repeatWays)
		if !r.ok() {
			return
		}
		for i := range n {
			f := repeatFlow{flow: r.u64(), said: r.u64()}
			r.check(f.flow != 0)
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
		b = appendFlag(b, s.overflow)
	}
	return b, renumbered
}

func (t *seriesTable) restore(r *stateReader) {
	n := r.count(3*8 + 2 + 4)
	for i := 0; i < n && r.ok(); i++ {
		k := seriesKey{src: GroupID(r.u64()), dst: GroupID(r.u64()), loc: LocationID(r.u64())}
		k.heavyLo, k.heavyHi = uint32(r.upTo(math.MaxUint32)), uint32(r.upTo(math.MaxUint32))
		k.traits, k.kind, k.class, k.overflow = r.u8(), decode.Kind(r.u8()), class(r.u8()), r.flag()
		_, twice := t.ids[k]
		r.check(!twice && k.traits < numTraits && k.class >= classValue && k.class <= classCount &&
			(k.kind == decode.Tag || k.kind == decode.Reflection) && (k.overflow || t.own < t.maxKeys))
		if !r.ok() {
			return
		}
		r.check(t.traits[k.traits].wide || k.heavyHi < 32)
		if r.ok() {
			t.insert(k)
		}
	}
}

// appendState appends an open window. The builder lends its buffers.
func (w *window) appendState(b []byte, renumbered []uint32, rows *rowBuilder) []byte {
	b = binary.AppendUvarint(b, uint64(w.start))
	b = binary.AppendUvarint(b, uint64(w.due))
	b = appendFlag(b, w.delta)
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
func (l *level) restore(r *stateReader, t *seriesTable, seeds *flow.Seeds) {
	l.refs = make([]entryRef, len(t.list))
	first := r.varint()
	r.check(first >= -1 && first <= maxTime)
	last := int64(-1)
	for n := r.count(16); n > 0 && r.ok(); n-- {
		start, due, delta := r.time(), r.time(), r.flag()
		r.check(start > last && start <= maxTime && start%l.res == 0 && (!delta || l.deltas < maxDeltas))
		if !r.ok() {
			return
		}
		last = start
		l.begin(start, due, delta).restore(r, t, seeds)
	}
	l.first = first
}

func (w *window) restore(r *stateReader, t *seriesTable, seeds *flow.Seeds) {
	for n := r.count(7); n > 0 && r.ok(); n-- {
		e := w.entryOf(r, t, false)
		if e < 0 {
			return
		}
		w.compact[e].restore(r)
	}
	for n := r.count(8); n > 0 && r.ok(); n-- {
		e := w.entryOf(r, t, true)
		if e < 0 {
			return
		}
		w.wide[e].restore(r)
	}
	limit := uint64(len(w.wide)) << distIndexBits
	key := uint64(0)
	for n := r.count(2); n > 0 && r.ok(); n-- {
		key += r.upTo(limit)
		count := r.upTo(math.MaxUint32)
		r.check(key < limit && key&(1<<distIndexBits-1) < csig.DistIndexes && count > 0)
		if !r.ok() {
			return
		}
		slot, twice := w.dist.at(uint32(key))
		r.check(!twice)
		*slot = uint32(count)
	}
	restoreFlows(r, &w.flows, seeds, t)
}

// entryOf adds the entry of the series that comes next, which has to be wide or not;
// -1 when it is not there. Of several entries of a series the last one is not sealed.
func (w *window) entryOf(r *stateReader, t *seriesTable, wide bool) int {
	id := r.uvarint()
	r.check(id < uint64(len(t.list)) && len(w.wide) < 1<<(32-distIndexBits)-1)
	if !r.ok() || t.list[id].wide != wide {
		r.fail()
		return -1
	}
	e := w.add(uint32(id), &t.list[id])
	slot, _ := w.index.at(uint32(id))
	*slot = e
	return int(e)
}

// maxEntryCount is where a count of an entry seals it.
const maxEntryCount = math.MaxUint32 - 1

func (e *compactEntry) restore(r *stateReader) {
	e.bytes, e.used = r.uvarint(), r.u32()
	for used := e.used; used != 0 && r.ok(); used &= used - 1 {
		n := r.upTo(maxEntryCount)
		r.check(n > 0)
		e.hist[bits.TrailingZeros32(used)&31] = uint32(n)
	}
}

func (e *wideEntry) restore(r *stateReader) {
	e.count, e.heavy = uint32(r.upTo(maxEntryCount)), uint32(r.upTo(maxEntryCount))
	e.bytes, e.sum, e.min, e.max, e.heavySum = r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint()
}
