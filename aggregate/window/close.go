package window

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
)

// minCompactAt is the number of series below which dead ones are left alone.
const minCompactAt = 4096

// Flush accepts what waits in quarantine and closes every window, as at the end of
// a capture. The shard can go on: what it writes for the same windows later adds up
// with what it wrote before.
func (s *Shard) Flush(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	c := &s.clock
	if !c.started && len(c.waiting) > 0 {
		c.started = true
		c.now = c.waiting[0].TimeNS
	}
	if err := s.release(ctx); err != nil {
		return err
	}
	s.apply()
	s.flushing = true
	defer func() { s.flushing = false }()
	for i := range s.levels {
		for len(s.levels[i].open) > 0 {
			if err := s.close(ctx, i, s.levels[i].open[0], c.now); err != nil {
				return err
			}
		}
	}
	s.settle()
	return nil
}

// closeDue closes the windows that are due at the time, the finest first, so that
// a coarse window has all that it is made of.
func (s *Shard) closeDue(ctx context.Context, ns int64) error {
	s.apply()
	coarse := false
	for i := range s.levels {
		l := &s.levels[i]
		for j := 0; j < len(l.open); {
			if w := l.open[j]; w.due > ns {
				j++
				continue
			}
			if err := s.close(ctx, i, l.open[j], ns); err != nil {
				return err
			}
			coarse = i == len(s.levels)-1
		}
	}
	// A series lives as long as the coarsest window that it was seen in.
	if coarse && s.series.current >= s.compactAt {
		s.dropDeadSeries()
	}
	s.settle()
	return nil
}

// settle brings the watermark's idea of the open windows up to date.
func (s *Shard) settle() {
	s.clock.leave()
	s.clock.nextDue = s.levels[0].nextDue()
	for i := range s.levels[1:] {
		s.clock.nextDue = min(s.clock.nextDue, s.levels[1+i].nextDue())
	}
}

// close writes the window's rows and folds it into the next coarser level. ns is
// where the watermark is going.
func (s *Shard) close(ctx context.Context, i int, w *window, ns int64) error {
	l := &s.levels[i]
	if i == 0 {
		s.tally(w)
	}
	if err := s.write(ctx, l, w); err != nil {
		s.err = fmt.Errorf("write window of %s at %s: %w",
			time.Duration(l.res), time.Unix(0, w.start).UTC().Format(time.RFC3339Nano), err)
		return s.err
	}
	if i+1 < len(s.levels) {
		up := &s.levels[i+1]
		start := up.floor(w.start)
		to := up.find(start)
		if to == nil && s.clock.now < up.dueAt(start) {
			to = up.begin(start, up.dueAt(start), false)
		}
		if to == nil {
			var err error
			if to, err = s.reopen(ctx, i+1, start, ns); err != nil {
				return err
			}
		}
		up.fold(to, w, &s.series)
		s.counts.FlowsForgotten += uint64(to.flows.Merge(&w.flows))
	}
	l.end(w)
	return nil
}

// reopen begins a delta window for one that was closed. It stays open for the
// level's lateness from the time ns on, so that what comes late together is written
// together.
func (s *Shard) reopen(ctx context.Context, i int, start, ns int64) (*window, error) {
	l := &s.levels[i]
	s.counts.Deltas++
	if l.deltas >= maxDeltas {
		s.apply()
		if err := s.close(ctx, i, l.oldestDelta(), ns); err != nil {
			return nil, err
		}
		s.settle()
	}
	return l.begin(start, ns+l.lateness, true), nil
}

// tally counts what becomes of the observations in a closed window of the finest
// level.
func (s *Shard) tally(w *window) {
	for i := range w.compact {
		s.tallyEntry(w.compact[i].series, w.total(uint32(i)))
	}
	for i := range w.wide {
		s.tallyEntry(w.wide[i].series, uint64(w.wide[i].count))
	}
}

