package conform

// none is no place in a list.
const none = int32(-1)

// waiter is a packet before the device.
type waiter struct {
	sighting
	next  int32 // alike, later; none for the last
	taken bool
}

// chain is what packets that are alike share.
type chain struct {
	first, next, last int32 // of all, of those that wait, of all
	alike             bool  // their tags, too, are the same
}

// waiting is the packets before the device, and those after it that wait for the end of a
// part.
type waiting struct {
	list    []waiter
	chains  map[uint64]int32 // by identity, index into all
	all     []chain
	later   []sighting // after the device: several were alike before it, with different tags
	trimmed []sighting // after the device, with D: whole ones are not alike
}

func (w *waiting) reset() {
	*w = waiting{list: w.list[:0], chains: w.chains, all: w.all[:0], later: w.later[:0], trimmed: w.trimmed[:0]}
	if w.chains == nil {
		w.chains = make(map[uint64]int32)
	}
	clear(w.chains)
}

func (w *waiting) len() int { return len(w.list) }

func (w *waiting) add(s *sighting) {
	at := int32(len(w.list))
	w.list = append(w.list, waiter{sighting: *s, next: none})
	c, ok := w.chains[s.whole]
	if !ok {
		w.chains[s.whole] = int32(len(w.all))
		w.all = append(w.all, chain{first: at, next: at, last: at, alike: true})
		return
	}
	all := &w.all[c]
	all.alike = all.alike && w.list[all.first].tagState == s.tagState
	w.list[all.last].next = at
	all.last = at
}

// find is the chain of packets with the identity, or none.
func (w *waiting) find(whole uint64) int32 {
	if c, ok := w.chains[whole]; ok {
		return c
	}
	return none
}

// alike tells whether it does not matter which packet of the chain is taken.
func (w *waiting) alike(c int32) bool { return w.all[c].alike }

// take takes the first packet of the chain that waits. Where none does it gives the
// first of all, and more is false.
func (w *waiting) take(c int32) (p *waiter, more bool) {
	all := &w.all[c]
	for ; all.next != none; all.next = w.list[all.next].next {
		if p = &w.list[all.next]; !p.taken {
			p.taken = true
			return p, true
		}
	}
	return &w.list[all.first], false
}

func (w *waiting) count(c int32) (n int) {
	for at := w.all[c].first; at != none; at = w.list[at].next {
		n++
	}
	return n
}

func (w *waiting) takeAll(c int32) {
	for at := w.all[c].first; at != none; at = w.list[at].next {
		w.list[at].taken = true
	}
}
