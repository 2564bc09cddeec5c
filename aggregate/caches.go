package aggregate

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// The look-up caches stand between the hot path and the resolver. Their hashes are
// seeded at random, so that no traffic can be made up to collide; what they hold
// never changes a result. A full cache is emptied.

// inlineKeys is how many series a pair remembers beside its addresses.
const inlineKeys = 4

// pairSlot is one pair of addresses, in the direction of the measured path, with the
// series that it was found with last. It fills a cache line, so that most look-ups
// touch no other.
type pairSlot struct {
	addrs [4]uint64
	// recent has key<<32 | series+1, and is 0 at the end that is empty.
	recent [inlineKeys]uint64
}

// find is the series of a key that the pair remembers. It does not branch, since
// which of the keys comes next cannot be predicted.
func (p *pairSlot) find(key lookupKey) (series uint32, ok bool) {
	var found uint64
	for _, r := range &p.recent {
		found |= r & uint64(int64((r>>32^uint64(key))-1)>>63)
	}
	return uint32(found) - 1, found != 0
}

// remember adds a key that find does not have. It mostly replaces the last one, so
// that a rare key does not drive all others out; now and then all move on.
func (p *pairSlot) remember(key lookupKey, series uint32) {
	at := inlineKeys - 1
	for at > 0 && p.recent[at-1] == 0 {
		at--
	}
	if p.recent[at] != 0 && p.recent[at]%8 == 0 {
		copy(p.recent[:], p.recent[1:])
	}
	p.recent[at] = uint64(key)<<32 | uint64(series+1)
}

// holds tells whether the slot is in use for the addresses.
func (p *pairSlot) holds(a *[4]uint64) bool {
	src := (p.addrs[0] ^ a[0]) | (p.addrs[1] ^ a[1])
	dst := (p.addrs[2] ^ a[2]) | (p.addrs[3] ^ a[3])
	return src|dst == 0 && p.recent[0] != 0
}

// pairInfo is what is rarely needed of a pair.
type pairInfo struct {
	id       uint64 // from firstPair, never used twice; 0 for an empty slot
	src, dst GroupID
}

// firstPair leaves one number for observations without addresses.
const firstPair = 2

type pairCache struct {
	slots  []pairSlot // a power of two, at most a quarter full
	info   []pairInfo // by slot
	shift  uint8      // 32 - log2(len(slots))
	n      int
	limit  int // largest len(slots), at most 1<<32
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
	c.slots, c.info, c.n = make([]pairSlot, n), make([]pairInfo, n), 0
	c.shift = uint8(32 - bits.Len(uint(n-1)))
}

// get is the slot of the pair with the hash. A slot is in use once it remembers a
// series, which the caller of put sees to.
func (c *pairCache) get(addrs *[4]uint64, hash uint32) (slot uint32, found bool) {
	mask := uint32(len(c.slots) - 1)
	for i := hash >> c.shift; ; i++ {
		s := &c.slots[i&mask]
		if s.holds(addrs) {
			return i & mask, true
		}
		if s.recent[0] == 0 {
			return i & mask, false
		}
	}
}

// put adds a pair that get does not have. Slots that get returned before are no
// longer valid.
func (c *pairCache) put(addrs *[4]uint64, srcGroup, dstGroup GroupID) (slot uint32) {
	if c.n*4 >= len(c.slots) {
		c.makeRoom()
	}
	c.last++
	return c.insert(pairSlot{addrs: *addrs}, pairInfo{id: c.last, src: srcGroup, dst: dstGroup})
}

func (c *pairCache) makeRoom() {
	slots, info := c.slots, c.info
	if len(slots) >= c.limit {
		c.clear()
		c.resets++
		return
	}
	c.resize(2 * len(slots))
	for i := range slots {
		if info[i].id != 0 {
			c.insert(slots[i], info[i])
		}
	}
}

func (c *pairCache) insert(p pairSlot, info pairInfo) (slot uint32) {
	mask := uint32(len(c.slots) - 1)
	i := c.hash(&p.addrs) >> c.shift
	for c.info[i&mask].id != 0 {
		i++
	}
	c.n++
	c.slots[i&mask], c.info[i&mask] = p, info
	return i & mask
}

func (c *pairCache) clear() {
	clear(c.slots)
	clear(c.info)
	c.n = 0
}

func pairKey(src, dst *[16]byte) [4]uint64 {
	return [4]uint64{
		binary.LittleEndian.Uint64(src[:8]), binary.LittleEndian.Uint64(src[8:]),
		binary.LittleEndian.Uint64(dst[:8]), binary.LittleEndian.Uint64(dst[8:]),
	}
}

func (c *pairCache) hash(k *[4]uint64) uint32 {
	h1, l1 := bits.Mul64(k[0]^c.seeds[0], k[1]^c.seeds[1])
	h2, l2 := bits.Mul64(k[2]^c.seeds[2], k[3]^c.seeds[3])
	return uint32((h1 ^ l1 ^ bits.RotateLeft64(h2^l2, 23)) * 0x9e3779b97f4a7c15 >> 32)
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
