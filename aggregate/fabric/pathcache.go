package fabric

import (
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
)

// Bounds of the cache of paths, in buckets of 64 bytes.
const (
	minBuckets = 1 << 6
	maxBuckets = 1 << 19
	bucketWays = 3
)

// found is what the paths of a pair have of a class of ports.
type found struct {
	answer  answer
	reached uint8 // as in paths.ports
}

// pathCache remembers what was found, by a pair of ends (never 0) and a class. It has
// a fixed size: what is new takes the place of what is old. Reading takes no lock,
// writers take turns. Its hash is seeded at random, so that no traffic can be made up
// to collide.
type pathCache struct {
	buckets []bucket // a power of two
	seed    uint64
}

// bucket is one cache line. version is odd while it is written; readers who see it
// change have read nothing.
type bucket struct {
	version atomic.Uint64
	ways    [bucketWays]struct{ pair, value atomic.Uint64 }
	_       uint64
}

// newPathCache makes a cache for the pairs of n attachments.
func newPathCache(n int) *pathCache {
	size := minBuckets
	for size < maxBuckets && size/max(n, 1) < n {
		size *= 2
	}
	return &pathCache{make([]bucket, size), rand.Uint64()}
}

func (c *pathCache) bucket(pair uint64, class int32) *bucket {
	hi, lo := bits.Mul64(pair^c.seed, uint64(class)^0x9e3779b97f4a7c15)
	return &c.buckets[(hi^lo)*0x9e3779b97f4a7c15>>(64-bits.Len(uint(len(c.buckets)-1)))]
}

func (c *pathCache) get(pair uint64, class int32) (f found, ok bool) {
	b := c.bucket(pair, class)
	version := b.version.Load()
	for i := range b.ways {
		w := &b.ways[i]
		if w.pair.Load() != pair {
			continue
		}
		v := w.value.Load()
		if v>>32 != uint64(class) {
			continue
		}
		f = found{answer(v & (1<<answerBits - 1)), uint8(v >> answerBits)}
		return f, version&1 == 0 && b.version.Load() == version
	}
	return f, false
}

// put is for one writer at a time.
func (c *pathCache) put(pair uint64, class int32, f found) {
	b := c.bucket(pair, class)
	version := b.version.Add(1)
	w := &b.ways[version/2%bucketWays]
	w.pair.Store(pair)
	w.value.Store(uint64(class)<<32 | uint64(f.reached)<<answerBits | uint64(f.answer))
	b.version.Store(version + 1)
}
