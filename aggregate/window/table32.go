package window

import (
	"math/bits"
	"slices"
)

// table32 maps uint32 keys to uint64 values by open addressing. The zero value is
// empty and ready for use. The largest key is 1<<32 - 2.
type table32 struct {
	slots []slot32 // a power of two, at most two thirds full
	shift uint8    // 32 - log2(len(slots))
	n     int
}

type slot32 struct {
	val uint64
	key uint32 // plus 1, 0 for an empty slot
}

const minTable32 = 64

// at returns the slot of the key, and inserts the key with value 0 if it is missing. The slot is
// valid until the next call of at.
func (t *table32) at(key uint32) (slot *uint64, found bool) {
	if t.n*3 >= 2*len(t.slots) {
		t.grow()
	}
	mask := uint32(len(t.slots) - 1)
	for i := key * 0x9e3779b1 >> t.shift; ; i++ {
		s := &t.slots[i&mask]
		switch s.key {
		case key + 1:
			return &s.val, true
		case 0:
			s.key = key + 1
			t.n++
			return &s.val, false
		}
	}
}

// get returns the value of the key, 0 if it is missing.
func (t *table32) get(key uint32) uint64 {
	if t.n == 0 {
		return 0
	}
	mask := uint32(len(t.slots) - 1)
	for i := key * 0x9e3779b1 >> t.shift; ; i++ {
		switch s := &t.slots[i&mask]; s.key {
		case key + 1:
			return s.val
		case 0:
			return 0
		}
	}
}

func (t *table32) grow() {
	old := t.slots
	t.resize(max(minTable32, 2*len(old)))
	for _, s := range old {
		if s.key != 0 {
			slot, _ := t.at(s.key - 1)
			*slot = s.val
		}
	}
}

func (t *table32) resize(size int) {
	t.slots = make([]slot32, size)
	t.n = 0
	t.shift = 32
	for n := size; n > 1; n >>= 1 {
		t.shift--
	}
}

// reset empties the table. A table that was hardly used releases memory, so that one burst does not
// slow down all later windows.
func (t *table32) reset() {
	if size := len(t.slots); size > minTable32 && t.n*32 < size {
		t.resize(size / 4)
		return
	}
	clear(t.slots)
	t.n = 0
}

func (t *table32) bytes() uint64 { return uint64(cap(t.slots)) * 16 }

// denseIndex finds the numbers of list elements by the elements' hashes; the owner compares the
// elements. The zero value is empty and ready for use.
type denseIndex struct {
	slots []denseSlot // a power of two, at most half full
	shift uint8       // 32 - log2(len(slots))
	n     int
}

type denseSlot struct {
	hash   uint32 // upper half
	number uint32 // plus 1, 0 in an empty slot
}

// find returns the number with the hash for which same holds.
func (x *denseIndex) find(hash uint64, same func(number uint32) bool) (number uint32, ok bool) {
	if x.n == 0 {
		return 0, false
	}
	upper, mask := uint32(hash>>32), uint32(len(x.slots)-1)
	for i := upper >> x.shift; ; i++ {
		s := x.slots[i&mask]
		if s.number == 0 {
			return 0, false
		}
		if s.hash == upper && same(s.number-1) {
			return s.number - 1, true
		}
	}
}

// insert adds a number that find did not return.
func (x *denseIndex) insert(hash uint64, number uint32) {
	if x.n*2 >= len(x.slots) {
		old := x.slots
		x.slots = make([]denseSlot, max(minTable32, 2*len(old)))
		x.shift = uint8(33 - bits.Len(uint(len(x.slots))))
		for _, s := range old {
			if s.number != 0 {
				x.put(s)
			}
		}
	}
	x.put(denseSlot{uint32(hash >> 32), number + 1})
	x.n++
}

func (x *denseIndex) put(s denseSlot) {
	mask := uint32(len(x.slots) - 1)
	i := s.hash >> x.shift
	for x.slots[i&mask].number != 0 {
		i++
	}
	x.slots[i&mask] = s
}

// reset empties the index and keeps its memory.
func (x *denseIndex) reset() {
	clear(x.slots)
	x.n = 0
}

func (x *denseIndex) bytes() uint64 { return uint64(cap(x.slots)) * 8 }

const (
	// minRadix is the length below which comparing beats counting.
	minRadix = 192
	// maxDigit keeps a pass's counters and write positions within the first-level caches.
	maxDigit = 11
)

// radix sorts numbers by their upper half. All calls share its buffers.
type radix struct {
	spare []uint64
	ends  [1 << maxDigit]uint32
}

// sort sorts list by the upper 32 bits, all of which are at most limit. It is stable, so a list
// ordered by lower halves becomes fully ordered. The result replaces list, whose memory sort may
// exchange.
func (r *radix) sort(list []uint64, limit uint32) []uint64 {
	if len(list) < minRadix {
		slices.Sort(list)
		return list
	}
	width := bits.Len32(limit)
	passes := (width + maxDigit - 1) / maxDigit
	if passes == 0 {
		return list
	}
	digit := (width + passes - 1) / passes
	r.spare = slices.Grow(r.spare[:0], len(list))[:len(list)]
	for p := range passes {
		r.pass(list, uint(32+p*digit), uint(digit))
		list, r.spare = r.spare, list
	}
	return list
}

// pass writes list to spare in the order of one digit.
func (r *radix) pass(list []uint64, shift, digit uint) {
	ends := r.ends[:1<<digit]
	clear(ends)
	mask := uint64(1)<<digit - 1
	for _, v := range list {
		ends[v>>shift&mask]++
	}
	at := uint32(0)
	for i, n := range ends {
		ends[i] = at
		at += n
	}
	spare := r.spare[:len(list)]
	for _, v := range list {
		end := &ends[v>>shift&mask]
		spare[*end] = v
		*end++
	}
}

func (r *radix) bytes() uint64 { return uint64(cap(r.spare))*8 + uint64(len(r.ends))*4 }
