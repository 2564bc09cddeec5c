package aggregate

import (
	"net/netip"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// noLM stands for locator metadata that names nothing.
const noLM = 1 << 16

// lookup is what tells series apart, besides the addresses and the kind, before
// anything is resolved.
type lookup struct {
	lm     uint32 // 16 bits, or noLM
	traits uint8  // 6 bits
	class  class  // 3 bits
}

// lookup is the series of the observation.
func (s *Shard) lookup(o *decode.Observation, k lookup) uint32 {
	src, dst := o.Measured()
	pair := &s.noPair
	if o.Flags&decode.HasAddrs != 0 {
		pair = s.pairs.get(src, dst)
		if pair == nil {
			a, b := netip.AddrFrom16(*src).Unmap(), netip.AddrFrom16(*dst).Unmap()
			pair = s.pairs.put(src, dst, s.cfg.Resolver.Group(a), s.cfg.Resolver.Group(b))
		}
	}
	// 17 bits of locator metadata, 6 of traits, 3 of class and 1 of kind; 37 are left
	// for the pair.
	key := pair.id<<27 | uint64(k.lm)<<10 | uint64(k.traits)<<4 | uint64(k.class)<<1 | uint64(o.Kind)>>1
	if id, ok := s.keys.get(key); ok {
		return id
	}
	id := s.resolve(o, k, pair)
	s.keys.put(key, id)
	return id
}

// resolve finds the series of a key that was not met before.
func (s *Shard) resolve(o *decode.Observation, k lookup, pair *pairSlot) uint32 {
	key := seriesKey{
		src: pair.src, dst: pair.dst, heavyLo: 1, // no code is heavy
		traits: k.traits, kind: o.Kind, class: k.class,
	}
	if k.lm != noLM {
		var src, dst netip.Addr
		if o.Flags&decode.HasAddrs != 0 {
			a, b := o.Measured()
			src, dst = netip.AddrFrom16(*a).Unmap(), netip.AddrFrom16(*b).Unmap()
		}
		var capacity uint64
		key.loc, capacity = s.cfg.Resolver.Locate(csig.LayoutAt(int(k.traits>>4)), k.traits&15, o.Tag.LM, src, dst)
		if k.class == classValue {
			if lo, hi, ok := s.traits[k.traits].table.HeavyCodes(capacity); ok {
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
