package remote

import "iter"

// fairCache is an LRU cache shared by several owners. An owner holds at most share entries;
// beyond that its least recently used one is evicted. Beyond total entries, the owner with the
// most entries loses its oldest ones, so an owner that adds entries without end evicts only its
// own. It is not safe for concurrent use.
type fairCache[K comparable, V any] struct {
	share, total int
	evicted      uint64 // number of evicted entries

	entries map[K]*cacheEntry[K, V]
	owners  map[string]*cacheOwner[K, V]
}

// cacheOwner holds the entries of one owner in a ring around root: root.newer is the oldest
// entry, root.older the newest.
type cacheOwner[K comparable, V any] struct {
	name string
	n    int
	root cacheEntry[K, V]
}

type cacheEntry[K comparable, V any] struct {
	key          K
	value        V
	owner        *cacheOwner[K, V]
	newer, older *cacheEntry[K, V]
}

// evictShare means that one in evictShare of the largest owner's entries is evicted at once,
// since finding that owner takes a step for each owner.
const evictShare = 8

func newFairCache[K comparable, V any](share, total int) *fairCache[K, V] {
	return &fairCache[K, V]{share: share, total: total, entries: map[K]*cacheEntry[K, V]{}, owners: map[string]*cacheOwner[K, V]{}}
}

// get returns a value and marks it as used. The pointer is valid until the entry is removed.
func (c *fairCache[K, V]) get(k K) *V {
	e := c.entries[k]
	if e == nil {
		return nil
	}
	e.unlink()
	e.link()
	return &e.value
}

// put sets a value. A new entry belongs to the owner; an existing one keeps its own.
func (c *fairCache[K, V]) put(owner string, k K, v V) {
	if have := c.get(k); have != nil {
		*have = v
		return
	}
	o := c.owners[owner]
	if o == nil {
		o = &cacheOwner[K, V]{name: owner}
		o.root.newer, o.root.older = &o.root, &o.root
	}
	if o.n >= c.share {
		c.evict(o.root.newer)
	}
	if len(c.entries) >= c.total {
		largest := c.largest()
		for range max(1, largest.n/evictShare) {
			c.evict(largest.root.newer)
		}
	}
	e := &cacheEntry[K, V]{key: k, value: v, owner: o}
	e.link()
	c.entries[k], c.owners[owner] = e, o
	o.n++
}

// remove removes an entry, if it exists.
func (c *fairCache[K, V]) remove(k K) {
	e := c.entries[k]
	if e == nil {
		return
	}
	e.unlink()
	delete(c.entries, k)
	if e.owner.n--; e.owner.n == 0 {
		delete(c.owners, e.owner.name)
	}
}

// of yields the entries of an owner, most recently used first.
func (c *fairCache[K, V]) of(owner string) iter.Seq2[K, *V] {
	return func(yield func(K, *V) bool) {
		o := c.owners[owner]
		if o == nil {
			return
		}
		for e := o.root.older; e != &o.root && yield(e.key, &e.value); e = e.older {
		}
	}
}

func (c *fairCache[K, V]) evict(e *cacheEntry[K, V]) {
	c.evicted++
	c.remove(e.key)
}

func (c *fairCache[K, V]) largest() (most *cacheOwner[K, V]) {
	for _, o := range c.owners {
		if most == nil || o.n > most.n {
			most = o
		}
	}
	return most
}

func (e *cacheEntry[K, V]) unlink() {
	e.newer.older, e.older.newer = e.older, e.newer
}

// link makes the entry its owner's newest.
func (e *cacheEntry[K, V]) link() {
	root := &e.owner.root
	e.newer, e.older = root, root.older
	e.older.newer, root.older = e, e
}
