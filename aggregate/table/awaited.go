package table

import "maps"

// awaited is what a window is yet to be told of before it is whole: as many blocks of each
// producer as the window before it was told. It is nil where nothing is awaited.
type awaited map[uint64]int

// awaiting is what a window that follows after one with so many blocks of each producer awaits.
func awaiting(before map[uint64]int) awaited { return maps.Clone(before) }

// met notes that a window has so many blocks of the producer.
func (a awaited) met(producer uint64, blocks int) {
	if want, open := a[producer]; open && blocks >= want {
		delete(a, producer)
	}
}

// isWhole tells, once, that all is there that the window awaits, of all producers that are known.
func (w *filling) isWhole(known int) bool {
	if w.awaited == nil || len(w.awaited) > 0 || len(w.producers) < known {
		return false
	}
	w.awaited = nil
	return true
}
