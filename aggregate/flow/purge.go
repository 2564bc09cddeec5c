package flow

import "slices"

// purge forgets at least half of the entries.
func (t *Table) purge() (forgotten int) {
	least := t.median()
	kept := 0
	for i := range t.counts {
		if t.counts[i].unpaid > least {
			t.counts[kept], t.about[kept] = t.counts[i], t.about[i]
			t.counts[kept].unpaid -= least
			t.about[kept].paid += least
			kept++
		}
	}
	forgotten = t.Len() - kept
	t.counts, t.about = t.counts[:kept], t.about[:kept]
	t.Lacks += least
	t.keepPlaces()
	t.index(len(t.slots))
	return forgotten
}

// median is that of what entries have not paid: at least half of them have no more.
func (t *Table) median() uint64 {
	// Past the budget most flows were counted a few times.
	var few [64]int
	for i := range t.counts {
		if unpaid := t.counts[i].unpaid; unpaid < uint64(len(few)) {
			few[unpaid]++
		}
	}
	left := (t.Len() + 1) / 2
	for unpaid, n := range few {
		if left -= n; left <= 0 {
			return uint64(unpaid)
		}
	}
	t.scratch = t.scratch[:0]
	for i := range t.counts {
		t.scratch = append(t.scratch, t.counts[i].unpaid)
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
	for i := range t.about {
		a := &t.about[i]
		at := a.others
		to := &a.others
		for *to = 0; at != 0; at = old[at-1].next {
			t.places = append(t.places, otherPlace{Place: old[at-1].Place}) // has room for all
			*to = uint32(len(t.places))
			to = &t.places[len(t.places)-1].next
		}
	}
}
