package window

import (
	"math/bits"
	"math/rand/v2"
)

// The look-up caches stand between the hot path and the resolver. Their hashes are
// seeded at random, so that no traffic can be made up to collide; what they hold
// never changes a result. A full cache is emptied.

// keySlot maps what the hot path can see of a series to its number.
type keySlot struct {
	key    uint64 // 0 for an empty slot
	series uint32
	watch  uint32 // least code of observations that are noticed
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

// touch reads where the key would be, so that get finds it in the processor's cache.
func (c *keyCache) touch(key uint64) uint64 {
	return c.slots[key*c.seed>>c.shift&uint64(len(c.slots)-1)].key
}

func (c *keyCache) get(key uint64) (series, watch uint32, ok bool) {
	mask := uint64(len(c.slots) - 1)
	for i := key * c.seed >> c.shift; ; i++ {
		s := &c.slots[i&mask]
		if s.key == key {
			return s.series, s.watch, true
		}
		if s.key == 0 {
			return 0, 0, false
		}
	}
}

// put adds a key that get does not have.
func (c *keyCache) put(s keySlot) {
	if c.n*2 >= len(c.slots) {
		c.makeRoom()
	}
	c.insert(s)
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

func (c *keyCache) bytes() uint64 { return uint64(len(c.slots)) * 16 }
