package aggregate

import (
	"net/netip"

	"github.com/csigscope/csigscope/decode"
)

// lookupKey is what tells the series of a pair of addresses apart before anything
// is resolved: 17 bits of locator metadata, 6 of traits, 3 of class and 1 of kind.
// It is never 0.
type lookupKey uint32

const lookupBits = 27

// noLM stands for locator metadata that names nothing.
const noLM = 1 << 16

func newLookupKey(lm uint32, traits uint, cl class, kind decode.Kind) lookupKey {
	return lookupKey(lm<<10 | uint32(traits)<<4 | uint32(cl)<<1 | uint32(kind)>>1)
}

func (k lookupKey) lm() uint32        { return uint32(k >> 10) }
func (k lookupKey) traits() uint8     { return uint8(k >> 4 & 63) }
func (k lookupKey) class() class      { return class(k >> 1 & 7) }
func (k lookupKey) kind() decode.Kind { return decode.Kind(k&1) + decode.Tag }

// lookup finds the series of the pending items. It is a loop of its own, with little
// in it, so that the memory accesses of several items overlap.
func (s *Shard) lookup() {
	for i := range s.items[:s.pending] {
		it := &s.items[i]
		o := &s.batch[it.obs]
		if o.Flags&decode.HasAddrs == 0 {
			it.series = s.lookupKey(it.key, o, &s.noPair)
			continue
		}
		addrs := pairKey(o.Measured())
		slot, found := s.pairs.get(&addrs, it.hash)
		if found {
			var ok bool
			if it.series, ok = s.pairs.slots[slot].find(it.key); ok {
				continue
			}
		} else {
			src, dst := measured(o)
			slot = s.pairs.put(&addrs, s.cfg.Resolver.Group(src), s.cfg.Resolver.Group(dst))
		}
		it.series = s.lookupKey(it.key, o, &s.pairs.info[slot])
		s.pairs.slots[slot].remember(it.key, it.series)
	}
}

// measured is Observation.Measured as addresses.
func measured(o *decode.Observation) (src, dst netip.Addr) {
	src, dst = o.Addrs()
	if o.Kind == decode.Reflection {
		return dst, src
	}
	return src, dst
}

// lookupKey is the series of a key that the pair does not remember.
func (s *Shard) lookupKey(k lookupKey, o *decode.Observation, pair *pairInfo) uint32 {
	key := pair.id<<lookupBits | uint64(k)
	if id, ok := s.keys.get(key); ok {
		return id
	}
	id := s.resolve(k, o, pair)
	s.keys.put(key, id)
	return id
}

// resolve finds the series of a key that was not met before.
func (s *Shard) resolve(k lookupKey, o *decode.Observation, pair *pairInfo) uint32 {
	key := seriesKey{
		src: pair.src, dst: pair.dst, heavyLo: 1, // no code is heavy
		traits: k.traits(), kind: k.kind(), class: k.class(),
	}
	if k.lm() != noLM {
		src, dst := measured(o)
		var capacity uint64
		key.loc, capacity = s.cfg.Resolver.Locate(o.Tag.Layout, o.Tag.T&15, o.Tag.LM, src, dst)
		if key.class == classValue {
			if lo, hi, ok := s.traits[key.traits].table.HeavyCodes(capacity); ok {
				key.heavyLo, key.heavyHi = lo, hi
			}
		}
	}
	id := s.series.id(key)
	if n := len(s.series.list); n > len(s.levels[0].refs) {
		for i := range s.levels {
			s.levels[i].refs = append(s.levels[i].refs, make([]entryRef, n-len(s.levels[i].refs))...)
		}
	}
	return id
}