func (s *Shard) tallyEntry(id uint32, n uint64) {
	sr := &s.series.list[id]
	n *= s.cfg.Weight
	c := &s.counts
	if sr.overflow {
		c.Overflow += n
	} else {
		c.Stored += n
	}
	c.BySignal[sr.signal] += n
	switch sr.class {
	case classUntouched:
		c.Untouched += n
	case classTrimmed:
		c.Trimmed += n
	case classRaw, classCount:
		c.Unknown += n
	}
}

// end numbers a class of addresses that the resolver does not tell apart. The two
// roles of an address are numbered apart. End 0 is that of no address.
type end = uint32

// endBits bounds the ends of a role.
const endBits = 18

// endSlot is what the addresses of one prefix are as a source and as a destination. Its ends
// are 0 in an empty slot.
type endSlot struct {
	hi, lo   uint64
	src, dst end
}

// endKey is what makes addresses a class.
type endKey struct {
	dst     bool
	group   aggregate.GroupID
	class   uint64
	strange bool
}

// addressMask leaves of an address the bits that matter.
type addressMask struct{ hi, lo uint64 }

// mask leaves the leading bits of an address of 16 bytes.
func mask(bits int) addressMask {
	var b [16]byte
	for i := range bits {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return addressMask{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// mapped are the bits in front of an IPv4 address in an IPv6 one.
const mapped = 96

// endCache remembers addresses by as many of their leading bits as matter: thousands of hosts
// are a few prefixes, which stay in the first caches.
type endCache struct {
	resolver aggregate.Resolver
	classes  aggregate.Classifier // nil when the resolver is none

	slots  []endSlot // a power of two, at most half full
	shift  uint8     // 64 - log2(len(slots))
	n      int
	limit  int // largest len(slots), at most 2<<endBits
	seeds  *flow.Seeds
	masks  [2]addressMask // of IPv4 and IPv6
	resets uint64

	ids      map[endKey]end      // with classes; else each address has ends of its own
	src, dst []aggregate.GroupID // by end
	watch    Watch               // nil for nobody
	strange  []bool              // by end of a source
	way      []uint32            // by end of a source: what is known of the paths of its packets
	onWays   map[wayKey]end
}

func newEndCache(r aggregate.Resolver, w Watch, seeds *flow.Seeds, limit int) endCache {
	c := endCache{resolver: r, watch: w, limit: min(limit, 2<<endBits), seeds: seeds}
	v4, v6 := 32, 128
	if c.classes, _ = r.(aggregate.Classifier); c.classes != nil {
		v4, v6 = c.classes.AddressBits()
		if w != nil {
			strange4, strange6 := w.SourceBits()
			v4, v6 = max(v4, strange4), max(v6, strange6)
		}
	}
	c.masks = [2]addressMask{mask(mapped + v4), mask(v6)}
	c.resize(1024)
	c.clear()
	return c
}

func (c *endCache) resize(n int) {
	c.slots, c.n = make([]endSlot, n), 0
	c.shift = uint8(64 - bits.Len(uint(n-1)))
}

// prefix leaves of an address what matters, as two halves in little endian. It does not branch
// on the kind of address, which cannot be predicted.
func (c *endCache) prefix(a *[16]byte) (hi, lo uint64) {
	hi, lo = binary.LittleEndian.Uint64(a[:8]), binary.LittleEndian.Uint64(a[8:])
	other := hi | (lo&math.MaxUint32 ^ 0xffff0000) // 0 for an IPv4 address
	m := &c.masks[(other|-other)>>63]
	return hi & m.hi, lo & m.lo
}

// clear forgets all addresses: the next ones are numbered from the beginning.
func (c *endCache) clear() {
	clear(c.slots)
	c.n = 0
	c.ids = make(map[endKey]end)
	c.src, c.dst = append(c.src[:0], aggregate.UnknownGroup), append(c.dst[:0], aggregate.UnknownGroup)
	c.strange, c.way = append(c.strange[:0], false), append(c.way[:0], 0)
	c.onWays = make(map[wayKey]end)
}

// full reports whether n more addresses are more than the cache holds.
func (c *endCache) full(n int) bool { return (c.n+n)*2 >= c.limit || len(c.src)+n >= 1<<endBits }

// pair returns the ends of a source and a destination, for which the cache has to have room. Most are
// where they are looked for first, which is found out about both at once: whether others are in the
// way cannot be predicted.
func (c *endCache) pair(src, dst *[16]byte) (from, to end) {
	mask, shift := uint64(len(c.slots)-1), c.shift&63
	hi, lo := c.prefix(src)
	s := &c.slots[c.seeds.Address(hi, lo)>>shift&mask]
	other := s.hi ^ hi | s.lo ^ lo
	hi, lo = c.prefix(dst)
	d := &c.slots[c.seeds.Address(hi, lo)>>shift&mask]
	other |= d.hi ^ hi | d.lo ^ lo
	if other == 0 && s.src != 0 && d.src != 0 {
		return s.src, d.dst
	}
	from = c.get(src).src // its slot may move
	return from, c.get(dst).dst
}

// get returns the address's slot. It has to be one of a cache that is not full.
func (c *endCache) get(a *[16]byte) *endSlot {
	hi, lo := c.prefix(a)
	mask := uint64(len(c.slots) - 1)
	for i := c.seeds.Address(hi, lo) >> c.shift; ; i++ {
		s := &c.slots[i&mask]
		if (s.hi^hi)|(s.lo^lo) == 0 && s.src != 0 {
			return s
		}
		if s.src == 0 {
			return c.add(a)
		}
	}
}

// add resolves an address that the cache does not have.
func (c *endCache) add(a *[16]byte) *endSlot {
	if c.n*4 >= len(c.slots) && len(c.slots) < c.limit {
		c.grow()
	}
	addr := netip.AddrFrom16(*a).Unmap()
	group := c.resolver.Group(addr)
	var s endSlot
	s.hi, s.lo = c.prefix(a)
	strange := c.watch != nil && c.watch.Strange(addr)
	if c.classes == nil {
		s.src, s.dst = number(&c.src, group), number(&c.dst, group)
	} else {
		src, dst := c.classes.Classes(addr)
		s.src, s.dst = c.known(&c.src, endKey{false, group, src, strange}), c.known(&c.dst, endKey{dst: true, group: group, class: dst})
	}
	if int(s.src) == len(c.strange) {
		c.strange, c.way = append(c.strange, strange), append(c.way, 0)
	}
	return c.insert(s)
}

// known returns the end of a class.
func (c *endCache) known(groups *[]aggregate.GroupID, k endKey) end {
	id, ok := c.ids[k]
	if !ok {
		id = number(groups, k.group)
		c.ids[k] = id
	}
	return id
}

// number returns a new end.
func number(groups *[]aggregate.GroupID, g aggregate.GroupID) end {
	*groups = append(*groups, g)
	return end(len(*groups) - 1)
}

func (c *endCache) grow() {
	old := c.slots
	c.resize(2 * len(old))
	for _, s := range old {
		if s.src != 0 {
			c.insert(s)
		}
	}
}

func (c *endCache) insert(s endSlot) *endSlot {
	mask := uint64(len(c.slots) - 1)
	i := c.seeds.Address(s.hi, s.lo) >> c.shift
	for c.slots[i&mask].src != 0 {
		i++
	}
	c.n++
	c.slots[i&mask] = s
	return &c.slots[i&mask]
}

func (c *endCache) bytes() uint64 {
	const mapSlotBytes = 48
	return uint64(len(c.slots))*24 + uint64(cap(c.src)+cap(c.dst))*8 + uint64(cap(c.strange)+4*cap(c.way)) + uint64(len(c.ids)+len(c.onWays))*mapSlotBytes
}
