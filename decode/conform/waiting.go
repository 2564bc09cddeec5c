package conform

// none is no index of a list.
const none = int32(-1)

// waiter is a packet before the device. Equal packets form a chain, named by its first one.
type waiter struct {
	sighting
	next  int32 // the next equal packet; none for the last
	chain int32 // of the first packet: index into waiting.chains; none while it is alone
	taken bool
	order uint32 // among the packets before the device in all captures and parts, from 1
}

// chain is the shared state of several equal packets.
type chain struct {
	next, last int32 // of the waiting ones, of all
	alike      bool  // their tags are equal, too
}

// waiting holds the packets before the device, and those after it that have to wait for the end of
// a part.
type waiting struct {
	list    []waiter
	index   index // of the first packets of chains, by identity
	chains  []chain
	later   []sighting // after the device, when several equal packets before it had different tags
	trimmed []sighting // after the device, with D; they equal no whole packet

	// fragments are the heads of first fragments after the device, of all parts. If there are too many
	// to remember, any packet may have come out in fragments.
	fragments   map[uint64]struct{}
	anyFragment bool
}

// reset makes room for that many packets at once; beyond, memory grows packet by packet.
func (w *waiting) reset(packets int) {
	if cap(w.list) < packets {
		w.list = make([]waiter, 0, packets)
	}
	*w = waiting{
		list: w.list[:0], index: w.index, chains: w.chains[:0], later: w.later[:0], trimmed: w.trimmed[:0],
		fragments: make(map[uint64]struct{}),
	}
	w.index.reset(packets)
}

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
	if 2*w.index.used >= len(w.index.slots) {
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

// find returns the first packet with the identity, or none.
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

// alike reports whether all packets of the chain have equal tags, so that any of them can be taken.
func (w *waiting) alike(first int32) bool {
	c := w.list[first].chain
	return c == none || w.chains[c].alike
}

// take takes the first waiting packet of the chain. If none waits, it returns the first of all, and
// more is false.
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

// addFragment remembers the head of a first fragment, unless there are that many already.
func (w *waiting) addFragment(head uint64, most int) {
	if w.anyFragment = w.anyFragment || len(w.fragments) >= most; !w.anyFragment {
		w.fragments[head] = struct{}{}
	}
}

// fragmented reports whether a packet with that head may have come out in fragments.
func (w *waiting) fragmented(head uint64) bool {
	_, is := w.fragments[head]
	return is || w.anyFragment
}

func (w *waiting) count(first int32) (n int) {
	for at := first; at != none; at = w.list[at].next {
		n++
	}
	return n
}
