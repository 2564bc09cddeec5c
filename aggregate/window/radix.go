package window

import (
	"math/bits"
	"slices"
)

const (
	// minRadix is the length below which comparing beats counting.
	minRadix = 192
	// maxDigit keeps a pass's counters, and the ends that it writes at, within the
	// first caches.
	maxDigit = 11
)

// radix sorts numbers by their upper half. Its buffers serve all calls.
type radix struct {
	spare []uint64
	ends  [1 << maxDigit]uint32
}

// sort puts list in ascending order of the upper 32 bits, all of which are at most
// limit, and keeps the order of equal ones; lists that are in order of their lower
// halves come out in order of the whole numbers. The result takes the place of list,
// whose memory it may exchange.
func (r *radix) sort(list []uint64, limit uint32) []uint64 {
	if len(list) < minRadix {
		slices.Sort(list)
		return list
	}
	width := bits.Len32(limit)
	passes := (width + maxDigit - 1) / maxDigit
	if passes == 0 {
		return list
	}
	digit := (width + passes - 1) / passes
	r.spare = slices.Grow(r.spare[:0], len(list))[:len(list)]
	for p := range passes {
		r.pass(list, uint(32+p*digit), uint(digit))
		list, r.spare = r.spare, list
	}
	return list
}

// pass writes list to spare in the order of one digit.
func (r *radix) pass(list []uint64, shift, digit uint) {
	ends := r.ends[:1<<digit]
	clear(ends)
	mask := uint64(1)<<digit - 1
	for _, v := range list {
		ends[v>>shift&mask]++
	}
	at := uint32(0)
	for i, n := range ends {
		ends[i] = at
		at += n
	}
	spare := r.spare[:len(list)]
	for _, v := range list {
		end := &ends[v>>shift&mask]
		spare[*end] = v
		*end++
	}
}

func (r *radix) bytes() uint64 { return uint64(cap(r.spare))*8 + uint64(len(r.ends))*4 }
