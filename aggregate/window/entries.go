package window

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
)

// pageSeries is the number of series whose entries are in one page. Larger pages help traffic with a
// packet of nearly every series in each window, and cost windows of milliseconds much more.
const pageSeries = 4

// entries counts a window's observations by series, without the shard's weight. Entries are in pages:
// those of series whose numbers follow each other are together. So the number of a series leads to
// its entry without a search, and windows are folded and written from one end of memory to the other.
// The zero value is empty and ready for use.
type entries struct {
	compact   []compactEntry
	wide      []wideEntry
	compactAt pages
	wideAt    pages
	carried   table32      // of compact entries: codeKey to its carries, each of 256 observations
	dist      distribution // of wide entries
}

// compactEntry counts codes; everything else follows from them. It fills a cache line, and a packet
// touches no other: counts are modulo 256, and entries.carried holds the rest.
type compactEntry struct {
	bytes   uint64
	heavy   uint32 // of the series: heavyMask
	used    uint32 // bit c is set when code c was counted; 0 if nothing was
	carries uint32 // bit c is set when entries.carried has code c
	hist    [32]uint8
	_       [12]byte
}

// wideEntry fills a cache line.
type wideEntry struct {
	bytes, count, heavy uint64 // count is 0 if nothing was counted
	sum, heavySum       uint64
	min, max            uint64 // min is the largest number until there is a value
	heavyLo, heavyHi    uint32 // of the series: its range of heavy codes, or noCode twice
}

// noCode is no code of a tag.
const noCode = math.MaxUint32

// pages finds the pages of series, all of them full of entries.
type pages struct {
	of    []uint32 // by series / pageSeries: position of the page's first entry, plus 1; 0 without a page
	first []uint32 // by page: its first series
}

// find returns the position of a series' entry, plus 1; 0 without its page.
func (p *pages) find(id uint32) uint32 {
	if n := id / pageSeries; int(n) < len(p.of) && p.of[n] != 0 {
		return p.of[n] + id%pageSeries
	}
	return 0
}

// add adds the page of a series, and returns the first series of the page.
func (p *pages) add(id uint32) (first uint32) {
	n := id / pageSeries
	for int(n) >= len(p.of) {
		p.of = append(p.of, 0)
	}
	p.of[n] = uint32(len(p.first)*pageSeries + 1)
	p.first = append(p.first, n*pageSeries)
	return n * pageSeries
}

// series returns the series of an entry.
func (p *pages) series(entry uint32) uint32 { return p.first[entry/pageSeries] + entry%pageSeries }

func (p *pages) reset() {
	for _, first := range p.first {
		p.of[first/pageSeries] = 0
	}
	p.first = p.first[:0]
}

func (p *pages) bytes() uint64 { return uint64(cap(p.of)+cap(p.first)) * 4 }

// compactOf returns the position of a series' compact entry.
func (e *entries) compactOf(id uint32, t *seriesTable) uint32 {
	if at := e.compactAt.find(id); at != 0 {
		return at - 1
	}
	return e.addCompact(id, t)
}

// wideOf returns the position of a series' wide entry.
func (e *entries) wideOf(id uint32, t *seriesTable) uint32 {
	if at := e.wideAt.find(id); at != 0 {
		return at - 1
	}
	return e.addWide(id, t)
}

func (e *entries) addCompact(id uint32, t *seriesTable) uint32 {
	n, first := len(e.compact), e.compactAt.add(id)
	e.compact = extend(e.compact, pageSeries)
	clear(e.compact[n:])
	for i, heavy := range t.heavy[first:min(first+pageSeries, uint32(len(t.list)))] {
		e.compact[n+i].heavy = heavy
	}
	return uint32(n) + id%pageSeries
}

