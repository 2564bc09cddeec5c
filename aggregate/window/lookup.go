package window

import (
	"math/bits"
	"math/rand/v2"
	"net/netip"

	"github.com/csigscope/csigscope/decode"
)

// lookupKey identifies a series before anything is resolved: 18 bits for each endpoint class of the
// measured path, then 17 bits of locator metadata, 6 of the signal's index, 3 of class and 1 of kind.
// It is never 0.
type lookupKey uint64

// noLM stands for locator metadata that names nothing.
const noLM = 1 << 16

const (
	lookupDst = 27
	lookupSrc = lookupDst + classBits
)

// newLookupKey returns a key without endpoint classes.
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
	if outdated || s.endpoints.full(2*s.pending) {
		s.endpoints.clear()
		s.ways.clear()
		s.endpoints.resets++
		s.keys.clear()
	}
	items, batch := s.items[:s.pending], s.batch
	for i := range items {
		it := &items[i]
		o := &batch[it.obs]
		if o.Flags&decode.HasAddrs != 0 {
			a, b := o.Measured()
			src, dst := s.endpoints.pair(a, b)
			it.key |= lookupKey(src)<<lookupSrc | lookupKey(dst)<<lookupDst
		}
	}
	if s.ways != nil {
		s.findWays(items)
	}
	keys, touched := &s.keys, uint64(0)
	for i := range items {
		it := &items[i]
		it.series = keys.first(uint64(it.key))
		touched |= keys.slots[it.series].key
	}
	s.touched |= touched
	s.findSeries(items)
	s.findEntries(items)
}

// findSeries finds the series of items, and notices those whose code is watched.
func (s *Shard) findSeries(items []pendingItem) {
	notices, slots := s.watching != nil && !s.counted, s.keys.slots
	for i := range items {
		it := &items[i]
		slot := &slots[it.series&uint32(len(slots)-1)]
		if slot.key != uint64(it.key) {
			slot = s.findSlot(it)
			slots = s.keys.slots
		}
		it.series = slot.series
		if notices && it.code&codeBits >= slot.watch {
			s.noticeItem(it)
		}
	}
}

// findSlot returns the slot of an item's key if that is not in its first slot. It resolves a new key
// and adds it.
func (s *Shard) findSlot(it *pendingItem) *keySlot {
	at, ok := s.keys.find(uint64(it.key))
	if !ok {
		series, watch := s.resolve(it.key, &s.batch[it.obs])
		at = s.keys.put(keySlot{uint64(it.key), series, watch})
	}
	return &s.keys.slots[at]
}

// findEntries finds the entries of items, and prefetches them, so that counting does not wait for
// memory.
func (s *Shard) findEntries(items []pendingItem) {
	windows, touched := s.levels[0].all, uint64(0)
	for i := range items {
		it := &items[i]
		w := windows[it.slot]
		if it.code&itemWide != 0 {
			it.entry = w.wideOf(it.series, &s.series)
			touched |= w.wide[it.entry].count | uint64(w.dist.touchEntry(it.entry))
			continue
		}
		at := w.compactAt.find(it.series) // compactOf, which the compiler does not inline
		if at == 0 {
			at = w.addCompact(it.series, &s.series) + 1
		}
		it.entry = at - 1
		touched |= w.compact[it.entry].bytes
	}
	s.touched |= touched
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
		src: s.endpoints.src[k.src()], dst: s.endpoints.dst[k.dst()], heavyLo: 1, // no code is heavy
		signalIndex: k.signalIndex(), kind: k.kind(), class: k.class(),
	}
	var capacity uint64
	if k.lm() != noLM && s.signals[key.signalIndex].located {
		src, dst := measured(o)
		if way := s.endpoints.way[k.src()]; way != 0 {
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
	return s.seriesOf(key), s.watchFrom(k, key.loc, capacity)
}

// seriesOf returns the number of a series.
func (s *Shard) seriesOf(key seriesKey) uint32 {
	known := len(s.series.list)
	id := s.series.id(key)
	if int(id) == known {
		for _, w := range s.levels[0].open {
			w.know(id, &s.series.list[id])
		}
	}
	return id
}

// The look-up caches are between the hot path and the resolver. Their hashes have random seeds, so
// that nobody can craft colliding traffic; their content never changes a result. A full cache is
// emptied.

// keySlot maps the key that the hot path sees to its series.
type keySlot struct {
	key    uint64 // 0 for an empty slot
	series uint32
	watch  uint32 // least code of watched observations
}

type keyCache struct {
	slots  []keySlot // a power of two, at most half full; below sparseKeys an eighth
	shift  uint8     // 64 - log2(len(slots))
	n      int
	limit  int // largest len(slots)
	seed   uint64
	resets uint64
}

// sparseKeys is the number of slots, 4 MiB, up to which a key cache is kept so empty that hardly any
// key is outside its first slot, which the processor could not predict.
const sparseKeys = 1 << 18

func newKeyCache(limit int) keyCache {
	c := keyCache{limit: limit, seed: rand.Uint64() | 1}
	c.resize(min(limit, 1<<14))
	return c
}

func (c *keyCache) resize(n int) {
	c.slots, c.n = make([]keySlot, n), 0
	c.shift = uint8(64 - bits.Len(uint(n-1)))
}

// first returns the number of the first slot that a key may be in.
func (c *keyCache) first(key uint64) uint32 {
	return uint32(key*c.seed>>(c.shift&63)) & uint32(len(c.slots)-1)
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

// put adds a key that find did not find, and returns the number of its slot.
func (c *keyCache) put(k keySlot) (slot uint64) {
	if c.n*2 >= len(c.slots) || c.n*8 >= len(c.slots) && len(c.slots) < min(c.limit, sparseKeys) {
		c.makeRoom()
	}
	return c.insert(k)
}

func (c *keyCache) makeRoom() {
	slots := c.slots
	if len(slots) >= c.limit {
		c.clear()
		c.resets++
		return
	}
	c.resize(2 * len(slots))
	for _, k := range slots {
		if k.key != 0 {
			c.insert(k)
		}
	}
}

func (c *keyCache) insert(k keySlot) (slot uint64) {
	mask := uint64(len(c.slots) - 1)
	i := k.key * c.seed >> c.shift & mask
	for c.slots[i].key != 0 {
		i = (i + 1) & mask
	}
	c.n++
	c.slots[i] = k
	return i
}

func (c *keyCache) clear() {
	clear(c.slots)
	c.n = 0
}

func (c *keyCache) bytes() uint64 { return uint64(len(c.slots)) * 16 }
