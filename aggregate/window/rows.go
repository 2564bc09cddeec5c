package window

import (
	"context"
	"math/bits"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// rowBuilder makes the rows of a closed window. All windows share its buffers.
type rowBuilder struct {
	block aggregate.Block
	seq   uint64

	picked   []uint64 // rank<<32 | entry, wideBit set for wide ones
	buckets  int      // upper bound of the entries' distributions
	radix    radix
	heavyGen []uint32 // by cell: the window in which it was last heavy
	gen      uint32
	dist     aggregate.Dist
	touched  uint32 // keeps prefetching reads alive
}

const wideBit = 1 << 31

// write passes the window's rows to the sink, if it has any.
func (s *Shard) write(ctx context.Context, l *level, w *window) error {
	r := &s.rows
	b := &r.block
	b.Reset()
	s.nameFlows(l, w)
	s.buildRows(l, w)
	s.flowRows.end(b)
	if b.Len() == 0 {
		return nil
	}
	b.Seq, b.More = r.seq, s.resumes && w.due > s.clock.now
	r.seq++
	s.counts.Blocks++
	s.counts.Rows += uint64(b.Len())
	if s.forgetter != nil && l.res == s.groupsAt {
		s.forgetter.InRows(w.start, b.SrcGroup)
		s.forgetter.InRows(w.start, b.DstGroup)
	}
	if s.cfg.Watch != nil {
		s.cfg.Watch.Closed(b, s.cfg.Weight)
	}
	return s.sink.WriteBlock(ctx, b)
}

// buildRows adds the window's rows to r.block, which has none.
func (s *Shard) buildRows(l *level, w *window) {
	r := &s.rows
	s.pick(w, s.cfg.FineHeavyOnly && l.res < int64(fineBelow))
	r.block.Resolution, r.block.WindowStart = l.res, w.start
	r.block.Grow(len(r.picked), r.buckets)
	for i, ahead := 0, 0; i < len(r.picked); {
		if i >= ahead {
			ahead = min(i+touchAhead, len(r.picked))
			s.touch(w, r.picked[i:ahead])
		}
		n := i + 1
		for n < len(r.picked) && r.picked[n]>>32 == r.picked[i]>>32 {
			n++
		}
		s.appendRow(w, r.picked[i:n])
		i = n
	}
}

// touchAhead is the number of entries prefetched where entries are used out of order, so that not
// every one waits for memory.
const touchAhead = 64

// touch prefetches the next entries for rows, and their series.
func (s *Shard) touch(w *window, picked []uint64) {
	var series [touchAhead]uint32
	touched := uint32(0)
	for i, p := range picked {
		if entry := uint32(p); entry&wideBit == 0 {
			series[i&(touchAhead-1)] = w.compactAt.series(entry)
			touched |= w.compact[entry].used
		} else {
			series[i&(touchAhead-1)] = w.wideAt.series(entry &^ wideBit)
			touched |= uint32(w.wide[entry&^wideBit].count) | w.dist.touchEntry(entry&^wideBit)
		}
	}
	for i := range picked {
		touched |= s.series.list[series[i&(touchAhead-1)]].cell
	}
	s.rows.touched |= touched
}

// pick lists the window's entries in the order of rows: all, or those of heavy cells.
func (s *Shard) pick(w *window, heavyOnly bool) {
	r := &s.rows
	if heavyOnly {
		s.markHeavy(w)
	}
	r.picked, r.buckets = r.picked[:0], 0
	newest := uint32(0)
	add := func(id uint32, entry uint32) {
		if !heavyOnly || r.heavyGen[s.series.list[id].cell] == r.gen {
			r.picked = append(r.picked, uint64(id)<<32|uint64(entry))
			newest = max(newest, id)
		}
	}
	for entry, id := range w.eachCompact {
		add(id, entry)
		r.buckets += bits.OnesCount32(w.compact[entry].used)
	}
	for entry, id := range w.eachWide {
		add(id, entry|wideBit)
		r.buckets += int(min(w.wide[entry].count, csig.DistIndexes))
	}
	// Ranks of old series stay in order when new ones appear, so a window without new series needs no
	// pass over all series, nor does a short one with some.
	const few = 8
	if int(newest) >= len(s.series.rank) {
		if len(r.picked)*few < len(s.series.list) {
			s.series.sortPicked(r.picked)
			return
		}
		s.series.sort()
	}
	for i, p := range r.picked {
		r.picked[i] = uint64(s.series.rank[p>>32])<<32 | p&(1<<32-1)
	}
	r.picked = r.radix.sort(r.picked, uint32(len(s.series.list)))
}

// markHeavy marks the cells that had a heavy observation in the window.
func (s *Shard) markHeavy(w *window) {
	r := &s.rows
	r.gen++
	if n := len(s.series.firsts); n > len(r.heavyGen) || r.gen == 0 {
		r.heavyGen, r.gen = make([]uint32, 2*n), 1
	}
	for entry, id := range w.eachCompact {
		if sr := &s.series.list[id]; w.compact[entry].used&sr.heavyMask != 0 {
			r.heavyGen[sr.cell] = r.gen
		}
	}
	for entry, id := range w.eachWide {
		if w.wide[entry].heavy != 0 {
			r.heavyGen[s.series.cellOf(id)] = r.gen
		}
	}
}

// appendRow adds the row of the entries to the block.
func (s *Shard) appendRow(w *window, entries []uint64) {
	r, b := &s.rows, &s.rows.block
	var sum aggregate.Sums
	var sr *series
	if entry := uint32(entries[0]); len(entries) == 1 && entry&wideBit == 0 && s.narrow(w, entry) {
		e := &w.compact[entry]
		sr = &s.series.list[w.compactAt.series(entry)]
		s.addNarrow(&sum, sr, e)
		s.appendSums(sr, &sum)
		used := e.used
		if !sr.counts() {
			used = 0
		}
		b.AppendCounts(used, &e.hist, s.cfg.Weight)
		return
	}
	for _, p := range entries {
		entry := uint32(p)
		if entry&wideBit != 0 {
			sr = &s.series.list[w.wideAt.series(entry&^wideBit)]
			s.addWide(&sum, sr, &w.wide[entry&^wideBit])
			w.dist.addTo(&r.dist, entry&^wideBit, s.cfg.Weight)
			continue
		}
		sr = &s.series.list[w.compactAt.series(entry)]
		s.addCompact(&sum, sr, w, entry)
	}
	s.appendSums(sr, &sum)
	b.AppendDist(&r.dist)
}

// appendSums begins a row of a series, and adds it to the rest of its cell's flows.
func (s *Shard) appendSums(sr *series, sum *aggregate.Sums) {
	b := &s.rows.block
	b.Signal = append(b.Signal, uint8(sr.signal))
	b.Kind = append(b.Kind, uint8(sr.kind))
	b.Encoding = append(b.Encoding, uint8(sr.encoding()))
	b.SrcGroup = append(b.SrcGroup, uint64(sr.src))
	b.DstGroup = append(b.DstGroup, uint64(sr.dst))
	b.Location = append(b.Location, uint64(sr.loc))
	b.AppendSums(sum)
	if s.flowRows.on {
		s.flowRows.add(b, sr, sum)
	}
}

// narrow reports whether addNarrow can take an entry: none of its counts was carried, and its sums
// fit 64 bits.
func (s *Shard) narrow(w *window, entry uint32) bool {
	sr := &s.series.list[w.compactAt.series(entry)]
	return w.compact[entry].carries == 0 && s.signals[sr.signalIndex].most < 1<<48
}

// addNarrow is addCompact, without the distribution, for a narrow entry, as most rows have. Values
// ascend with codes.
func (s *Shard) addNarrow(sum *aggregate.Sums, sr *series, e *compactEntry) {
	values, heavyMask := &s.signals[sr.signalIndex].value, sr.heavyMask
	own := aggregate.Sums{Bytes: e.bytes, Min: values[bits.TrailingZeros32(e.used)&31], Max: values[(bits.Len32(e.used)-1)&31]}
	for used := e.used; used != 0; used &= used - 1 {
		c := uint32(bits.TrailingZeros32(used) & 31)
		n, heavy := uint64(e.hist[c]), -uint64(heavyMask>>c&1)
		total := n * values[c]
		own.Measured += n
		own.Sum += total
		own.Heavy += n & heavy
		own.HeavySum += total & heavy
	}
	s.addEntry(sum, sr, &own)
}

// addCompact adds an entry to the row's sums, and its codes to the row's distribution.
func (s *Shard) addCompact(sum *aggregate.Sums, sr *series, w *window, entry uint32) {
	e, value := &w.compact[entry], &s.signals[sr.signalIndex].value
	own := aggregate.Sums{Bytes: e.bytes}
	for used := e.used; used != 0; used &= used - 1 {
		c := uint32(bits.TrailingZeros32(used) & 31)
		n := uint64(e.hist[c])
		if e.carries != 0 {
			n = w.count(entry, c)
		}
		total := aggregate.MulSat(n, value[c])
		own.AddValues(n, value[c], value[c], total)
		if sr.heavyMask>>c&1 != 0 {
			own.Heavy += n
			own.HeavySum = aggregate.AddSat(own.HeavySum, total)
		}
		if sr.counts() {
			s.rows.dist.Add(c, n*s.cfg.Weight)
		}
	}
	s.addEntry(sum, sr, &own)
}

func (s *Shard) addWide(sum *aggregate.Sums, sr *series, e *wideEntry) {
	s.addEntry(sum, sr, &aggregate.Sums{
		Bytes: e.bytes, Measured: e.count, Sum: e.sum, Min: e.min, Max: e.max, Heavy: e.heavy, HeavySum: e.heavySum,
	})
}

// addEntry adds an entry to the row's sums, according to its series' class and the weight. The
// entry counts all of its observations, unweighted, as Measured.
func (s *Shard) addEntry(sum *aggregate.Sums, sr *series, e *aggregate.Sums) {
	weight := s.cfg.Weight
	n := aggregate.MulSat(e.Measured, weight)
	sum.Evidence |= sr.evidence
	sum.Observations = aggregate.AddSat(sum.Observations, n)
	sum.Bytes = aggregate.AddSat(sum.Bytes, aggregate.MulSat(e.Bytes, weight))
	if sr.class == classTrimmed {
		sum.Trimmed = aggregate.AddSat(sum.Trimmed, n)
		return
	}
	sum.Samples = aggregate.AddSat(sum.Samples, e.Measured)
	switch {
	case sr.class == classCount || sr.class == classRaw:
		return
	case sr.class == classUntouched: // the best possible value: no threshold makes it heavy
		sum.Untouched = aggregate.AddSat(sum.Untouched, n)
	case sr.heavyLo > sr.heavyHi:
		sum.Unjudged = aggregate.AddSat(sum.Unjudged, n)
	}
	sum.AddValues(n, e.Min, e.Max, aggregate.MulSat(e.Sum, weight))
	sum.Heavy = aggregate.AddSat(sum.Heavy, aggregate.MulSat(e.Heavy, weight))
	sum.HeavySum = aggregate.AddSat(sum.HeavySum, aggregate.MulSat(e.HeavySum, weight))
}

func (r *rowBuilder) bytes() uint64 {
	b := &r.block
	const columns, flowRowBytes = 4 + 14*8 + 4, 152
	return r.radix.bytes() + uint64(cap(r.picked))*8 + uint64(cap(r.heavyGen))*4 +
		uint64(cap(b.Signal))*columns + uint64(cap(b.DistCode))*10 + uint64(cap(b.Flows))*flowRowBytes
}
