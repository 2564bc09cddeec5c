// Package flow counts the heavy observations of flows in bounded memory.
//
// It knows which flows were counted most and how far that can be trusted. It must never
// know windows, signals or who asks.
package flow

import (
	"math"
	"math/bits"
	"slices"
)

// Flow is who sent what to whom, in the measured direction. IPv4 addresses are held as
// IPv4-mapped IPv6; ports are 0 where there are none. The zero value is no flow.
type Flow struct {
	Src, Dst         [16]byte
	SrcPort, DstPort uint16
	Proto            uint8
}

// Entry is what was counted of one flow in one part since it was remembered.
type Entry struct {
	hash uint64

	Heavy    uint64 // observations, at least 1
	Bytes    uint64
	Sum      uint64 // of values, saturating
	Min, Max uint64
	Paid     uint64 // of Heavy, into forgetting others: less than Heavy

	// Part tells apart what is to be counted apart in one flow.
	Part uint32
	Flow
}

// Count counts a heavy observation.
func (e *Entry) Count(bytes uint32, value uint64) {
	e.Heavy++
	e.Bytes += uint64(bytes)
	e.Sum = addSat(e.Sum, value)
	e.Min, e.Max = min(e.Min, value), max(e.Max, value)
}

func (e *Entry) merge(o *Entry) {
	e.Heavy += o.Heavy
	e.Paid += o.Paid
	e.Bytes += o.Bytes
	e.Sum = addSat(e.Sum, o.Sum)
	e.Min, e.Max = min(e.Min, o.Min), max(e.Max, o.Max)
}

