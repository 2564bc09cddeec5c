package window

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/csigscope/csigscope/decode"
)

// A reflection on an acknowledgement of new data reflects the latest tag of the packets that it
// acknowledges (draft-ravi-ippm-csig-01, section 4.2): it is an observation even if its fields
// equal those of the previous one. The same fields on an acknowledgement of nothing new, such as a
// duplicate acknowledgement or a copy of the packet, are a repeat. Without acknowledgement numbers
// the time between both decides.

const (
	repeatWays = 4
	repeatSets = 1 << 14
)

// reflectionDedup remembers the last reflection of each flow and signal type, for 64 Ki flows, in sets that
// forget the least recently used flow.
//
// The choice of a flow's set has no random seed, because the flows that a set forgets affect the
// results, and equal input has to give equal results. Within a set, randomly
// seeded hashes identify flows by 63 bits, and their fields by the 32 bits above an acknowledgement
// number or the 24 above a time: storing whole addresses would take four times the memory, and most
// of the time here is spent waiting for memory.
type reflectionDedup struct {
	sets      [repeatSets]repeatSet
	seeds     [6]uint64
	within    int64 // ns: see Config.UDPRepeat
	evictions uint64

	prepared [pendingItems]repeatItem // by number in the batch
}

// repeatSet fills a cache line. The flow used last comes first.
type repeatSet [repeatWays]repeatFlow

// repeatFlow is empty when its flow is 0.
type repeatFlow struct {
	flow   uint64
	digest uint64 // of the fields, above the newest acknowledgement number or the time
}

const (
	ackBits  = 32
	timeBits = 40 // ns; wraps every 18 minutes
	timeMask = 1<<timeBits - 1
	tcp      = 6
	// otherConnection is a larger step back than reordering causes: another connection uses the
	// ports.
	otherConnection = 1 << 26
)

type repeatItem struct {
	repeatFlow
	set   uint32
	acked bool
}

func newReflectionDedup(within time.Duration) *reflectionDedup {
	r := &reflectionDedup{within: int64(within)}
	for i := range r.seeds {
		r.seeds[i] = rand.Uint64()
	}
	return r
}

// item returns the record of a reflection.
func (r *reflectionDedup) item(o *decode.Observation) repeatItem {
	src0, src1 := binary.LittleEndian.Uint64(o.Src[:8]), binary.LittleEndian.Uint64(o.Src[8:])
	dst0, dst1 := binary.LittleEndian.Uint64(o.Dst[:8]), binary.LittleEndian.Uint64(o.Dst[8:])
	tail := uint64(o.SrcPort)<<16 | uint64(o.DstPort) | uint64(o.Proto)<<32 |
		uint64(layoutIndex(o.Tag.Layout))<<40 | uint64(o.Tag.T)<<48 | uint64(o.Flags&decode.HasAck)<<56
	tail ^= uint64(o.Flow) * 0x9e3779b97f4a7c15 // one of those in a tunnel
	data := uint64(o.Tag.S)<<32 | uint64(o.Tag.LM)<<16 | uint64(o.Tag.R)<<8
	if o.Tag.D {
		data |= 1
	}
	set := mix(src0*0xa0761d6478bd642f^src1^tail*0xe7037ed1a0b428db, dst0*0x8ebc6af09c88c6e3^dst1^0x589965cc75374cc3)
	src, dst := mix(src0^r.seeds[0], src1^r.seeds[1]), mix(dst0^r.seeds[2], dst1^r.seeds[3])
	it := repeatItem{
		repeatFlow: repeatFlow{flow: mix(tail^src, dst^r.seeds[4]) | 1},
		set:        uint32(set % repeatSets),
		acked:      o.Flags&decode.HasAck != 0,
	}
	exact := uint64(0)
	if it.acked && o.Flow == 0 && (o.Proto != tcp || o.Flags&decode.HasPorts == 0) {
		exact = uint64(o.Ack) // these endpoints may have several connections
	}
	if digest := mix(data^r.seeds[4], exact^r.seeds[5]); it.acked {
		it.digest = digest<<ackBits | uint64(o.Ack)
	} else {
		it.digest = digest<<timeBits | uint64(o.TimeNS)&timeMask
	}
	return it
}

// follow reports whether a reflection repeats the last one of its flow, and returns the value to
// remember: with the newest acknowledgement number, or the time that counted last.
func (it *repeatItem) follow(last uint64, within int64) (digest uint64, same bool) {
	if !it.acked {
		since := int64(it.digest<<(64-timeBits)-last<<(64-timeBits)) >> (64 - timeBits)
		if it.digest>>timeBits == last>>timeBits && max(since, -since) < within {
			return last, true
		}
		return it.digest, false
	}
	if fresh := int32(uint32(it.digest) - uint32(last)); fresh > 0 || fresh < -otherConnection {
		return it.digest, false
	}
	return it.digest>>ackBits<<ackBits | last&(1<<ackBits-1), it.digest>>ackBits == last>>ackBits
}

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// prepare makes the records of a batch's reflections, given by their numbers, for seen, and
// prefetches their sets, so that their memory accesses overlap.
func (r *reflectionDedup) prepare(batch []decode.Observation, reflections []uint8) (touched uint64) {
	for _, i := range reflections {
		it := r.item(&batch[i])
		r.prepared[i] = it
		touched |= r.sets[it.set%repeatSets][0].flow
	}
	return touched
}

// seen reports whether the reflection, observation i of the batch, repeats the previous one of its
// flow, and remembers it.
func (r *reflectionDedup) seen(i int) bool {
	it := &r.prepared[i&(pendingItems-1)]
	if !it.acked && r.within == 0 {
		return false
	}
	set := &r.sets[it.set%repeatSets]
	at, same := 0, false
	for at < repeatWays-1 && set[at].flow != it.flow {
		at++
	}
	if set[at].flow == it.flow {
		it.digest, same = it.follow(set[at].digest, r.within)
	} else if set[at].flow != 0 {
		r.evictions++
	}
	copy(set[1:], set[:at])
	set[0] = it.repeatFlow
	return same
}

// forget empties all sets.
func (r *reflectionDedup) forget() {
	clear(r.sets[:])
	r.evictions = 0
}
