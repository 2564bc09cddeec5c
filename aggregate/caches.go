package aggregate

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// The look-up caches stand between the hot path and the resolver. Their hashes are
// seeded at random, so that no traffic can be made up to collide; what they hold
// never changes a result. A full cache is emptied.

// pairSlot is one pair of addresses, in the direction of the measured path. It
// fills a cache line.
type pairSlot struct {
	addrs    [4]uint64
	id       uint64 // from firstPair, never used twice; 0 for an empty slot
	src, dst GroupID
	_        uint64
}

// firstPair leaves one number for observations without addresses.
const firstPair = 2

type pairCache struct {
	slots  []pairSlot // a power of two, at most half full
	shift  uint8      // 64 - log2(len(slots))
	n      int
	limit  int // largest len(slots)
	last   uint64
	seeds  [4]uint64
	resets uint64
}

func newPairCache(limit int) pairCache {
	c := pairCache{limit: limit, last: firstPair - 1}
	for i := range c.seeds {
		c.seeds[i] = rand.Uint64()
	}
	c.resize(1024)
	return c
}

func (c *pairCache) resize(n int) {
	c.slots, c.n = make([]pairSlot, n), 0
	c.shift = uint8(64 - bits.Len(uint(n-1)))
}

// get is the slot of the pair, or nil.
func (c *pairCache) get(src, dst *[16]byte) *pairSlot {
	k := pairKey(src, dst)
	mask := uint64(len(c.slots) - 1)
	for i := c.hash(&k); ; i++ {
		s := &c.slots[i&mask]
		if s.addrs == k && s.id != 0 {
			return s
		}
		if s.id == 0 {
			return nil
		}
	}
}

// put adds a pair that get does not have. Slots that get returned before are no
// longer valid.
func (c *pairCache) put(src, dst *[16]byte, srcGroup, dstGroup GroupID) *pairSlot {
	if c.n*2 >= len(c.slots) {
		c.makeRoom()
	}
	c.last++
	return c.insert(pairSlot{addrs: pairKey(src, dst), id: c.last, src: srcGroup, dst: dstGroup})
}

func (c *pairCache) makeRoom() {
	old := c.slots
	if len(old) >= c.limit {
		clear(old)
		c.n = 0
		c.resets++
		return
	}
	c.resize(2 * len(old))
	for i := range old {
		if old[i].id != 0 {
			c.insert(old[i])
		}
	}
}

func (c *pairCache) insert(p pairSlot) *pairSlot {
	mask := uint64(len(c.slots) - 1)
	i := c.hash(&p.addrs)
	for c.slots[i&mask].id != 0 {
		i++
	}
	c.n++
	c.slots[i&mask] = p
	return &c.slots[i&mask]
}

func pairKey(src, dst *[16]byte) [4]uint64 {
	return [4]uint64{
		binary.LittleEndian.Uint64(src[:8]), binary.LittleEndian.Uint64(src[8:]),
		binary.LittleEndian.Uint64(dst[:8]), binary.LittleEndian.Uint64(dst[8:]),
	}
}

func (c *pairCache) hash(k *[4]uint64) uint64 {
	h1, l1 := bits.Mul64(k[0]^c.seeds[0], k[1]^c.seeds[1])
	h2, l2 := bits.Mul64(k[2]^c.seeds[2], k[3]^c.seeds[3])
	return (h1 ^ l1 ^ bits.RotateLeft64(h2^l2, 23)) * 0x9e3779b97f4a7c15 >> c.shift
}

// keySlot maps what the hot path can see of a series to its number.
type keySlot struct {
	key    uint64 // 0 for an empty slot
	series uint32
}

type keyCache struct {
	slots  []keySlot // a power of two, at most half full
	shift  uint8     // 64 - log2(len(slots))
	n      int
	limit  int // largest len(slots)
	seed   uint64
	resets uint64
}

func newKeyCache(limit int) keyCache {
	c := keyCache{limit: limit, seed: rand.Uint64() | 1}
	c.resize(4096)
	return c
}

func (c *keyCache) resize(n int) {
	c.slots, c.n = make([]keySlot, n), 0
	c.shift = uint8(64 - bits.Len(uint(n-1)))
}

func (c *keyCache) get(key uint64) (series uint32, ok bool) {
	mask := uint64(len(c.slots) - 1)
	for i := key * c.seed >> c.shift; ; i++ {
		s := &c.slots[i&mask]
		if s.key == key {
			return s.series, true
		}
		if s.key == 0 {
			return 0, false
		}
	}
}

// put adds a key that get does not have.
func (c *keyCache) put(key uint64, series uint32) {
	if c.n*2 >= len(c.slots) {
		c.makeRoom()
	}
	c.insert(keySlot{key, series})
}

func (c *keyCache) makeRoom() {
	old := c.slots
	if len(old) >= c.limit {
		c.clear()
		c.resets++
		return
	}
	c.resize(2 * len(old))
	for _, s := range old {
		if s.key != 0 {
			c.insert(s)
		}
	}
}

func (c *keyCache) insert(s keySlot) {
	mask := uint64(len(c.slots) - 1)
	i := s.key * c.seed >> c.shift
	for c.slots[i&mask].key != 0 {
		i++
	}
	c.n++
	c.slots[i&mask] = s
}

func (c *keyCache) clear() {
	clear(c.slots)
	c.n = 0
}
