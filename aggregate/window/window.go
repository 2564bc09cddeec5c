package window

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
)

// window accumulates one window at one resolution. It counts unweighted observations: the shard's
// weight is applied when rows are made.
//
// A series can have several entries in a window, all but the last one sealed because a count could
// not grow further. Their rows merge.
type window struct {
	start, end int64
	due        int64 // closes when the watermark reaches it
	delta      bool  // the window was closed before
	slot       uint32
	gen        uint32 // unique among all windows to which entryRefs can refer

	compact []compactEntry
	wide    []wideEntry
	carried table32      // codeKey to the number of 256 observations, of compact entries
	index   table32      // series to entry, for the entries below indexedTo
	dist    distribution // of wide entries
	flows   flow.Table

	indexedTo struct{ compact, wide int }
}

// compactEntry counts codes; everything else follows from them. It fills a cache line, and a packet
// touches no other: counts are modulo 256, and window.carried holds the rest.
type compactEntry struct {
	bytes   uint64
	series  uint32
	heavy   uint32 // of the series: heavyMask
	used    uint32 // bit c is set when code c was counted
	carries uint32 // bit c is set when window.carried has code c
	hist    [32]uint8
	_       [8]byte
}

// codeKey returns the key of an entry's code in window.carried.
func codeKey(entry, code uint32) uint32 { return entry<<5 | code }

// maxCarried bounds a number in window.carried: at it, an entry is sealed.
const maxCarried = math.MaxUint32 - 256

// wideEntry fills a cache line. Its min is the largest number until there is a value.
type wideEntry struct {
	bytes, sum, min, max, heavySum uint64
	series, count, heavy           uint32
	// Of the series: its range of heavy codes, and 1 if it has one.
	heavyLo, heavyHi, hasHeavy uint32
}

// add appends an empty entry. Compact entries beyond the length are kept zeroed.
func (w *window) add(id uint32, s *series) uint32 {
	if s.wide {
		e := wideEntry{series: id, min: math.MaxUint64, heavyLo: s.heavyLo, heavyHi: s.heavyHi}
		if s.heavyLo <= s.heavyHi {
			e.hasHeavy = 1
		}
		w.wide = extend(w.wide)
		w.wide[len(w.wide)-1] = e
		w.dist.add()
		return uint32(len(w.wide) - 1)
	}
	w.compact = extend(w.compact)
	e := &w.compact[len(w.compact)-1]
	e.series, e.heavy = id, s.heavyMask
	return uint32(len(w.compact) - 1)
}

// extend makes room for one more. It doubles the capacity, because smaller steps would copy large
// slices more often.
func extend[T any](s []T) []T {
	if len(s) == cap(s) {
		s = slices.Grow(s, max(64, len(s)))
	}
	return s[:len(s)+1]
}

// carry counts 256 observations of a code in a compact entry, n times. It returns false when the
// number is full: the next observations need another entry.
func (w *window) carry(entry, code, n uint32) (room bool) {
	w.compact[entry].carries |= 1 << code
	slot, _ := w.carried.at(codeKey(entry, code))
	*slot += n
	return *slot < maxCarried
}

// carriedOf returns the number of carries of 256 observations of a code.
func (w *window) carriedOf(entry, code uint32) uint32 {
	if w.compact[entry].carries>>code&1 == 0 {
		return 0
	}
	slot, _ := w.carried.at(codeKey(entry, code))
	return *slot
}

// count returns the number of observations of a code in a compact entry.
func (w *window) count(entry, code uint32) uint64 {
	return uint64(w.carriedOf(entry, code))<<8 + uint64(w.compact[entry].hist[code])
}