func addSat(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// Table remembers at most a budget of entries. A table that is full forgets the half that
// was counted least, and takes what the best of those had off all others before it
// compares them again: what was counted more than 2/budget of all has an entry in the end
// (Misra and Gries, 1982, with the purges of Anderson et al., IMC 2017). What an entry
// holds is exact from when it was remembered: of a table that has forgotten nothing, all
// of it. The same counts in the same order leave the same entries.
//
// It is used by one goroutine. The zero value is empty; Budget is to be set before use.
type Table struct {
	Budget int // at least 2

	entries []Entry
	slots   []slot // a power of two, at most half full
	shift   uint8  // 64 - log2(len(slots))
	scratch []uint64

	// Lacks is how many heavy observations an entry may lack at most, and how many a flow
	// that was forgotten may have had.
	Lacks uint64
}

type slot struct {
	hash  uint64
	entry uint32 // plus 1, 0 for an empty slot
}

const minSlots = 64

// Entries are those remembered, in the order in which they came. They are the table's.
func (t *Table) Entries() []Entry { return t.entries }

// Touch reads where the entry of a hash would be found, so that At finds it in the
// processor's cache.
func (t *Table) Touch(hash uint64) uint64 {
	if i := hash >> t.shift; i < uint64(len(t.slots)) {
		return t.slots[i].hash
	}
	return 0
}

// At is the entry of a hash, nil where there is none. It is valid until the next Insert.
func (t *Table) At(hash uint64) *Entry {
	if len(t.slots) == 0 {
		return nil
	}
	mask := uint64(len(t.slots) - 1)
	for i := hash >> t.shift; ; i++ {
		s := &t.slots[i&mask]
		if s.entry == 0 {
			return nil
		}
		if s.hash == hash {
			return &t.entries[s.entry-1]
		}
	}
}

// Insert adds an entry that At does not have, with nothing counted, for which it may
// forget others: their number is returned. It is valid until the next Insert.
func (t *Table) Insert(hash uint64, part uint32, f *Flow) (e *Entry, forgotten int) {
	if len(t.entries) >= t.Budget {
		forgotten = t.purge()
	}
	if 2*(len(t.entries)+1) > len(t.slots) {
		t.index(max(minSlots, 2*len(t.slots)))
	}
	if n := len(t.entries); n == cap(t.entries) {
		t.entries = slices.Grow(t.entries, min(max(64, n), t.Budget-n))
	}
	t.entries = append(t.entries, Entry{hash: hash, Min: math.MaxUint64, Part: part, Flow: *f})
	t.place(len(t.entries) - 1)
	return &t.entries[len(t.entries)-1], forgotten
}

// Merge adds what another table with the same seeds has counted.
func (t *Table) Merge(o *Table) (forgotten int) {
	for i := range o.entries {
		from := &o.entries[i]
		to := t.At(from.hash)
		if to == nil {
			var n int
			to, n = t.Insert(from.hash, from.Part, &from.Flow)
			forgotten += n
		}
		to.merge(from)
	}
	t.Lacks += o.Lacks
	return forgotten
}

// Restore adds an entry as it was in another table, in the order of its Entries. It is
// false for one that no table has: that is there already, or above the budget.
func (t *Table) Restore(seeds *Seeds, e *Entry) bool {
	hash := seeds.Hash(&e.Src, &e.Dst, e.tail(), e.Part)
	if len(t.entries) >= t.Budget || e.Paid >= e.Heavy || e.Min > e.Max || t.At(hash) != nil {
		return false
	}
	to, _ := t.Insert(hash, e.Part, &e.Flow)
	*to = *e
	to.hash = hash
	return true
}

// Reset empties the table. It keeps its memory unless hardly any of it was used.
func (t *Table) Reset() {
	if len(t.slots) > 16*minSlots && len(t.entries)*16 < len(t.slots) {
		*t = Table{Budget: t.Budget}
		return
	}
	if len(t.entries) > 0 {
		clear(t.slots)
	}
	t.entries, t.Lacks = t.entries[:0], 0
}

// Renumber gives the parts new numbers.
func (t *Table) Renumber(seeds *Seeds, parts []uint32) {
	for i := range t.entries {
		e := &t.entries[i]
		e.Part = parts[e.Part]
		e.hash = seeds.Hash(&e.Src, &e.Dst, e.tail(), e.Part)
	}
	t.index(len(t.slots))
}

// purge forgets at least half of the entries.
func (t *Table) purge() (forgotten int) {
	least := t.median()
	kept := t.entries[:0]
	for i := range t.entries {
		e := &t.entries[i]
		if e.Heavy-e.Paid > least {
			e.Paid += least
			kept = append(kept, *e)
		}
	}
	forgotten = len(t.entries) - len(kept)
	t.entries = kept
	t.Lacks += least
	t.index(len(t.slots))
	return forgotten
}

// median is that of what entries have not paid: at least half of them have no more.
func (t *Table) median() uint64 {
	// Past the budget most flows were counted a few times.
	var few [64]int
	half := (len(t.entries) + 1) / 2
	for i := range t.entries {
		if score := t.entries[i].Heavy - t.entries[i].Paid; score < uint64(len(few)) {
			few[score]++
		}
	}
	for score, n := range few {
		if half -= n; half <= 0 {
			return uint64(score)
		}
	}
	t.scratch = t.scratch[:0]
	for i := range t.entries {
		t.scratch = append(t.scratch, t.entries[i].Heavy-t.entries[i].Paid)
	}
	slices.Sort(t.scratch)
	return t.scratch[(len(t.scratch)+1)/2-1]
}

// index finds all entries through n slots.
func (t *Table) index(n int) {
	if n == len(t.slots) {
		clear(t.slots)
	} else {
		t.slots = make([]slot, n)
		t.shift = uint8(64 - bits.Len(uint(n-1)))
	}
	for i := range t.entries {
		t.place(i)
	}
}

func (t *Table) place(entry int) {
	hash := t.entries[entry].hash
	mask := uint64(len(t.slots) - 1)
	i := hash >> t.shift
	for t.slots[i&mask].entry != 0 {
		i++
	}
	t.slots[i&mask] = slot{hash, uint32(entry + 1)}
}

// Bytes is how much memory the table takes.
func (t *Table) Bytes() uint64 {
	const entryBytes, slotBytes = 104, 16
	return uint64(cap(t.entries))*entryBytes + uint64(len(t.slots))*slotBytes + uint64(cap(t.scratch))*8
}
