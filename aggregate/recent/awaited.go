package recent

import "maps"

// awaited is what a window is yet to be told of before it is whole: as many blocks of each
// producer as the window before it was told.
type awaited map[uint64]int

// awaiting is what a window that follows after one with so many blocks of each producer awaits.
func awaiting(before map[uint64]int) awaited { return maps.Clone(before) }

// met notes that a window has so many blocks of the producer. It tells whether that was the last
// thing it awaited.
func (a awaited) met(producer uint64, blocks int) bool {
	want, open := a[producer]
	if !open || blocks < want {
		return false
	}
	delete(a, producer)
	return len(a) == 0
}
