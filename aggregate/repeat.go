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
	sets      [repeatSets][repeatWays]repeatEntry
	clock     uint32
	floor     uint32 // entries not used since this clock are empty
	evictions uint64
}

type repeatEntry struct {
	flow repeatFlow
	data uint64
	ack  uint32
	used uint32 // clock of the last use
}

type repeatFlow struct {
	addrs       [4]uint64
	ports       uint32
	proto       uint8
	layout, typ uint8
}

// seen tells whether the reflection repeats the one before it, and remembers it.
// Reflections without an acknowledgement number never repeat.
func (r *repeats) seen(o *decode.Observation) bool {
	if o.Flags&decode.HasAck == 0 {
		return false
	}
	flow := repeatFlow{
		addrs: pairKey(&o.Src, &o.Dst),
		ports: uint32(o.SrcPort)<<16 | uint32(o.DstPort),
		proto: o.Proto, layout: uint8(o.Tag.Layout.Index()), typ: o.Tag.T,
	}
	data := uint64(o.Tag.S)<<32 | uint64(o.Tag.LM)<<16 | uint64(o.Tag.R)<<8
	if o.Tag.D {
		data |= 1
	}
	r.tick()
	e := r.entry(&flow)
	same := e.used > r.floor && e.ack == o.Ack && e.data == data
	e.data, e.ack, e.used = data, o.Ack, r.clock
	return same
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
		for j := range r.sets[i] {
			if e := &r.sets[i][j]; e.used > r.floor {
				e.used = 1
			} else {
				e.used = 0
			}
		}
	}
	r.clock, r.floor = 2, 0
}

// entry is the flow's entry: its own, an empty one, or the oldest of its set.
func (r *repeats) entry(flow *repeatFlow) *repeatEntry {
	set := &r.sets[flow.hash()%repeatSets]
	oldest := &set[0]
	for i := range set {
		e := &set[i]
		if e.used > r.floor && e.flow == *flow {
			return e
		}
		if e.used < oldest.used {
			oldest = e
		}
	}
	if oldest.used > r.floor {
		r.evictions++
	}
	*oldest = repeatEntry{flow: *flow}
	return oldest
}

func (f *repeatFlow) hash() uint64 {
	var tail [8]byte
	binary.LittleEndian.PutUint32(tail[:], f.ports)
	tail[4], tail[5], tail[6] = f.proto, f.layout, f.typ
	h1, l1 := bits.Mul64(f.addrs[0]^0xa0761d6478bd642f, f.addrs[1]^0xe7037ed1a0b428db)
	h2, l2 := bits.Mul64(f.addrs[2]^0x8ebc6af09c88c6e3, f.addrs[3]^0x589965cc75374cc3)
	h3, l3 := bits.Mul64(binary.LittleEndian.Uint64(tail[:])^h1^l1, h2^l2^0x1d8e4e27c47d124f)
	return h3 ^ l3
}
