package window

import (
	"math/bits"
	"math/rand/v2"
	"net/netip"

	"github.com/csigscope/csigscope/decode"
)

// lookupKey identifies a series before anything is resolved: 18 bits for each end of the measured
// path, then 17 bits of locator metadata, 6 of the signal's index, 3 of class and 1 of kind. It is never 0.
type lookupKey uint64

// noLM stands for locator metadata that names nothing.
const noLM = 1 << 16

const (
	lookupDst = 27
	lookupSrc = lookupDst + classBits
)

// newLookupKey returns a key without ends.
func newLookupKey(lm uint32, signalIndex uint, cl obsClass, kind decode.Kind) lookupKey {
	return lookupKey(lm<<10 | uint32(signalIndex)<<4 | uint32(cl)<<1 | uint32(kind)>>1)
}

func (k lookupKey) lm() uint32         { return uint32(k >> 10 & (1<<17 - 1)) }
func (k lookupKey) signalIndex() uint8 { return uint8(k >> 4 & 63) }
func (k lookupKey) class() obsClass    { return obsClass(k >> 1 & 7) }
func (k lookupKey) kind() decode.Kind  { return decode.Kind(k&1) + decode.Tag }
func (k lookupKey) src() endpointClass { return endpointClass(k >> lookupSrc) }
func (k lookupKey) dst() endpointClass { return endpointClass(k >> lookupDst & (1<<classBits - 1)) }

// lookup finds the series of the pending items and their entries. Its loops do little, so that the
// memory accesses of several items overlap.
func (s *Shard) lookup() {
	outdated := false
	if s.forgetter != nil {
		now := s.forgetter.Revision()
		outdated, s.revision = now != s.revision, now
	}
	if outdated || s.ends.full(2*s.pending) {
		s.ends.clear()
		s.ways.clear()
		s.ends.resets++
		s.keys.clear()
	}
	items := s.items[:s.pending]
	for i := range items {
		it := &items[i]
		o := &s.batch[it.obs]
		if o.Flags&decode.HasAddrs != 0 {
			a, b := o.Measured()
			src, dst := s.ends.pair(a, b)
			it.key |= lookupKey(src)<<lookupSrc | lookupKey(dst)<<lookupDst
		}
	}
	if s.ways != nil {
		s.findWays(items)
	}
	touched := uint64(0)
	for i := range items {
		touched |= s.keys.touch(uint64(items[i].key))
	}
	s.touched |= touched
	s.findEntries(items)
	s.touchEntries()
}

// findEntries finds the entries of items. Keys that are new in their window come last, after their
// series have been prefetched.
func (s *Shard) findEntries(items []pendingItem) {
	l := &s.levels[0]
	fresh, touched := 0, uint32(0)
	for i := range items {
		it := &items[i]
		at := s.find(it)
		slot := &s.keys.slots[at]
		if slot.gen != l.all[it.slot].gen {
			touched |= s.series.list[s.keys.series[at].series].life
			s.fresh[fresh&(pendingItems-1)] = uint8(i)
			fresh++
		}
		it.entry = slot.entry
		if s.watching != nil && !s.counted {
			s.noticeItem(it, &s.keys.series[at])
		}
	}
	s.touched |= uint64(touched)
	for _, i := range s.fresh[:fresh] {
		it := &items[i]
		at := s.find(it)
		slot, w := &s.keys.slots[at], l.all[it.slot]
		if slot.gen != w.gen {
			series := s.keys.series[at].series
			s.series.count(series)
			slot.gen, slot.entry = w.gen, l.entry(w, series, &s.series.list[series])
		}
		it.entry = slot.entry
	}
}

// find returns the slot of an item's key, and makes it if it is missing.
func (s *Shard) find(it *pendingItem) (slot uint64) {
	slot, ok := s.keys.find(uint64(it.key))
	if !ok {
		series, watch := s.resolve(it.key, &s.batch[it.obs])
		slot = s.keys.put(uint64(it.key), keySeries{series, watch})
	}
	return slot
}

// touchEntries prefetches the entries of the pending items, so that counting does not wait for
// memory.
func (s *Shard) touchEntries() {
	windows := s.levels[0].all
	for i := range s.items[:s.pending] {
		it := &s.items[i]
		if w := windows[it.slot]; it.code&itemWide != 0 {
			it.series = w.wide[it.entry].series
		} else {
			it.series = w.compact[it.entry].series
		}
	}
}