// total returns the number of observations in a compact entry.
func (w *window) total(entry uint32) uint64 {
	const even = 0x00ff00ff00ff00ff
	e, pairs, n := &w.compact[entry], uint64(0), uint64(0)
	for at := 0; at < len(e.hist); at += 8 {
		counts := binary.LittleEndian.Uint64(e.hist[at:])
		pairs += counts&even + counts>>8&even
	}
	for carries := e.carries; carries != 0; carries &= carries - 1 {
		n += uint64(w.carriedOf(entry, uint32(bits.TrailingZeros32(carries))&31)) << 8
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

// reset empties the window and keeps its memory, unless it was hardly used.
func (w *window) reset() {
	clear(w.compact)
	w.compact, w.wide = shrink(w.compact), shrink(w.wide)
	w.carried.reset()
	w.forgetIndex()
	w.dist.reset()
	w.flows.Reset()
}

// shrink empties s, and releases its memory if it was hardly used.
func shrink[T any](s []T) []T {
	if cap(s) > 1024 && len(s)*32 < cap(s) {
		return nil
	}
	return s[:0]
}

func (w *window) bytes() uint64 {
	return uint64(cap(w.compact)+cap(w.wide))*64 + w.carried.bytes() + w.index.bytes() + w.dist.bytes() + w.flows.Bytes()
}

// addValue counts the value of an observation of a wide series. It does not branch on the value,
// which the processor cannot predict. It returns 1 for a heavy one.
func (e *wideEntry) addValue(v uint64, code uint32) (heavy uint32) {
	e.min, e.max = min(e.min, v), max(e.max, v)
	e.sum = aggregate.AddSat(e.sum, v)
	if code-e.heavyLo <= e.heavyHi-e.heavyLo {
		heavy = 1
	}
	heavy &= e.hasHeavy
	e.heavy += heavy
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

// fits reports whether the counts of a compact entry of another window can be added to one of w.
func (w *window) fits(entry uint32, o *window, from uint32) bool {
	for both := w.compact[entry].carries & o.compact[from].carries; both != 0; both &= both - 1 {
		c := uint32(bits.TrailingZeros32(both)) & 31
		if w.carriedOf(entry, c) >= maxCarried-o.carriedOf(from, c) {
			return false
		}
	}
	return true
}

// merge adds the counts of a compact entry of another window, which must fit. It returns false when
// nothing fits after that.
func (w *window) merge(entry uint32, o *window, from uint32) (room bool) {
	room = true
	e, f := &w.compact[entry], &o.compact[from]
	for at := 0; at < len(e.hist); at += 8 {
		sum, over := addBytes(binary.LittleEndian.Uint64(e.hist[at:]), binary.LittleEndian.Uint64(f.hist[at:]))
		binary.LittleEndian.PutUint64(e.hist[at:], sum)
		for ; over != 0; over &= over - 1 {
			c := uint32(at + bits.TrailingZeros64(over)/8)
			room = w.carry(entry, c, 1) && room
		}
	}
	for carries := f.carries; carries != 0; carries &= carries - 1 {
		c := uint32(bits.TrailingZeros32(carries)) & 31
		room = w.carry(entry, c, o.carriedOf(from, c)) && room
	}
	e.used |= f.used
	e.bytes = aggregate.AddSat(e.bytes, f.bytes)
	return room
}

// indexed returns the index of all entries. It adds them in order; the last entry of a series, the
// unsealed one, replaces the others.
func (w *window) indexed() *table32 {
	for to := &w.indexedTo.compact; *to < len(w.compact); *to++ {
		slot, _ := w.index.at(w.compact[*to].series)
		*slot = uint32(*to)
	}
	for to := &w.indexedTo.wide; *to < len(w.wide); *to++ {
		slot, _ := w.index.at(w.wide[*to].series)
		*slot = uint32(*to)
	}
	return &w.index
}

// forgetIndex makes indexed rebuild the index on its next call.
func (w *window) forgetIndex() {
	w.index.reset()
	w.indexedTo.compact, w.indexedTo.wide = 0, 0
}

// renumber gives the series of all entries new numbers.
func (w *window) renumber(renumbered []uint32) {
	w.forgetIndex()
	for i := range w.compact {
		w.compact[i].series = renumbered[w.compact[i].series]
	}
	for i := range w.wide {
		w.wide[i].series = renumbered[w.wide[i].series]
	}
}
