package window

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
)

// endpointClass numbers a class of addresses that the resolver treats alike. Sources and destinations have
// separate numbers. Number 0 stands for no address.
type endpointClass = uint32

// classBits is the number of bits of an endpointClass.
const classBits = 18

// endpointSlot holds the classes of one prefix's addresses, as a source and as a destination. They are 0 in
// an empty slot.
type endpointSlot struct {
	hi, lo   uint64
	src, dst endpointClass
}

// differs returns 0 if the slot holds the bits of an address.
func (s *endpointSlot) differs(hi, lo uint64) uint64 { return (s.hi ^ hi) | (s.lo ^ lo) }

// endpointKey identifies a class of addresses.
type endpointKey struct {
	dst        bool
	group      aggregate.GroupID
	class      uint64
	suspicious bool
}

// addressMask selects the bits of an address that matter.
type addressMask struct{ hi, lo uint64 }

// mask selects the leading bits of an address of 16 bytes.
func mask(bits int) addressMask {
	var b [16]byte
	for i := range bits {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return addressMask{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// mapped is the number of bits before an IPv4 address in an IPv6 one.
const mapped = 96

// endpointCache caches the classes of addresses by the leading bits that matter: thousands of hosts share a
// few prefixes, which stay in the first-level caches.
type endpointCache struct {
	resolver aggregate.Resolver
	classes  aggregate.Classifier // nil if the resolver is no Classifier

	slots []endpointSlot // a power of two; at most half full, and nearly empty below the limit
	shift uint8          // 64 - log2(len(slots))
	n     int
	limit int // largest len(slots), at most 2<<classBits
	seeds *flow.Seeds
	// of addresses that begin with 64 zero bits, and of others: IPv4 ones are among the former, and get as
	// many bits as IPv6 ones need if that is more
	masks  [2]addressMask
	resets uint64

	ids        map[endpointKey]endpointClass // with a Classifier; else each address has its own numbers
	src, dst   []aggregate.GroupID           // by class
	watch      Watch                         // nil if nothing watches
	suspicious []bool                        // by class of a source
	way        []uint32                      // by class of a source: number of the known way of its packets
	onWays     map[wayKey]endpointClass
}

func newEndpointCache(r aggregate.Resolver, w Watch, seeds *flow.Seeds, limit int) endpointCache {
	c := endpointCache{resolver: r, watch: w, limit: min(limit, 2<<classBits), seeds: seeds}
	v4, v6 := 32, 128
	if c.classes, _ = r.(aggregate.Classifier); c.classes != nil {
		v4, v6 = c.classes.AddressBits()
		if w != nil {
			strange4, strange6 := w.SourceBits()
			v4, v6 = max(v4, strange4), max(v6, strange6)
		}
	}
	c.masks = [2]addressMask{mask(max(mapped+v4, v6)), mask(v6)}
	c.resize(1024)
	c.clear()
	return c
}

func (c *endpointCache) resize(n int) {
	c.slots, c.n = make([]endpointSlot, n), 0
	c.shift = uint8(64 - bits.Len(uint(n-1)))
}

// prefix returns the bits of an address that matter, as two halves in little endian. It does not
// branch on the kind of address, which the processor cannot predict.
func (c *endpointCache) prefix(a *[16]byte) (hi, lo uint64) {
	hi, lo = binary.LittleEndian.Uint64(a[:8]), binary.LittleEndian.Uint64(a[8:])
	m := &c.masks[(hi|-hi)>>63]
	return hi & m.hi, lo & m.lo
}

// clear forgets all addresses and numbers the next ones from the beginning.
func (c *endpointCache) clear() {
	clear(c.slots)
	c.n = 0
	c.ids = make(map[endpointKey]endpointClass)
	c.src, c.dst = append(c.src[:0], aggregate.UnknownGroup), append(c.dst[:0], aggregate.UnknownGroup)
	c.suspicious, c.way = append(c.suspicious[:0], false), append(c.way[:0], 0)
	c.onWays = make(map[wayKey]endpointClass)
}

// full reports whether the cache has no room for n more addresses.
func (c *endpointCache) full(n int) bool { return (c.n+n)*2 >= c.limit || len(c.src)+n >= 1<<classBits }

// pair returns the classes of a source and a destination; the cache must have room for both. Most are
// in their first slot. It tests both at once, because the processor cannot predict collisions.
func (c *endpointCache) pair(src, dst *[16]byte) (from, to endpointClass) {
	mask, shift := uint64(len(c.slots)-1), c.shift&63
	hi, lo := c.prefix(src)
	s := &c.slots[c.seeds.Address(hi, lo)>>shift&mask]
	other := s.differs(hi, lo)
	hi, lo = c.prefix(dst)
	d := &c.slots[c.seeds.Address(hi, lo)>>shift&mask]
	other |= d.differs(hi, lo)
	if other == 0 && s.src != 0 && d.src != 0 {
		return s.src, d.dst
	}
	from = c.get(src).src // its slot may move
	return from, c.get(dst).dst
}

// get returns the address's slot. The cache must not be full.
func (c *endpointCache) get(a *[16]byte) *endpointSlot {
	hi, lo := c.prefix(a)
	mask := uint64(len(c.slots) - 1)
	for i := c.seeds.Address(hi, lo) >> c.shift; ; i++ {
		s := &c.slots[i&mask]
		if s.differs(hi, lo) == 0 && s.src != 0 {
			return s
		}
		if s.src == 0 {
			return c.add(a)
		}
	}
}

// sparse is the least number of slots for each address, below the limit. So hardly any address is
// outside its first slot, which the processor could not predict. Empty slots are not read, so they
// need no room in its caches.
const sparse = 16

// add resolves an address that is not in the cache.
func (c *endpointCache) add(a *[16]byte) *endpointSlot {
	if c.n*sparse >= len(c.slots) && len(c.slots) < c.limit {
		c.grow()
	}
	addr := netip.AddrFrom16(*a).Unmap()
	group := c.resolver.Group(addr)
	var s endpointSlot
	s.hi, s.lo = c.prefix(a)
	strange := c.watch != nil && c.watch.Suspicious(addr)
	if c.classes == nil {
		s.src, s.dst = number(&c.src, group), number(&c.dst, group)
	} else {
		src, dst := c.classes.Classes(addr)
		s.src, s.dst = c.known(&c.src, endpointKey{false, group, src, strange}), c.known(&c.dst, endpointKey{dst: true, group: group, class: dst})
	}
	if int(s.src) == len(c.suspicious) {
		c.suspicious, c.way = append(c.suspicious, strange), append(c.way, 0)
	}
	return c.insert(s)
}

// known returns the number of a class, and assigns one to a new class.
func (c *endpointCache) known(groups *[]aggregate.GroupID, k endpointKey) endpointClass {
	id, ok := c.ids[k]
	if !ok {
		id = number(groups, k.group)
		c.ids[k] = id
	}
	return id
}

// number assigns the next number, to a class in the group.
func number(groups *[]aggregate.GroupID, g aggregate.GroupID) endpointClass {
	*groups = append(*groups, g)
	return endpointClass(len(*groups) - 1)
}

func (c *endpointCache) grow() {
	old := c.slots
	c.resize(2 * len(old))
	for _, s := range old {
		if s.src != 0 {
			c.insert(s)
		}
	}
}

func (c *endpointCache) insert(s endpointSlot) *endpointSlot {
	mask := uint64(len(c.slots) - 1)
	i := c.seeds.Address(s.hi, s.lo) >> c.shift
	for c.slots[i&mask].src != 0 {
		i++
	}
	c.n++
	c.slots[i&mask] = s
	return &c.slots[i&mask]
}

func (c *endpointCache) bytes() uint64 {
	const mapSlotBytes = 48
	return uint64(len(c.slots))*24 + uint64(cap(c.src)+cap(c.dst))*8 + uint64(cap(c.suspicious)+4*cap(c.way)) + uint64(len(c.ids)+len(c.onWays))*mapSlotBytes
}
