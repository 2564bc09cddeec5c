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

// Entry is what a table has of one flow under one key.
type Entry struct {
	Counts
	About
}

// Counts are what was counted of a flow since it was remembered. They fill a cache line.
type Counts struct {
	hash     uint64
	Heavy    uint64 // observations, at least 1
	Bytes    uint64
	Sum      uint64 // of values, saturating
	Min, Max uint64
	place    Place // that was named first
}

// About is what counting does not read of a flow.
type About struct {
	Flow
	Ref  uint32 // what the owner knows the key by
	Paid uint64 // of Heavy, into forgetting others: less than Heavy

	others uint32 // where its other places begin in the table, plus 1
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

	counts  []Counts
	about   []About // by entry, as counts
	places  []otherPlace
	slots   []uint32 // a power of two, at most a quarter full: tagged, 0 in an empty one
	shift   uint8    // 64 - log2(len(slots))
	scratch []uint64
	spare   []otherPlace

	inserted, moved bool   // entries since Find
	touched         uint32 // keeps reads that are made in advance

	// Lacks is how much was taken off every entry. One lacks about as many heavy
	// observations if it was remembered later, and none if Lacks is 0.
	Lacks uint64
	// Dice decide who is remembered by a table that has forgotten others.
	Dice uint64
}

const (
	minSlots = 64
	// MaxBudget bounds Table.Budget.
	MaxBudget = 1 << 20
	// entryBits are those of a slot that hold an entry plus 1. The others hold bits of its
	// hash, so that hardly any entry is looked at in vain.
	entryBits = 21
)

// tagged is what a slot holds of a hash.
func tagged(hash uint64) uint32 { return uint32(hash) << entryBits }

// entryIn is the entry in a slot, none for an empty one.
func entryIn(slot uint32) uint32 { return slot&(1<<entryBits-1) - 1 }

// none is the number of no entry.
const none = math.MaxUint32

// Len is how many entries there are. They are numbered from 0 in the order in which they
// came.
func (t *Table) Len() int { return len(t.counts) }

// Counts are those of an entry. They are the table's.
func (t *Table) Counts(entry int) *Counts { return &t.counts[entry] }

// About is what else there is of an entry. It is the table's.
func (t *Table) About(entry int) *About { return &t.about[entry] }

// Entry is a copy of all that there is of an entry.
func (t *Table) Entry(entry int) Entry { return Entry{t.counts[entry], t.about[entry]} }

// Admits tells whether a flow that is not there is to be remembered now.
func (t *Table) Admits() bool {
	if t.Lacks <= 1 {
		return true
	}
	t.Dice = t.Dice*6364136223846793005 + 1442695040888963407
	hi, _ := bits.Mul64(t.Dice, t.Lacks)
	return hi == 0
}

// Insert adds an entry for the flow of an observation that CountKnown did not know, and
// counts that. It may forget others for it: their number is returned.
func (t *Table) Insert(h *Heavy, ref uint32, f *Flow) (forgotten int) {
	c := Counts{hash: h.Hash, Heavy: 1, Bytes: uint64(h.Bytes), Sum: h.Value, Min: h.Value, Max: h.Value, place: Place{h.Place, 1}}
	return t.insert(&c, About{Flow: *f, Ref: ref})
}

func (t *Table) insert(c *Counts, a About) (forgotten int) {
	if t.Len() >= t.Budget {
		forgotten = t.purge()
		t.moved = true
	}
	if 4*(t.Len()+1) > len(t.slots) {
		t.index(max(minSlots, 2*len(t.slots)))
	}
	if n := t.Len(); n == cap(t.counts) || n == cap(t.about) {
		more := min(max(64, n), t.Budget-n)
		t.counts, t.about = slices.Grow(t.counts, more), slices.Grow(t.about, more)
	}
	t.counts, t.about = append(t.counts, *c), append(t.about, a)
	t.note(t.Len() - 1)
	t.inserted = true
	return forgotten
}

// Merge adds what another table with the same seeds has counted.
func (t *Table) Merge(o *Table) (forgotten int) {
	for i := range o.counts {
		from, about := &o.counts[i], &o.about[i]
		at := t.at(from.hash)
		if at == none {
			c, a := *from, *about
			c.place, a.others = Place{}, 0
			forgotten += t.insert(&c, a)
			at = uint32(t.Len() - 1)
		} else {
			to := &t.counts[at]
			to.Heavy += from.Heavy
			to.Bytes += from.Bytes
			to.Sum = addSat(to.Sum, from.Sum)
			to.Min, to.Max = min(to.Min, from.Min), max(to.Max, from.Max)
			t.about[at].Paid += about.Paid
		}
		o.Places(i, func(p Place) { t.name(at, p) })
	}
	t.Lacks += o.Lacks
	return forgotten
}

// Restore adds an entry as it was in another table, with the key and the places that it
// had, in the order of its entries. It is false for one that no table has: that is there
// already, or above the budget.
func (t *Table) Restore(seeds *Seeds, key uint32, e *Entry, places []Place) bool {
	hash := seeds.of(&e.Flow, key)
	if t.Len() >= t.Budget || e.Paid >= e.Heavy || e.Min > e.Max || t.at(hash) != none {
		return false
	}
	c := Counts{hash: hash, Heavy: e.Heavy, Bytes: e.Bytes, Sum: e.Sum, Min: e.Min, Max: e.Max}
	t.insert(&c, About{Flow: e.Flow, Ref: e.Ref, Paid: e.Paid})
	at := t.Len() - 1
	for i, p := range places {
		// The first one, then the list from its end.
		if i > 0 {
			p = places[len(places)-i]
		}
		t.name(uint32(at), p)
	}
	return true
}

// Reset empties the table. It keeps its memory unless hardly any of it was used.
func (t *Table) Reset() {
	if len(t.slots) > 16*minSlots && t.Len()*16 < len(t.slots) {
		*t = Table{Budget: t.Budget}
		return
	}
	if t.Len() > 0 {
		clear(t.slots)
	}
	t.counts, t.about, t.places, t.Lacks, t.Dice = t.counts[:0], t.about[:0], t.places[:0], 0, 0
}

// Renumber gives entries new references, whose keys may be others than before.
func (t *Table) Renumber(seeds *Seeds, renumbered []uint32, key func(ref uint32) uint32) {
	for i := range t.about {
		a := &t.about[i]
		a.Ref = renumbered[a.Ref]
		t.counts[i].hash = seeds.of(&a.Flow, key(a.Ref))
	}
	t.index(len(t.slots))
}

// index finds all entries through n slots.
func (t *Table) index(n int) {
	if n == len(t.slots) {
		clear(t.slots)
	} else {
		t.slots = make([]uint32, n)
		t.shift = uint8(64 - bits.Len(uint(n-1)))
	}
	for i := range t.counts {
		t.note(i)
	}
}

// note makes an entry be found.
func (t *Table) note(entry int) {
	hash := t.counts[entry].hash
	mask := uint64(len(t.slots) - 1)
	i := hash >> t.shift
	for t.slots[i&mask] != 0 {
		i++
	}
	t.slots[i&mask] = tagged(hash) | uint32(entry+1)
}

// Bytes is how much memory the table takes.
func (t *Table) Bytes() uint64 {
	const countsBytes, aboutBytes, slotBytes, placeBytes = 64, 64, 4, 24
	return uint64(cap(t.counts))*countsBytes + uint64(cap(t.about))*aboutBytes + uint64(len(t.slots))*slotBytes +
		uint64(cap(t.places)+cap(t.spare))*placeBytes + uint64(cap(t.scratch))*8
}
