package aggregate

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/csigscope/csigscope/decode"
)

// Receivers reflect the last signal on every acknowledgement, so that a reflection
// says something new only when it acknowledges something new: the same data with
// the same acknowledgement number on one flow is one measurement.

const (
	repeatWays = 4
	repeatSets = 1 << 14
)

// repeats remembers the last reflection of each flow and signal type: those of
// 64 Ki flows, in sets that forget the entry used least recently. Its hash is not
// seeded, because what it forgets shows in the results, and equal input has to give
// equal results.
type repeats struct {
	sets      [repeatSets]repeatSet
	flows     [repeatSets][repeatWays]repeatFlow
	clock     uint32
	floor     uint32 // entries not used since this clock are empty
	evictions uint64

	hashes   [pendingItems]uint64 // by number in the batch
	prepared [pendingItems]uint64 // the same without gaps
}

// repeatSet is what is looked at first: a set fills half a cache line.
type repeatSet struct {
	used [repeatWays]uint32 // clock of the last use
	tags [repeatWays]uint32 // a part of the flow's hash
}

// repeatFlow fills a cache line.
type repeatFlow struct {
	repeatKey
	data uint64 // said last
	ack  uint32
	_    [4]byte
}

type repeatKey struct {
	addrs [4]uint64
	tail  uint64 // ports, protocol, layout and type
}

func newRepeatKey(o *decode.Observation) repeatKey {
	return repeatKey{
		addrs: [4]uint64{
			binary.LittleEndian.Uint64(o.Src[:8]), binary.LittleEndian.Uint64(o.Src[8:]),
			binary.LittleEndian.Uint64(o.Dst[:8]), binary.LittleEndian.Uint64(o.Dst[8:]),
		},
		tail: uint64(o.SrcPort)<<16 | uint64(o.DstPort) |
			uint64(o.Proto)<<32 | uint64(layoutIndex(o.Tag.Layout))<<40 | uint64(o.Tag.T)<<48,
	}
}

func (k *repeatKey) hash() uint64 {
	h1, l1 := bits.Mul64(k.addrs[0]^0xa0761d6478bd642f, k.addrs[1]^0xe7037ed1a0b428db)
	h2, l2 := bits.Mul64(k.addrs[2]^0x8ebc6af09c88c6e3, k.addrs[3]^0x589965cc75374cc3)
	h3, l3 := bits.Mul64(k.tail^h1^l1, h2^l2^0x1d8e4e27c47d124f)
	return h3 ^ l3
}

func (k *repeatKey) equal(o *repeatKey) bool {
	src := (k.addrs[0] ^ o.addrs[0]) | (k.addrs[1] ^ o.addrs[1])
	dst := (k.addrs[2] ^ o.addrs[2]) | (k.addrs[3] ^ o.addrs[3])
	return src|dst|(k.tail^o.tail) == 0
}

// prepare hashes the reflections of a batch, of at most pendingItems, and reads what
// seen will need for them, so that their memory accesses overlap.
func (r *repeats) prepare(batch []decode.Observation) (touched uint32) {
	n := 0
	for i := range batch {
		if batch[i].Kind == decode.Reflection {
			k := newRepeatKey(&batch[i])
			h := k.hash()
			r.hashes[i&(pendingItems-1)], r.prepared[n&(pendingItems-1)] = h, h
			touched |= r.sets[h%repeatSets].used[0]
			n++
		}
	}
	for _, h := range r.prepared[:n] {
		set, tag := &r.sets[h%repeatSets], uint32(h>>32)
		way := 0
		for i := range set.tags {
			if set.tags[i] == tag {
				way = i
			}
		}
		touched |= r.flows[h%repeatSets][way].ack
	}
	return touched
}

// seen tells whether the reflection, which is the batch's observation i, repeats the
// one before it, and remembers it. Reflections without an acknowledgement number
// never repeat.
func (r *repeats) seen(o *decode.Observation, i int) bool {
	if o.Flags&decode.HasAck == 0 {
		return false
	}
	data := uint64(o.Tag.S)<<32 | uint64(o.Tag.LM)<<16 | uint64(o.Tag.R)<<8
	if o.Tag.D {
		data |= 1
	}
	k := newRepeatKey(o)
	f, known := r.flow(&k, r.hashes[i&(pendingItems-1)])
	same := known && f.ack == o.Ack && f.data == data
	f.ack, f.data = o.Ack, data
	return same
}

// flow is what a flow said: it takes an empty entry of its set, or that which was
// not used for longest, if it has none.
func (r *repeats) flow(k *repeatKey, hash uint64) (f *repeatFlow, known bool) {
	r.tick()
	n, tag := hash%repeatSets, uint32(hash>>32)
	set, flows := &r.sets[n], &r.flows[n]
	oldest := 0
	for i := range set.used {
		if set.tags[i] == tag && set.used[i] > r.floor && flows[i].equal(k) {
			set.used[i] = r.clock
			return &flows[i], true
		}
		if set.used[i] < set.used[oldest] {
			oldest = i
		}
	}
	if set.used[oldest] > r.floor {
		r.evictions++
	}
	set.used[oldest], set.tags[oldest] = r.clock, tag
	flows[oldest].repeatKey = *k
	return &flows[oldest], false
}

// forget empties all entries. They are cleared one by one only before the clock
// could wrap.
func (r *repeats) forget() {
	r.floor, r.evictions = r.clock, 0
	if r.clock > math.MaxUint32/2 {
		clear(r.sets[:])
		r.clock, r.floor = 0, 0
	}
}

// tick makes every use later than the floor. When the clock wraps, entries lose
// their ages.
func (r *repeats) tick() {
	r.clock++
	if r.clock != 0 {
		return
	}
	for i := range r.sets {
		for j, used := range r.sets[i].used {
			r.sets[i].used[j] = 0
			if used > r.floor {
				r.sets[i].used[j] = 1
			}
		}
	}
	r.clock, r.floor = 2, 0
}
