package window

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"

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
// 64 Ki flows, in sets that forget the flow used least recently.
//
// Which set a flow falls into is not seeded, because what a set forgets shows in the
// results, and equal input has to give equal results. Inside of a set, flows and what
// they said are told apart by 64 bits of a hash that is seeded at random: a memory of
// whole addresses would take four times the room, and most of the time here goes into
// waiting for it.
type repeats struct {
	sets      [repeatSets]repeatSet
	seeds     [6]uint64
	evictions uint64

	prepared [pendingItems]repeatItem // by number in the batch
}

// repeatSet fills a cache line. The flow used last comes first.
type repeatSet [repeatWays]repeatFlow

// repeatFlow is empty when its flow is 0.
type repeatFlow struct {
	flow, said uint64
}

type repeatItem struct {
	repeatFlow
	set   uint32
	acked bool
}

func newRepeats() *repeats {
	r := new(repeats)
	for i := range r.seeds {
		r.seeds[i] = rand.Uint64()
	}
	return r
}

// item is what is remembered of a reflection.
func (r *repeats) item(o *decode.Observation) repeatItem {
	src0, src1 := binary.LittleEndian.Uint64(o.Src[:8]), binary.LittleEndian.Uint64(o.Src[8:])
	dst0, dst1 := binary.LittleEndian.Uint64(o.Dst[:8]), binary.LittleEndian.Uint64(o.Dst[8:])
	tail := uint64(o.SrcPort)<<16 | uint64(o.DstPort) | uint64(o.Proto)<<32 |
		uint64(layoutIndex(o.Tag.Layout))<<40 | uint64(o.Tag.T)<<48
	data := uint64(o.Tag.S)<<32 | uint64(o.Tag.LM)<<16 | uint64(o.Tag.R)<<8
	if o.Tag.D {
		data |= 1
	}
	set := mix(src0*0xa0761d6478bd642f^src1^tail*0xe7037ed1a0b428db, dst0*0x8ebc6af09c88c6e3^dst1^0x589965cc75374cc3)
	src, dst := mix(src0^r.seeds[0], src1^r.seeds[1]), mix(dst0^r.seeds[2], dst1^r.seeds[3])
	return repeatItem{
		repeatFlow: repeatFlow{
			flow: mix(tail^src, dst^r.seeds[4]) | 1,
			said: mix(data^r.seeds[4], uint64(o.Ack)^r.seeds[5]),
		},
		set:   uint32(set % repeatSets),
		acked: o.Flags&decode.HasAck != 0,
	}
}

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// prepare gets a batch's reflections, given by their numbers, ready for seen, and
// reads what seen will need for them, so that their memory accesses overlap.
func (r *repeats) prepare(batch []decode.Observation, reflections []uint8) (touched uint64) {
	for _, i := range reflections {
		it := r.item(&batch[i])
		r.prepared[i] = it
		touched |= r.sets[it.set%repeatSets][0].flow
	}
	return touched
}

// seen tells whether the reflection, which is the batch's observation i, repeats the
// one before it, and remembers it. Reflections without an acknowledgement number
// never repeat.
func (r *repeats) seen(i int) bool {
	it := &r.prepared[i&(pendingItems-1)]
	if !it.acked {
		return false
	}
	set := &r.sets[it.set%repeatSets]
	at, same := 0, false
	for at < repeatWays-1 && set[at].flow != it.flow {
		at++
	}
	if set[at].flow == it.flow {
		same = set[at].said == it.said
	} else if set[at].flow != 0 {
		r.evictions++
	}
	copy(set[1:], set[:at])
	set[0] = it.repeatFlow
	return same
}

// forget empties all sets.
func (r *repeats) forget() {
	clear(r.sets[:])
	r.evictions = 0
}
