package flow

import (
	"math"
	"math/bits"
)

// Heavy is a heavy observation of a flow. Hash is from Seeds.Hash, Location is the one that the
// observation names, and Value is in stored integers.
type Heavy struct {
	Hash, Location, Value uint64
	Bytes                 uint32
	entry                 uint32 // set by Find
}

// LocationCount is a location with the number of heavy observations that name it.
type LocationCount struct {
	ID    uint64
	Heavy uint64
}

// otherLocation is an element of an entry's list of locations after the first one.
type otherLocation struct {
	LocationCount
	next uint32 // index of the next element, plus 1; 0 at the end
}

// locationsPerEntry bounds the locations of all entries, except each entry's first one, as a
// multiple of the budget. Observations that name further locations count for the flow and for no
// location.
const locationsPerEntry = 2

// Find looks up the entries of observations, for CountKnown. Its loops do little, so that the memory
// accesses of several observations overlap.
func (t *Table) Find(list []Heavy) {
	t.inserted, t.moved = false, false
	slots, counts, shift := t.slots, t.counts, t.shift&63
	mask := uint64(len(slots)) - 1
	if mask >= uint64(len(slots)) {
		for i := range list {
			list[i].entry = none
		}
		return
	}
	touched := uint32(0)
	for i := range list {
		touched |= slots[list[i].Hash>>shift&mask]
	}
	t.touched |= touched
	for i := range list {
		h := &list[i]
		s := slots[h.Hash>>shift&mask]
		n := entryIn(s)
		if s^tagged(h.Hash) >= 1<<entryBits || uint64(n) >= uint64(len(counts)) || counts[n].hash != h.Hash {
			n = none
			if s != 0 {
				n = t.at(h.Hash)
			}
		}
		h.entry = n
	}
}

// at returns the number of the entry for a hash, or none.
func (t *Table) at(hash uint64) uint32 {
	slots, tag := t.slots, tagged(hash)
	mask := uint64(len(slots)) - 1
	for i := hash >> t.shift; i&mask < uint64(len(slots)) && slots[i&mask] != 0; i++ {
		s := slots[i&mask]
		if n := entryIn(s); s^tag < 1<<entryBits && t.counts[n].hash == hash {
			return n
		}
	}
	return none
}

// CountKnown counts observations that were given to Find, up to the first one whose flow has no
// entry and has to be inserted now. It returns that one's index, or len(list) if there is none.
func (t *Table) CountKnown(list []Heavy) int {
	if t.moved {
		t.Find(list)
	}
	counts := t.counts
	for i := range list {
		h := &list[i]
		if uint64(h.entry) >= uint64(len(counts)) {
			if t.inserted {
				h.entry = t.at(h.Hash)
			}
			if h.entry == none {
				if t.admits(1) {
					return i
				}
				continue
			}
		}
		c := &counts[h.entry]
		c.remaining++
		c.bytes += uint64(h.Bytes)
		c.sum = AddSat(c.sum, h.Value)
		c.least, c.greatest = min(c.least, h.Value), max(c.greatest, h.Value)
		if c.location.ID == h.Location {
			c.location.Heavy++
			continue
		}
		t.name(h.entry, LocationCount{h.Location, 1})
	}
	return len(list)
}

// CountMany counts a sampled observation n times, at least once: it stands for n observations, most of
// which were not sampled. f and ref are as for Insert. It may forget other entries, and returns their
// number.
func (t *Table) CountMany(h *Heavy, n uint64, ref uint32, f *Flow) (forgotten int) {
	at := uint32(none)
	if len(t.slots) > 0 {
		at = t.at(h.Hash)
	}
	bytes, sum := MulSat(uint64(h.Bytes), n), MulSat(h.Value, n)
	if at == none {
		if !t.admits(n) {
			return 0
		}
		c := counts{hash: h.Hash, remaining: n, bytes: bytes, sum: sum, least: h.Value, greatest: h.Value, location: LocationCount{h.Location, n}}
		return t.insert(&c, &entryInfo{Flow: *f, ref: ref, samples: 1})
	}
	c := &t.counts[at]
	c.remaining += n
	c.bytes = AddSat(c.bytes, bytes)
	c.sum = AddSat(c.sum, sum)
	c.least, c.greatest = min(c.least, h.Value), max(c.greatest, h.Value)
	t.info[at].samples++
	t.name(at, LocationCount{h.Location, n})
	return 0
}

// name adds to the count of a location of the entry.
func (t *Table) name(entry uint32, p LocationCount) {
	c, a := &t.counts[entry], &t.info[entry]
	if c.location.Heavy == 0 || c.location.ID == p.ID {
		c.location = LocationCount{p.ID, c.location.Heavy + p.Heavy}
		return
	}
	for at := a.others; at != 0; at = t.locations[at-1].next {
		if o := &t.locations[at-1]; o.ID == p.ID {
			o.Heavy += p.Heavy
			return
		}
	}
	if len(t.locations) < locationsPerEntry*t.Budget {
		t.locations = append(t.locations, otherLocation{p, a.others})
		a.others = uint32(len(t.locations))
	}
}

// Locations calls f for each location of an entry, beginning with the one named first.
func (t *Table) Locations(entry int, f func(LocationCount)) {
	if p := t.counts[entry].location; p.Heavy > 0 {
		f(p)
	}
	for at := t.info[entry].others; at != 0; at = t.locations[at-1].next {
		f(t.locations[at-1].LocationCount)
	}
}

// AddSat adds, and stays at the largest value instead of wrapping.
func AddSat(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// MulSat multiplies, and saturates like AddSat.
func MulSat(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi != 0 {
		return math.MaxUint64
	}
	return lo
}
