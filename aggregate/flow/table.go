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

// Entry is what was counted of one flow under one key since it was remembered. What is
// counted fills a cache line.
type Entry struct {
	hash     uint64
	Heavy    uint64 // observations, at least 1
	Bytes    uint64
	Sum      uint64 // of values, saturating
	Min, Max uint64
	place    Place // that was named first

	others uint32 // where its other places begin in the table, plus 1
	Ref    uint32 // what the owner knows the key by
	Paid   uint64 // of Heavy, into forgetting others: less than Heavy
	Flow
	_ [8]byte
}

// Place is how many heavy observations name a place.
type Place struct {
	ID    uint64
	Heavy uint64
}

// otherPlace is a place in the list of those of an entry.
type otherPlace struct {
	Place
	next uint32 // plus 1
}

// placesPerEntry bounds the places besides the first ones, as a multiple of the budget:
// what names others after that counts for the flow alone.
const placesPerEntry = 2

func addSat(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// Table remembers at most a budget of entries. A table that is full forgets the half that
// was counted least, and takes what the best of those had off all others before it
// compares them again (Misra and Gries, 1982, with the purges of Anderson et al., IMC
// 2017). From then on a flow is remembered the less often the more was taken off (sticky
// sampling, Manku and Motwani, 2002), so that many small flows cost little. What an entry
// holds is exact from when it was remembered: of a table that has forgotten nothing, all
// of it. The same counts in the same order leave the same entries.
//
// It is used by one goroutine. The zero value is empty; Budget is to be set before use.
type Table struct {
	Budget int // at least 2

	entries []Entry
	places  []otherPlace
	slots   []uint64 // a power of two, at most a quarter full: the hash, its low bits the entry plus 1
	shift   uint8    // 64 - log2(len(slots))
	scratch []uint64
	spare   []otherPlace

	// Lacks is how much was taken off every entry. One lacks about as many heavy
	// observations if it was remembered later, and none if Lacks is 0.
	Lacks uint64
	// Dice decide who is remembered by a table that has forgotten others.
	Dice uint64
}

const (
	minSlots = 64
	// entryBits are those of a slot that hold an entry.
	entryBits = 24
	// MaxBudget bounds Table.Budget.
	MaxBudget = 1 << 20
)

// Entries are those remembered, in the order in which they came. They are the table's.
func (t *Table) Entries() []Entry { return t.entries }

// Touch reads where the entry of a hash would be found, so that At finds it in the
// processor's cache.
func (t *Table) Touch(hash uint64) uint64 {
	if i := hash >> t.shift; i < uint64(len(t.slots)) {
		return t.slots[i]
	}
	return 0
}

// TouchEntry does the same for what At finds.
func (t *Table) TouchEntry(hash uint64) uint64 {
	if e := t.At(hash); e != nil {
		return e.Heavy
	}
	return 0
}

// At is the entry of a hash, nil where there is none. It is valid until the next Insert.
func (t *Table) At(hash uint64) *Entry {
	mask := uint64(len(t.slots)) - 1
	for i := hash >> t.shift; i&mask < uint64(len(t.slots)); i++ {
		s := t.slots[i&mask]
		if s == 0 {
			return nil
		}
		if (s^hash)>>entryBits == 0 {
			if e := &t.entries[s&(1<<entryBits-1)-1]; e.hash == hash {
				return e
			}
		}
	}
	return nil
}

// Admits tells whether a flow that At does not have is to be remembered now.
func (t *Table) Admits() bool {
	if t.Lacks <= 1 {
		return true
	}
	t.Dice = t.Dice*6364136223846793005 + 1442695040888963407
	return (t.Dice>>32)%t.Lacks == 0
}

// Insert adds an entry that At does not have, with nothing counted, for which it may
// forget others: their number is returned. It is valid until the next Insert.
func (t *Table) Insert(hash uint64, ref uint32, f *Flow) (e *Entry, forgotten int) {
	if len(t.entries) >= t.Budget {
		forgotten = t.purge()
	}
	if 4*(len(t.entries)+1) > len(t.slots) {
		t.index(max(minSlots, 2*len(t.slots)))
	}
	if n := len(t.entries); n == cap(t.entries) {
		t.entries = slices.Grow(t.entries, min(max(64, n), t.Budget-n))
	}
	t.entries = append(t.entries, Entry{hash: hash, Min: math.MaxUint64, Ref: ref, Flow: *f})
	t.find(len(t.entries) - 1)
	return &t.entries[len(t.entries)-1], forgotten
}

// Count counts a heavy observation of an entry that names a place.
func (t *Table) Count(e *Entry, place uint64, bytes uint32, value uint64) {
	e.Heavy++
	e.Bytes += uint64(bytes)
	e.Sum = addSat(e.Sum, value)
	e.Min, e.Max = min(e.Min, value), max(e.Max, value)
	if e.place.ID == place {
		e.place.Heavy++
		return
	}
	t.name(e, Place{place, 1})
}

// name adds to a place of the entry.
func (t *Table) name(e *Entry, p Place) {
	if e.place.Heavy == 0 || e.place.ID == p.ID {
		e.place = Place{p.ID, e.place.Heavy + p.Heavy}
		return
	}
	for at := e.others; at != 0; at = t.places[at-1].next {
		if o := &t.places[at-1]; o.ID == p.ID {
			o.Heavy += p.Heavy
			return
		}
	}
	if len(t.places) < placesPerEntry*t.Budget {
		t.places = append(t.places, otherPlace{p, e.others})
		e.others = uint32(len(t.places))
	}
}

// Places calls f for each place of the entry.
func (t *Table) Places(e *Entry, f func(Place)) {
	if e.place.Heavy > 0 {
		f(e.place)
	}
	for at := e.others; at != 0; at = t.places[at-1].next {
		f(t.places[at-1].Place)
	}
}

// Merge adds what another table with the same seeds has counted.
func (t *Table) Merge(o *Table) (forgotten int) {
	for i := range o.entries {
		from := &o.entries[i]
		to := t.At(from.hash)
		if to == nil {
			var n int
			to, n = t.Insert(from.hash, from.Ref, &from.Flow)
			forgotten += n
		}
		to.Heavy += from.Heavy
		to.Paid += from.Paid
		to.Bytes += from.Bytes
		to.Sum = addSat(to.Sum, from.Sum)
		to.Min, to.Max = min(to.Min, from.Min), max(to.Max, from.Max)
		o.Places(from, func(p Place) { t.name(to, p) })
	}
	t.Lacks += o.Lacks
	return forgotten
}

// Restore adds an entry as it was in another table, with the key and the places that it
// had, in the order of its Entries. It is false for one that no table has: that is there
// already, or above the budget.
func (t *Table) Restore(seeds *Seeds, key uint32, e *Entry, places []Place) bool {
	hash := seeds.of(&e.Flow, key)
	if len(t.entries) >= t.Budget || e.Paid >= e.Heavy || e.Min > e.Max || t.At(hash) != nil {
		return false
	}
	to, _ := t.Insert(hash, e.Ref, &e.Flow)
	*to = Entry{Heavy: e.Heavy, Bytes: e.Bytes, Sum: e.Sum, Min: e.Min, Max: e.Max, Ref: e.Ref, Paid: e.Paid, hash: hash, Flow: e.Flow}
	for i, p := range places {
		// The first one, then the list from its end.
		if i > 0 {
			p = places[len(places)-i]
		}
		t.name(to, p)
	}
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
	t.entries, t.places, t.Lacks, t.Dice = t.entries[:0], t.places[:0], 0, 0
}

// Renumber gives entries new references, whose keys may be others than before.
func (t *Table) Renumber(seeds *Seeds, renumbered []uint32, key func(ref uint32) uint32) {
	for i := range t.entries {
		e := &t.entries[i]
		e.Ref = renumbered[e.Ref]
		e.hash = seeds.of(&e.Flow, key(e.Ref))
	}
	t.index(len(t.slots))
}

// index finds all entries through n slots.
func (t *Table) index(n int) {
	if n == len(t.slots) {
		clear(t.slots)
	} else {
		t.slots = make([]uint64, n)
		t.shift = uint8(64 - bits.Len(uint(n-1)))
	}
	for i := range t.entries {
		t.find(i)
	}
}

// find makes an entry be found.
func (t *Table) find(entry int) {
	hash := t.entries[entry].hash
	mask := uint64(len(t.slots) - 1)
	i := hash >> t.shift
	for t.slots[i&mask] != 0 {
		i++
	}
	t.slots[i&mask] = hash&^(1<<entryBits-1) | uint64(entry+1)
}

// Bytes is how much memory the table takes.
func (t *Table) Bytes() uint64 {
	const entryBytes, slotBytes, placeBytes = 128, 8, 24
	return uint64(cap(t.entries))*entryBytes + uint64(len(t.slots))*slotBytes + uint64(cap(t.places)+cap(t.spare))*placeBytes + uint64(cap(t.scratch))*8
}
