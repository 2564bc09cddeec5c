package window

import (
	"math/bits"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
)

// waySlots is the number of flows whose ways a shard remembers, a power of two.
const waySlots = 1 << 16

// waySlot holds the source class for the packets of a flow at times in [from, until).
type waySlot struct {
	hash        uint64
	from, until int64
	end         endpointClass
}

// wayCache caches the ways of flows, if the resolver has evidence of them. A new flow replaces an
// older one.
type wayCache struct {
	finder aggregate.PathResolver
	slots  []waySlot
	shift  uint8
	asked  flow.Flow // a field, so that the call allocates nothing
}

// newWayCache returns nil if the resolver has no evidence of paths.
func newWayCache(r aggregate.Resolver) *wayCache {
	finder, ok := r.(aggregate.PathResolver)
	if !ok || !finder.HasWays() {
		return nil
	}
	return &wayCache{finder: finder, slots: make([]waySlot, waySlots), shift: uint8(64 - bits.Len(waySlots-1))}
}

// clear forgets all flows, because endpoint classes will be renumbered.
func (c *wayCache) clear() {
	if c != nil {
		clear(c.slots)
	}
}

func (c *wayCache) bytes() uint64 {
	if c == nil {
		return 0
	}
	return waySlots * 32
}

// findWays replaces the source classes of pending items, whose keys have both classes, by the classes
// for the way of their flow.
func (s *Shard) findWays(items []pendingItem) {
	c := s.ways
	for i := range items {
		it := &items[i]
		o := &s.batch[it.obs]
		if o.Flags&decode.HasAddrs == 0 {
			continue
		}
		ports := uint32(o.SrcPort)<<16 | uint32(o.DstPort)
		if o.Kind == decode.Reflection {
			ports = bits.RotateLeft32(ports, 16)
		}
		hash := s.seeds.Hash(s.seeds.Addresses(o.Measured()), ports, o.Proto, 0)
		slot := &c.slots[hash*0x9e3779b97f4a7c15>>c.shift]
		if slot.hash != hash || o.TimeNS < slot.from || o.TimeNS >= slot.until {
			c.asked = flowOf(o)
			way, from, until := c.finder.Way(&c.asked, o.TimeNS)
			*slot = waySlot{hash, from, until, s.endpoints.onWay(it.key.src(), way)}
		}
		it.key = it.key&(1<<lookupSrc-1) | lookupKey(slot.end)<<lookupSrc
	}
}

// onWay returns the source class for those packets of the class base that take a way.
func (c *endpointCache) onWay(base endpointClass, way uint32) endpointClass {
	if way == 0 {
		return base
	}
	key := wayKey{base, way}
	id, ok := c.onWays[key]
	if !ok {
		id = number(&c.src, c.src[base])
		c.suspicious, c.way = append(c.suspicious, c.suspicious[base]), append(c.way, way)
		c.onWays[key] = id
	}
	return id
}

// wayKey is a source class whose packets take one way.
type wayKey struct {
	base endpointClass
	way  uint32
}

// flowOf returns the flow of an observation, in the measured direction.
func flowOf(o *decode.Observation) flow.Flow {
	f := flow.Flow{Src: o.Src, Dst: o.Dst, SrcPort: o.SrcPort, DstPort: o.DstPort, Proto: o.Proto}
	if o.Kind == decode.Reflection {
		f.Src, f.Dst, f.SrcPort, f.DstPort = f.Dst, f.Src, f.DstPort, f.SrcPort
	}
	return f
}

// witnessSlots is the number of reported flows that a tap in the fabric remembers, a power of two.
const witnessSlots = 1 << 14

// witnessStep is the interval at which a flow is reported.
const witnessStep = int64(time.Second)

// witness reports the flows that pass a point in the middle of the fabric, each once a second.
type witness struct {
	finder   aggregate.PathResolver
	point    uint32
	seeds    *flow.Seeds
	reported []reportedSlot
	seen     flow.Flow // a field, so that the call allocates nothing
}

type reportedSlot struct {
	hash uint64
	step int64
}

func newWitness(r aggregate.Resolver, point uint32, seeds *flow.Seeds) *witness {
	finder, ok := r.(aggregate.PathResolver)
	if !ok || point == 0 {
		return nil
	}
	return &witness{finder: finder, point: point, seeds: seeds, reported: make([]reportedSlot, witnessSlots)}
}

// see reports the flow of an observation's packet, whatever path the observation measured.
func (w *witness) see(o *decode.Observation) {
	if w == nil || o.Flags&decode.HasAddrs == 0 || o.TimeNS <= 0 {
		return
	}
	w.seen = flow.Flow{Src: o.Src, Dst: o.Dst, SrcPort: o.SrcPort, DstPort: o.DstPort, Proto: o.Proto}
	hash, step := w.seeds.Flow(&w.seen), o.TimeNS/witnessStep
	if slot := &w.reported[hash%witnessSlots]; slot.hash != hash || slot.step != step {
		*slot = reportedSlot{hash, step}
		w.finder.RecordSighting(w.point, &w.seen, o.TimeNS)
	}
}

func (w *witness) forget() {
	if w != nil {
		clear(w.reported)
	}
}

func (w *witness) bytes() uint64 {
	if w == nil {
		return 0
	}
	return witnessSlots * 16
}
