package aggregate

import (
	"math"
	"math/bits"
	"slices"
)

// window accumulates one window at one resolution. Its counts are of unweighted
// observations: the weight is the shard's and is applied when rows are made.
//
// One series can have several entries in a window, all but the last one sealed
// because a count could not grow further. Their rows merge.
type window struct {
	start, end int64
	due        int64 // closes when the watermark reaches it
	delta      bool  // the window was closed before
	slot       uint32
	gen        uint32 // differs between all windows that entryRefs can refer to

	compact []compactEntry
	wide    []wideEntry
	index   table32 // series to entry
	dist    table32 // distKey to count, of wide entries
}

// compactEntry counts codes; everything else follows from them.
type compactEntry struct {
	bytes  uint64
	series uint32
	used   uint32 // bit c is set when hist[c] > 0
	hist   [32]uint32
}

type wideEntry struct {
	bytes, sum, min, max, heavySum uint64
	series, count, heavy           uint32
}

// distIndexBits is the width of a csig.DistIndex in a key of window.dist.
const distIndexBits = 10

func distKey(entry uint32, index uint16) uint32 { return entry<<distIndexBits | uint32(index) }

// add appends an empty entry. Entries beyond the length are kept zeroed.
func (w *window) add(series uint32, wide bool) uint32 {
	if wide {
		w.wide = extend(w.wide)
		w.wide[len(w.wide)-1].series = series
		return uint32(len(w.wide) - 1)
	}
	w.compact = extend(w.compact)
	w.compact[len(w.compact)-1].series = series
	return uint32(len(w.compact) - 1)
}

func extend[T any](s []T) []T {
	if len(s) == cap(s) {
		s = slices.Grow(s, max(64, len(s)))
	}
	return s[:len(s)+1]
}

// reset empties the window and keeps its memory, unless it was hardly used.
func (w *window) reset() {
	for i := range w.compact {
		e := &w.compact[i]
		for used := e.used; used != 0; used &= used - 1 {
			e.hist[bits.TrailingZeros32(used)&31] = 0
		}
		e.bytes, e.used = 0, 0
	}
	clear(w.wide)
	w.compact, w.wide = shrink(w.compact), shrink(w.wide)
	w.index.reset()
	w.dist.reset()
}

// shrink empties s, and gives the memory of one that was hardly used back.
func shrink[T any](s []T) []T {
	if cap(s) > 1024 && len(s)*32 < cap(s) {
		return nil
	}
	return s[:0]
}

func (w *window) bytes() uint64 {
	return uint64(cap(w.compact))*144 + uint64(cap(w.wide))*56 + w.index.bytes() + w.dist.bytes()
}

// addValue counts an observation of a wide series.
func (e *wideEntry) addValue(v uint64, heavy bool) {
	if e.count == 0 || v < e.min {
		e.min = v
	}
	e.max = max(e.max, v)
	e.sum = addSat(e.sum, v)
	if heavy {
		e.heavy++
		e.heavySum = addSat(e.heavySum, v)
	}
}

func (e *wideEntry) merge(o *wideEntry) {
	if e.count == 0 || o.min < e.min {
		e.min = o.min
	}
	e.max = max(e.max, o.max)
	e.sum = addSat(e.sum, o.sum)
	e.heavySum = addSat(e.heavySum, o.heavySum)
	e.count += o.count
	e.heavy += o.heavy
	e.bytes += o.bytes
}

// fits tells whether the counts of o can be added to e.
func (e *compactEntry) fits(o *compactEntry) bool {
	for used := e.used & o.used; used != 0; used &= used - 1 {
		c := bits.TrailingZeros32(used) & 31
		if e.hist[c] > math.MaxUint32-1-o.hist[c] {
			return false
		}
	}
	return true
}

func (e *compactEntry) merge(o *compactEntry) {
	for used := o.used; used != 0; used &= used - 1 {
		c := bits.TrailingZeros32(used) & 31
		e.hist[c] += o.hist[c]
	}
	e.used |= o.used
	e.bytes += o.bytes
}

// addSat and mulSat saturate: totals that do not fit 64 bits stay at the largest
// value instead of wrapping, in whatever order they are merged.
func addSat(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

func mulSat(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi != 0 {
		return math.MaxUint64
	}
	return lo
}

// reindex renumbers an entry's series. Entries come in the order in which they were
// added, so that the index ends with the one that is not sealed.
func (w *window) reindex(series *uint32, renumbered []uint32, entry uint32) {
	*series = renumbered[*series]
	slot, _ := w.index.at(*series)
	*slot = entry
}
