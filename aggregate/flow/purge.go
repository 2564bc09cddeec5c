package flow

import "slices"

// purge forgets at least half of the entries.
func (t *Table) purge() (forgotten int) {
	least := t.median()
	kept := t.entries[:0]
	for i := range t.entries {
		if e := &t.entries[i]; e.Heavy-e.Paid > least {
			e.Paid += least
			kept = append(kept, *e)
		}
	}
	forgotten = len(t.entries) - len(kept)
	t.entries = kept
	t.Lacks += least
	t.keepPlaces()
	t.index(len(t.slots))
	return forgotten
}

// median is that of what entries have not paid: at least half of them have no more.
func (t *Table) median() uint64 {
	// Past the budget most flows were counted a few times.
	var few [64]int
	for i := range t.entries {
		if score := t.entries[i].Heavy - t.entries[i].Paid; score < uint64(len(few)) {
			few[score]++
		}
	}
	left := (len(t.entries) + 1) / 2
	for score, n := range few {
		if left -= n; left <= 0 {
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

// keepPlaces drops the places of entries that were forgotten. It keeps the order of each
// entry's list.
func (t *Table) keepPlaces() {
	if len(t.places) == 0 {
		return
	}
	old := t.spare[:0]
	old, t.places = append(old, t.places...), t.places[:0]
	t.spare = old
	for i := range t.entries {
		e := &t.entries[i]
		at := e.others
		to := &e.others
		for *to = 0; at != 0; at = old[at-1].next {
			t.places = append(t.places, otherPlace{Place: old[at-1].Place}) // has room for all
			*to = uint32(len(t.places))
			to = &t.places[len(t.places)-1].next
		}
	}
}
