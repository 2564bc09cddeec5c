package conform

// index finds packets by the hash that they are known by: open addressing with linear
// probes, at most half full. A place has some bits of the hash, so that mostly the packet
// alone is looked at that is looked for: packets come out of a device about in the order in
// which they went in, so that they are next to each other in memory, while an index is never
// in the cache.
type index struct {
	slots []slot
	used  int
}

// slot is empty where the packet is 0.
type slot struct {
	bits   uint32 // of the hash
	packet int32  // and 1
}

const minSlots = 1 << 10

// reset empties the index and makes room for so many packets.
func (x *index) reset(packets int) {
	size := minSlots
	for size < 2*packets {
		size *= 2
	}
	if x.used = 0; len(x.slots) >= size {
		clear(x.slots)
		return
	}
	x.slots = make([]slot, size)
}

// start is the place that a hash is looked for from.
func (x *index) start(hash uint64) int { return int(hash & uint64(len(x.slots)-1)) }

// after is the next place to look at.
func (x *index) after(at int) int { return (at + 1) & (len(x.slots) - 1) }

// get is the packet in a place, none for an empty one, and whether it may have the hash.
func (x *index) get(at int, hash uint64) (packet int32, probable bool) {
	s := &x.slots[at]
	return s.packet - 1, s.bits == uint32(hash>>32)
}

// full tells whether it has to grow before another packet is added.
func (x *index) full() bool { return 2*x.used >= len(x.slots) }

// add takes a packet in that is not yet there.
func (x *index) add(hash uint64, packet int32) {
	at := x.start(hash)
	for x.slots[at].packet != 0 {
		at = x.after(at)
	}
	x.slots[at] = slot{uint32(hash >> 32), packet + 1}
	x.used++
}
