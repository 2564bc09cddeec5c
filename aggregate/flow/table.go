// Package flow counts the heavy observations of flows in bounded memory.
//
// It knows which flows were counted most and how far that can be trusted. It must never know
// windows, signals or clients.
package flow

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// Flow is the endpoints and the protocol of a flow, in the measured direction. IPv4 addresses are
// stored as IPv4-mapped IPv6; ports are 0 where there are none. The zero value is no flow.
type Flow struct {
	Src, Dst         [16]byte
	SrcPort, DstPort uint16
	Proto            uint8
}

// Entry is the counts of one flow under one key since it was inserted.
type Entry struct {
	Flow
	Ref      uint32 // the owner's number of the key
	Heavy    uint64 // observations, at least 1
	Bytes    uint64
	Sum      uint64 // of values, saturating
	Min, Max uint64
	Samples  uint32 // calls of CountMany: if there are any, the counts are estimates
}

// counts are the part of an entry that counting and purging read. They fill a cache line.
type counts struct {
	hash            uint64
	remaining       uint64 // Heavy less what purges subtracted
	bytes, sum      uint64
	least, greatest uint64
	location        LocationCount // the one named first
}

// entryInfo is the rest of an entry.
type entryInfo struct {
	Flow
	ref        uint32
	subtracted uint64
	others     uint32 // start of its list of other locations in the table, plus 1
	samples    uint32
}

// Table remembers at most a budget of entries. A full table forgets the half with the lowest
// counts, and subtracts the highest count among those from all others before it compares them again
// (Misra and Gries, 1982, with the purges of Anderson et al., IMC 2017). The more was subtracted,
// the less often it then inserts a new flow (sticky sampling, Manku and Motwani, 2002), so that
// many small flows cost little. An entry is exact from its insertion on; in a table that has
// forgotten nothing, it is complete. The same counts in the same order leave the same entries.
//
// One goroutine uses it. The zero value is empty; set Budget before use.
type Table struct {
	Budget int // at least 2

	counts    []counts
	info      []entryInfo // by entry, like counts
	locations []otherLocation
	slots     []uint32 // a power of two, at most a quarter full: tagged, 0 in an empty one
	shift     uint8    // 64 - log2(len(slots))
	scratch   []uint64
	spare     []otherLocation

	inserted, moved bool   // entries since Find
	touched         uint32 // keeps prefetching reads alive

	// Undercount is the total that purges subtracted from every entry. An entry that was inserted later
	// lacks about as many heavy observations; none if Undercount is 0.
	Undercount uint64
	rng        uint64 // state of the generator that decides which flows a full table keeps
}

const (
	minSlots = 64
	// MaxBudget bounds Table.Budget.
	MaxBudget = 1 << 20
	// entryBits is the number of bits of a slot that hold an entry plus 1. The others hold bits of
	// its hash, so that hardly any entry is read in vain.
	entryBits = 21
)

// tagged returns the bits of a hash in a slot.
func tagged(hash uint64) uint32 { return uint32(hash) << entryBits }

// entryIn returns the entry in a slot, none for an empty one.
func entryIn(slot uint32) uint32 { return slot&(1<<entryBits-1) - 1 }

// none stands for no entry.
const none = math.MaxUint32

// Len returns the number of entries. They are numbered from 0 in the order of insertion.
func (t *Table) Len() int { return len(t.counts) }

// Entry returns a copy of entry n.
func (t *Table) Entry(n int) Entry {
	c, a := &t.counts[n], &t.info[n]
	return Entry{
		Flow: a.Flow, Ref: a.ref, Heavy: t.Heavy(n), Bytes: c.bytes, Sum: c.sum, Min: c.least, Max: c.greatest,
		Samples: a.samples,
	}
}

// Ref returns the reference of entry n.
func (t *Table) Ref(n int) uint32 { return t.info[n].ref }

// Heavy returns the heavy observations of entry n.
func (t *Table) Heavy(n int) uint64 { return t.counts[n].remaining + t.info[n].subtracted }

// admits reports whether to insert a flow without an entry now, for n of its observations.
func (t *Table) admits(n uint64) bool {
	if t.Undercount <= n {
		return true
	}
	t.rng = t.rng*6364136223846793005 + 1442695040888963407
	hi, _ := bits.Mul64(t.rng, t.Undercount)
	return hi < n
}

// Insert adds an entry for the flow of the observation at which CountKnown stopped, and counts that
// observation. It may forget other entries, and returns their number.
func (t *Table) Insert(h *Heavy, ref uint32, f *Flow) (forgotten int) {
	c := counts{hash: h.Hash, remaining: 1, bytes: uint64(h.Bytes), sum: h.Value, least: h.Value, greatest: h.Value, location: LocationCount{h.Location, 1}}
	return t.insert(&c, &entryInfo{Flow: *f, ref: ref})
}

func (t *Table) insert(c *counts, a *entryInfo) (forgotten int) {
	if t.Len() >= t.Budget {
		forgotten = t.purge()
		t.moved = true
	}
	if 4*(t.Len()+1) > len(t.slots) {
		t.index(max(minSlots, 2*len(t.slots)))
	}
	if n := t.Len(); n == cap(t.counts) || n == cap(t.info) {
		more := min(max(64, n), t.Budget-n)
		t.counts, t.info = slices.Grow(t.counts, more), slices.Grow(t.info, more)
	}
	t.counts, t.info = append(t.counts, *c), append(t.info, *a)
	t.note(t.Len() - 1)
	t.inserted = true
	return forgotten
}