func (e *entries) addWide(id uint32, t *seriesTable) uint32 {
	n, first := len(e.wide), e.wideAt.add(id)
	e.wide = extend(e.wide, pageSeries)
	for i := range e.wide[n:] {
		e.wide[n+i] = wideEntry{min: math.MaxUint64, heavyLo: noCode, heavyHi: noCode}
	}
	e.dist.addPage()
	for known := first; known < min(first+pageSeries, uint32(len(t.list))); known++ {
		e.know(known, &t.list[known])
	}
	return uint32(n) + id%pageSeries
}

// know sets the heavy codes in a series' entry, if it has one.
func (e *entries) know(id uint32, s *series) {
	if at := e.compactAt.find(id); at != 0 {
		e.compact[at-1].heavy = s.heavyMask
	}
	if at := e.wideAt.find(id); at != 0 && s.heavyLo <= s.heavyHi {
		e.wide[at-1].heavyLo, e.wide[at-1].heavyHi = s.heavyLo, s.heavyHi
	}
}

// eachCompact lists the positions and series of compact entries in which something was counted.
func (e *entries) eachCompact(yield func(entry, id uint32) bool) {
	for i := range e.compact {
		if e.compact[i].used != 0 && !yield(uint32(i), e.compactAt.series(uint32(i))) {
			return
		}
	}
}

// eachWide lists the positions and series of wide entries in which something was counted.
func (e *entries) eachWide(yield func(entry, id uint32) bool) {
	for i := range e.wide {
		if e.wide[i].count != 0 && !yield(uint32(i), e.wideAt.series(uint32(i))) {
			return
		}
	}
}

// eachSeries lists the series with observations, perhaps twice.
func (e *entries) eachSeries(yield func(id uint32) bool) {
	for _, id := range e.eachCompact {
		if !yield(id) {
			return
		}
	}
	for _, id := range e.eachWide {
		if !yield(id) {
			return
		}
	}
}

// extend makes room for n more. It doubles the capacity, because smaller steps would copy large
// slices more often.
func extend[T any](s []T, n int) []T {
	if len(s)+n > cap(s) {
		s = slices.Grow(s, max(64, len(s), n))
	}
	return s[:len(s)+n]
}

// reserve makes room for somewhat more entries than another window has. Windows that follow each other
// have nearly the same series, and growth step by step copies all entries.
func (e *entries) reserve(o *entries) {
	e.compact, e.wide = roomOf(e.compact, o.compact), roomOf(e.wide, o.wide)
	e.dist.entries, e.dist.pages = roomOf(e.dist.entries, o.dist.entries), roomOf(e.dist.pages, o.dist.pages)
}

func roomOf[T any](s, other []T) []T {
	if n := len(other); n > cap(s) {
		return slices.Grow(s, n+n/8-len(s))
	}
	return s
}

// codeKey returns the key of an entry's code in entries.carried.
func codeKey(entry, code uint32) uint32 { return entry<<5 | code }

// carry counts 256 observations of a code in a compact entry, n times.
func (e *entries) carry(entry, code uint32, n uint64) {
	e.compact[entry].carries |= 1 << code
	slot, _ := e.carried.at(codeKey(entry, code))
	*slot = aggregate.AddSat(*slot, n)
}

// carriedOf returns the number of carries of a code, each of 256 observations.
func (e *entries) carriedOf(entry, code uint32) uint64 {
	if e.compact[entry].carries>>code&1 == 0 {
		return 0
	}
	return e.carried.get(codeKey(entry, code))
}

// count returns the number of observations of a code in a compact entry.
func (e *entries) count(entry, code uint32) uint64 {
	return e.carriedOf(entry, code)<<8 + uint64(e.compact[entry].hist[code])
}

// total returns the number of observations in a compact entry.
func (e *entries) total(entry uint32) uint64 {
	const even = 0x00ff00ff00ff00ff
	c, pairs, n := &e.compact[entry], uint64(0), uint64(0)
	for at := 0; at < len(c.hist); at += 8 {
		counts := binary.LittleEndian.Uint64(c.hist[at:])
		pairs += counts&even + counts>>8&even
	}
	for carries := c.carries; carries != 0; carries &= carries - 1 {
		n += e.carriedOf(entry, uint32(bits.TrailingZeros32(carries))&31) << 8
	}
	return n + pairs*0x0001000100010001>>48
}