// measured returns Observation.Measured as addresses.
func measured(o *decode.Observation) (src, dst netip.Addr) {
	src, dst = o.Addrs()
	if o.Kind == decode.Reflection {
		return dst, src
	}
	return src, dst
}

// resolve finds the series of a new key, and the least code that is watched.
func (s *Shard) resolve(k lookupKey, o *decode.Observation) (id, watch uint32) {
	key := seriesKey{
		src: s.ends.src[k.src()], dst: s.ends.dst[k.dst()], heavyLo: 1, // no code is heavy
		signalIndex: k.signalIndex(), kind: k.kind(), class: k.class(),
	}
	var capacity uint64
	if k.lm() != noLM && s.signals[key.signalIndex].located {
		src, dst := measured(o)
		if way := s.ends.way[k.src()]; way != 0 {
			key.loc, capacity, key.evidence = s.ways.finder.LocateOn(way, o.Tag.Layout, o.Tag.T&15, o.Tag.LM, src, dst)
		} else {
			key.loc, capacity = s.cfg.Resolver.Locate(o.Tag.Layout, o.Tag.T&15, o.Tag.LM, src, dst)
		}
	}
	if key.class == classValue {
		if lo, hi, ok := s.signals[key.signalIndex].table.HeavyCodes(capacity); ok {
			key.heavyLo, key.heavyHi = lo, hi
		}
	}
	id = s.series.id(key)
	for i := range s.levels {
		s.levels[i].refer(len(s.series.list))
	}
	return id, s.watchFrom(k, key.loc, capacity)
}

// The look-up caches are between the hot path and the resolver. Their hashes have random seeds, so
// that nobody can craft colliding traffic; their content never changes a result. A full cache is
// emptied.

// keySlot maps the key that the hot path sees to the entry where the key was counted last, in the
// window of the finest level with that generation.
type keySlot struct {
	key        uint64 // 0 for an empty slot
	gen, entry uint32
}

// keySeries is the series of a key. It is read when the key is first counted in a window.
type keySeries struct {
	series uint32
	watch  uint32 // least code of watched observations
}

type keyCache struct {
	slots  []keySlot   // a power of two, at most half full
	series []keySeries // by slot
	shift  uint8       // 64 - log2(len(slots))
	n      int
	limit  int // largest len(slots)
	seed   uint64
	resets uint64
}

func newKeyCache(limit int) keyCache {
	c := keyCache{limit: limit, seed: rand.Uint64() | 1}
	c.resize(min(limit, 1<<14))
	return c
}

func (c *keyCache) resize(n int) {
	c.slots, c.series, c.n = make([]keySlot, n), make([]keySeries, n), 0
	c.shift = uint8(64 - bits.Len(uint(n-1)))
}

// touch prefetches the key's slot into the processor's cache for get.
func (c *keyCache) touch(key uint64) uint64 {
	return c.slots[key*c.seed>>c.shift&uint64(len(c.slots)-1)].key
}

// find returns the number of a key's slot, which is valid until the next put.
func (c *keyCache) find(key uint64) (slot uint64, ok bool) {
	mask := uint64(len(c.slots) - 1)
	for i := key * c.seed >> c.shift & mask; ; i = (i + 1) & mask {
		switch c.slots[i].key {
		case key:
			return i, true
		case 0:
			return 0, false
		}
	}
}

// put adds a key that find did not find, and returns its slot.
func (c *keyCache) put(key uint64, s keySeries) (slot uint64) {
	if c.n*2 >= len(c.slots) {
		c.makeRoom()
	}
	return c.insert(key, s)
}

func (c *keyCache) makeRoom() {
	slots, series := c.slots, c.series
	if len(slots) >= c.limit {
		c.clear()
		c.resets++
		return
	}
	c.resize(2 * len(slots))
	for i := range slots {
		if key := slots[i].key; key != 0 {
			c.insert(key, series[i])
		}
	}
}

func (c *keyCache) insert(key uint64, s keySeries) (slot uint64) {
	mask := uint64(len(c.slots) - 1)
	i := key * c.seed >> c.shift & mask
	for c.slots[i].key != 0 {
		i = (i + 1) & mask
	}
	c.n++
	c.slots[i], c.series[i] = keySlot{key: key}, s
	return i
}

func (c *keyCache) clear() {
	clear(c.slots)
	c.n = 0
}

func (c *keyCache) bytes() uint64 { return uint64(len(c.slots)) * (16 + 8) }