// Merge adds the counts of another table with the same seeds.
func (t *Table) Merge(o *Table) (forgotten int) {
	for i := range o.counts {
		from, of := &o.counts[i], &o.info[i]
		at := t.at(from.hash)
		if at == none {
			c, a := *from, *of
			c.location, a.others = LocationCount{}, 0
			forgotten += t.insert(&c, &a)
			at = uint32(t.Len() - 1)
		} else {
			to := &t.counts[at]
			to.remaining += from.remaining
			to.bytes += from.bytes
			to.sum = AddSat(to.sum, from.sum)
			to.least, to.greatest = min(to.least, from.least), max(to.greatest, from.greatest)
			t.info[at].subtracted += of.subtracted
			t.info[at].samples += of.samples
		}
		o.Locations(i, func(p LocationCount) { t.name(at, p) })
	}
	t.Undercount += o.Undercount
	return forgotten
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
	t.counts, t.info, t.locations, t.Undercount, t.rng = t.counts[:0], t.info[:0], t.locations[:0], 0, 0
}

// Renumber gives entries new references, whose keys may differ from the earlier ones.
func (t *Table) Renumber(seeds *Seeds, renumbered []uint32, key func(ref uint32) uint32) {
	for i := range t.info {
		a := &t.info[i]
		a.ref = renumbered[a.ref]
		t.counts[i].hash = seeds.of(&a.Flow, key(a.ref))
	}
	t.index(len(t.slots))
}

// index rebuilds the index with n slots.
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

// note adds an entry to the index.
func (t *Table) note(entry int) {
	hash := t.counts[entry].hash
	mask := uint64(len(t.slots) - 1)
	i := hash >> t.shift
	for t.slots[i&mask] != 0 {
		i++
	}
	t.slots[i&mask] = tagged(hash) | uint32(entry+1)
}

// Bytes returns the table's memory use in bytes.
func (t *Table) Bytes() uint64 {
	const countsBytes, aboutBytes, slotBytes, locationBytes = 64, 64, 4, 24
	return uint64(cap(t.counts))*countsBytes + uint64(cap(t.info))*aboutBytes + uint64(len(t.slots))*slotBytes +
		uint64(cap(t.locations)+cap(t.spare))*locationBytes + uint64(cap(t.scratch))*8
}

// Seeds make a hash for which nobody can craft colliding traffic. All 64 bits of it identify a
// flow: comparing whole addresses as well would take more time than everything else that is done
// for a flow.
type Seeds [3]uint64

// NewSeeds returns random seeds.
func NewSeeds() *Seeds {
	s := new(Seeds)
	for i := range s {
		s[i] = rand.Uint64()
	}
	return s
}

// Address returns the hash of an address, given as its two halves in little endian.
func (s *Seeds) Address(hi, lo uint64) uint64 {
	return mix(hi^s[0], lo^s[1]) * 0x9e3779b97f4a7c15
}

// Addresses returns the hash of a flow's two addresses.
func (s *Seeds) Addresses(src, dst *[16]byte) uint64 {
	return s.address(src) ^ bits.RotateLeft64(s.address(dst), 32)
}

// Hash returns the hash of a flow under a key. addresses is from Addresses, and the upper half of
// ports is the source port.
func (s *Seeds) Hash(addresses uint64, ports uint32, proto uint8, key uint32) uint64 {
	return mix(addresses^uint64(key)^s[2], (uint64(ports)<<8|uint64(proto))^s[1])
}

// Flow returns the hash of a flow under no key.
func (s *Seeds) Flow(f *Flow) uint64 { return s.of(f, 0) }

func (s *Seeds) of(f *Flow, key uint32) uint64 {
	return s.Hash(s.Addresses(&f.Src, &f.Dst), uint32(f.SrcPort)<<16|uint32(f.DstPort), f.Proto, key)
}

func (s *Seeds) address(a *[16]byte) uint64 {
	return s.Address(binary.LittleEndian.Uint64(a[:8]), binary.LittleEndian.Uint64(a[8:]))
}

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// purge forgets at least half of the entries.
func (t *Table) purge() (forgotten int) {
	least := t.median()
	kept := 0
	for i := range t.counts {
		if t.counts[i].remaining > least {
			t.counts[kept], t.info[kept] = t.counts[i], t.info[i]
			t.counts[kept].remaining -= least
			t.info[kept].subtracted += least
			kept++
		}
	}
	forgotten = t.Len() - kept
	t.counts, t.info = t.counts[:kept], t.info[:kept]
	t.Undercount += least
	t.keepLocations()
	t.index(len(t.slots))
	return forgotten
}

// median returns the median of the entries' remaining counts: at least half of them are not above it.
func (t *Table) median() uint64 {
	// Past the budget most flows have low counts.
	var few [64]int
	for i := range t.counts {
		if remaining := t.counts[i].remaining; remaining < uint64(len(few)) {
			few[remaining]++
		}
	}
	left := (t.Len() + 1) / 2
	for remaining, n := range few {
		if left -= n; left <= 0 {
			return uint64(remaining)
		}
	}
	t.scratch = t.scratch[:0]
	for i := range t.counts {
		t.scratch = append(t.scratch, t.counts[i].remaining)
	}
	slices.Sort(t.scratch)
	return t.scratch[(len(t.scratch)+1)/2-1]
}

// keepLocations drops the locations of forgotten entries. It keeps the order of each entry's list.
func (t *Table) keepLocations() {
	if len(t.locations) == 0 {
		return
	}
	old := t.spare[:0]
	old, t.locations = append(old, t.locations...), t.locations[:0]
	t.spare = old
	for i := range t.info {
		a := &t.info[i]
		at := a.others
		to := &a.others
		for *to = 0; at != 0; at = old[at-1].next {
			t.locations = append(t.locations, otherLocation{LocationCount: old[at-1].LocationCount}) // has room for all
			*to = uint32(len(t.locations))
			to = &t.locations[len(t.locations)-1].next
		}
	}
}