// addBytes adds eight bytes to eight others, each modulo 256. over has the highest bit of each byte
// that overflowed, and no other bit.
func addBytes(a, b uint64) (sum, over uint64) {
	const high = 0x8080808080808080
	sum = (a&^high + b&^high) ^ (a^b)&high
	return sum, (a&b | (a|b)&^sum) & high
}

// addValue counts the value of an observation of a wide series. It does not branch on the value,
// which the processor cannot predict. It returns 1 for a heavy one.
func (e *wideEntry) addValue(v uint64, code uint32) (heavy uint32) {
	e.min, e.max = min(e.min, v), max(e.max, v)
	e.sum = aggregate.AddSat(e.sum, v)
	if code-e.heavyLo <= e.heavyHi-e.heavyLo {
		heavy = 1
	}
	e.heavy += uint64(heavy)
	e.heavySum = aggregate.AddSat(e.heavySum, v*uint64(heavy))
	return heavy
}

func (e *wideEntry) merge(o *wideEntry) {
	e.min, e.max = min(e.min, o.min), max(e.max, o.max)
	e.sum = aggregate.AddSat(e.sum, o.sum)
	e.heavySum = aggregate.AddSat(e.heavySum, o.heavySum)
	e.count += o.count
	e.heavy += o.heavy
	e.bytes = aggregate.AddSat(e.bytes, o.bytes)
}

// add adds the counts of another window. renumbered gives the series of its entries new numbers, unless
// it is nil.
func (e *entries) add(o *entries, t *seriesTable, renumbered []uint32) {
	number := func(id uint32) uint32 {
		if renumbered != nil {
			return renumbered[id]
		}
		return id
	}
	e.reserve(o)
	for from, id := range o.eachCompact {
		e.merge(e.compactOf(number(id), t), o, from)
	}
	for from, id := range o.eachWide {
		to := e.wideOf(number(id), t)
		e.wide[to].merge(&o.wide[from])
		e.dist.merge(to, &o.dist, from)
	}
}

// merge adds the counts of a compact entry of another window.
func (e *entries) merge(entry uint32, o *entries, from uint32) {
	to, add := &e.compact[entry], &o.compact[from]
	for at := 0; at < len(to.hist); at += 8 {
		sum, over := addBytes(binary.LittleEndian.Uint64(to.hist[at:]), binary.LittleEndian.Uint64(add.hist[at:]))
		binary.LittleEndian.PutUint64(to.hist[at:], sum)
		for ; over != 0; over &= over - 1 {
			e.carry(entry, uint32(at+bits.TrailingZeros64(over)/8), 1)
		}
	}
	for carries := add.carries; carries != 0; carries &= carries - 1 {
		c := uint32(bits.TrailingZeros32(carries)) & 31
		e.carry(entry, c, o.carriedOf(from, c))
	}
	to.used |= add.used
	to.bytes = aggregate.AddSat(to.bytes, add.bytes)
}

// renumber gives the series of all entries new numbers.
func (e *entries) renumber(renumbered []uint32, t *seriesTable) {
	old := *e
	*e = entries{}
	e.add(&old, t, renumbered)
}

// reset forgets all counts and keeps the memory, unless it was hardly used.
func (e *entries) reset() {
	e.compact, e.wide = shrink(e.compact), shrink(e.wide)
	e.compactAt.reset()
	e.wideAt.reset()
	e.carried.reset()
	e.dist.reset()
}

// shrink empties s, and releases its memory if it was hardly used.
func shrink[T any](s []T) []T {
	if cap(s) > 1024 && len(s)*32 < cap(s) {
		return nil
	}
	return s[:0]
}

func (e *entries) bytes() uint64 {
	return uint64(cap(e.compact)+cap(e.wide))*64 + e.compactAt.bytes() + e.wideAt.bytes() + e.carried.bytes() + e.dist.bytes()
}
