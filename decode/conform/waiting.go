package conform

// none is no place in a list.
const none = int32(-1)

// waiter is a packet before the device. Packets that are alike are a chain, which is known
// by its first one.
type waiter struct {
	sighting
	next  int32 // alike, later; none for the last
	chain int32 // of the first one: index into waiting.chains; none while it is alone
	taken bool
}

// chain is what several packets that are alike share.
type chain struct {
	next, last int32 // of those that wait, of all
	alike      bool  // their tags, too, are the same
}

// waiting is the packets before the device, and those after it that wait for the end of a
// part.
type waiting struct {
	list    []waiter
	index   index // of the first ones of chains, by identity
	chains  []chain
	later   []sighting // after the device: several were alike before it, with different tags
	trimmed []sighting // after the device, with D: whole ones are not alike
}

// reset makes room for so many packets at once, and for more of them one by one.
func (w *waiting) reset(packets int) {
	if cap(w.list) < packets {
		w.list = make([]waiter, 0, packets)
	}
	*w = waiting{list: w.list[:0], index: w.index, chains: w.chains[:0], later: w.later[:0], trimmed: w.trimmed[:0]}
	w.index.reset(packets)
}

func (w *waiting) len() int { return len(w.list) }

func (w *waiting) add(s *sighting) {
	at := int32(len(w.list))
	first := w.find(s.whole)
	w.list = append(w.list, waiter{sighting: *s, next: none, chain: none})
	if first == none {
		w.enter(at)
		return
	}
	head := &w.list[first]
	if head.chain == none {
		head.chain = int32(len(w.chains))
		w.chains = append(w.chains, chain{next: first, last: first, alike: true})
	}
	all := &w.chains[head.chain]
	all.alike = all.alike && head.tagState == s.tagState
	w.list[all.last].next = at
	all.last = at
}

// enter puts the first packet of a chain into the index.
func (w *waiting) enter(at int32) {
	if w.index.full() {
		old := w.index
		w.index = index{}
		w.index.reset(len(old.slots))
		for _, s := range old.slots {
			if s.packet != 0 {
				w.index.add(w.list[s.packet-1].whole, s.packet-1)
			}
		}
	}
	w.index.add(w.list[at].whole, at)
}

// find is the first of the packets with the identity, or none.
func (w *waiting) find(whole uint64) int32 {
	if len(w.index.slots) == 0 {
		return none
	}
	for at := w.index.start(whole); ; at = w.index.after(at) {
		first, probable := w.index.get(at, whole)
		if first == none || probable && w.list[first].whole == whole {
			return first
		}
	}
}

// alike tells whether it does not matter which packet of the chain is taken.
func (w *waiting) alike(first int32) bool {
	c := w.list[first].chain
	return c == none || w.chains[c].alike
}

// take takes the first packet of the chain that waits. Where none does it gives the
// first of all, and more is false.
func (w *waiting) take(first int32) (p *waiter, more bool) {
	head := &w.list[first]
	if head.chain == none {
		more, head.taken = !head.taken, true
		return head, more
	}
	all := &w.chains[head.chain]
	for ; all.next != none; all.next = w.list[all.next].next {
		if p = &w.list[all.next]; !p.taken {
			p.taken = true
			return p, true
		}
	}
	return head, false
}

func (w *waiting) count(first int32) (n int) {
	for at := first; at != none; at = w.list[at].next {
		n++
	}
	return n
}

func (w *waiting) takeAll(first int32) {
	for at := first; at != none; at = w.list[at].next {
		w.list[at].taken = true
	}
}
