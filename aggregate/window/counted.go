package window

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Counted is a number of equal observations that were counted elsewhere, such as in the kernel: they have the same
// endpoint classes, kind, tag and window.
type Counted struct {
	// Observation is one of them. TimeNS is any time in their window of the finest resolution; it is never
	// quarantined. Src and Dst are any addresses of the classes (aggregate.Classifier). Of the flags only HasAddrs and
	// IPv6 count, and Proto and ports only where the resolver has ways (aggregate.PathResolver). Bytes and Packet are
	// ignored.
	decode.Observation
	N, Bytes uint64 // number of observations, at least 1, and the bytes of their packets
	As       CountedAs
	// Codes are the codes of wide tags that have values. Tag.S then says only whether they are untouched, and N is less
	// than 1<<32.
	Codes Codes
}

// Codes sums up codes that are in one bucket of the distribution and not divided by any of CodeSplits.
type Codes struct {
	Bucket   uint32 // csig.DistIndex of each code
	Sum      uint64
	Min, Max uint32
}

// ErrSplits is wrapped by the error of CodeSplits.
var ErrSplits = errors.New("observations cannot be counted by buckets of values")

// CodeSplits returns the codes, ascending, at which Codes of a table have to be split, so that two things hold: the
// observations of one Codes are all heavy or all not, for each of the capacities (kbit/s) and for an unknown one;
// and the sum of their values follows from the sum of their codes. Codes below 128 have a bucket each and need no
// splits. The error wraps ErrSplits if the table's values do not allow that, or if more splits than most are
// needed.
func CodeSplits(t *csig.Table, capacities []uint64, most int) (splits []uint32, err error) {
	const exact = 128
	last := t.Codes() - 1
	if last < exact {
		return nil, nil
	}
	add := func(code uint32) {
		if code > exact && code <= last {
			splits = append(splits, code)
		}
	}
	for _, capacity := range append([]uint64{0}, capacities...) {
		if lo, hi, ok := t.HeavyCodes(capacity); ok {
			add(lo)
			add(hi + 1)
		}
	}
	// Values rise by one step for each code, until all further codes have the last value. One value in between may be
	// uneven.
	first, step := t.Value(exact), t.Value(exact+1)-t.Value(exact)
	search := func(is func(code uint32) bool) uint32 {
		return exact + uint32(sort.Search(int(last-exact)+1, func(i int) bool { return is(exact + uint32(i)) }))
	}
	uneven := search(func(code uint32) bool { return t.Value(code) != first+step*uint64(code-exact) })
	capped := search(func(code uint32) bool { return t.Value(code) == t.Value(last) })
	if uneven <= last && capped > uneven+1 {
		return nil, fmt.Errorf("%s %s: values are not in steps of one length: %w", t.Layout(), t.Signal(), ErrSplits)
	}
	add(uneven)
	add(capped)
	slices.Sort(splits)
	if splits = slices.Compact(splits); len(splits) > most {
		return nil, fmt.Errorf("%s %s: %d buckets to divide, by speeds of ports, expected at most %d: %w", t.Layout(), t.Signal(), len(splits), most, ErrSplits)
	}
	return splits, nil
}

// CountedAs says how the counting side judged Counted observations.
type CountedAs uint8

const (
	// AsFound means observations that the counting side found neither to repeat others nor to be orphans, and whose
	// time it knows: the shard checks none of that.
	AsFound CountedAs = iota
	// AsRepeat means reflections that repeat earlier ones.
	AsRepeat
	// AsOverflow means observations beyond the counting side's key budget: they have neither addresses nor a locator,
	// and wide ones no value.
	AsOverflow
)

// CountedFrames are the frames that Counted observations came in.
type CountedFrames struct {
	Packets, WireBytes uint64
	First, Last        int64  // approximate times of the earliest and the latest frame, Unix ns
	Empty, Invalid     uint64 // see decode.Counters.EmptyReflections and InvalidReflections
}

// AddCounted passes the stream's pending observations to its shard, then the counted ones (Shard.AddCounted). It
// does not keep the list.
func (l *Stream) AddCounted(ctx context.Context, frames *CountedFrames, list []Counted) error {
	if err := l.Pass(ctx); err != nil {
		return err
	}
	l.tally.Packets += frames.Packets
	l.tally.WireBytes += frames.WireBytes
	l.tally.Frames[decode.OK] += frames.Packets
	if frames.Packets > 0 {
		l.tally.between(frames.Packets, frames.First, frames.Last)
	}
	c := &l.decoded
	c.Frames += frames.Packets
	c.Reasons[decode.OK] += frames.Packets
	c.EmptyReflections += frames.Empty
	c.InvalidReflections += frames.Invalid
	for i := range list {
		o := &list[i]
		l.tally.Found[o.Kind-decode.Tag][o.Tag.Layout.Index()][o.Tag.T&(numTypes-1)] += o.N
		if o.Kind == decode.Tag {
			c.Tags += o.N
		} else {
			c.Reflections += o.N
		}
	}
	return l.shard.AddCounted(ctx, list)
}

// AddCounted counts observations as Add would count them one by one, with these exceptions: it looks for no repeated
// reflections, orphans and missing times (see CountedAs), ignores RejectAfter, puts nothing into quarantine, counts
// no flows (see AddSampled), and shows nothing to a Watch or, as sightings, to the resolver. An error of the sink
// ends the shard, as in Add.
func (s *Shard) AddCounted(ctx context.Context, list []Counted) error {
	if s.err != nil {
		return s.err
	}
	s.apply()
	s.counted = true
	defer func() { s.counted = false }()
	for i := range list {
		if err := s.addCounted(ctx, &list[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Shard) addCounted(ctx context.Context, c *Counted) error {
	n := c.N * s.cfg.Weight
	s.counts.In += n
	switch {
	case layoutIndex(c.Tag.Layout) >= csig.NumLayouts || c.TimeNS < 0 || c.TimeNS > maxTime || c.Kind < decode.Tag || c.Kind > decode.Reflection:
		s.counts.Rejected[aggregate.RejectInvalid] += n
		return nil
	case s.refused[c.Kind&3] != 0:
		s.counts.Rejected[aggregate.RejectPlace] += n
		return nil
	case c.As == AsRepeat:
		s.counts.Rejected[aggregate.RejectRepeat] += n
		return nil
	}
	s.clock.started = true
	s.contradict(c.TimeNS)
	w, err := s.windowAt(ctx, c.TimeNS)
	if err != nil {
		return err
	}
	if w == nil {
		s.counts.Late += n
		return nil
	}
	s.clock.leave()
	batch := s.batch
	s.one[0] = c.Observation
	s.batch = s.one[:]
	s.enqueue(0, 1, w.slot)
	s.makeRoom()
	it := &s.items[0]
	if c.As == AsOverflow {
		s.countOverflow(w, it, c)
	} else {
		s.lookup()
		if it.hasDist() {
			s.countCodes(w, it, c)
		} else {
			w.countMany(it, c.N, c.Bytes)
		}
	}
	s.pending, s.batch = 0, batch
	if len(s.clock.waiting) > 0 {
		return s.release(ctx)
	}
	return nil
}

// Sampled is one observation among those that AddCounted gets as counts, with its own addresses, ports and packet
// length.
type Sampled struct {
	decode.Observation
	N uint32 // number of observations of which this one was sampled, at least 1
}

// AddSampled counts the flows of samples (Shard.AddSampled). Call AddCounted with their observations first.
func (l *Stream) AddSampled(list []Sampled) {
	if l.shard != nil {
		l.shard.AddSampled(list)
	}
}

// AddSampled counts the flows of those samples that are heavy. It changes no count of observations. When the window
// closes, the flows' estimates are reduced to fit into their cell's exact counts, and the cell's rest is the remainder.
// Samples of closed windows count as forgotten flows.
func (s *Shard) AddSampled(list []Sampled) {
	if s.err != nil || s.cfg.Flows.Top == 0 {
		return
	}
	s.apply()
	s.counted = true
	defer func() { s.counted = false }()
	batch, base := s.batch, &s.levels[0]
	for i := range list {
		c := &list[i]
		w := base.find(base.floor(c.TimeNS))
		if w == nil {
			s.counts.FlowsForgotten++
			continue
		}
		s.one[0] = c.Observation
		s.batch = s.one[:]
		s.enqueue(0, 1, w.slot)
		s.makeRoom()
		s.lookup()
		s.countSampled(w, c)
		s.pending = 0
	}
	s.batch = batch
}

// countSampled counts the flow of the only pending item if it is heavy and the window counts its series.
func (s *Shard) countSampled(w *window, c *Sampled) {
	it, o := &s.items[0], &s.batch[0]
	heavy := false
	switch {
	case o.Flags&decode.HasAddrs == 0:
	case it.code&itemWide == 0:
		e := &w.compact[it.entry]
		heavy = e.used != 0 && e.heavy>>(it.code&31)&1 != 0
	case it.hasDist():
		e, code := &w.wide[it.entry], it.code&^itemWide
		it.value = s.signals[it.key.signalIndex()].table.Value(code)
		heavy = e.count != 0 && code-e.heavyLo <= e.heavyHi-e.heavyLo
	}
	if !heavy {
		return
	}
	b, f := &s.series.brief[it.series], flowOf(o)
	h := flow.Heavy{
		Hash:     s.seeds.Hash(s.seeds.Addresses(&f.Src, &f.Dst), uint32(f.SrcPort)<<16|uint32(f.DstPort), f.Proto, b.cell),
		Location: uint64(b.loc), Value: it.value, Bytes: it.bytes,
	}
	s.counts.FlowsForgotten += uint64(w.flows.CountMany(&h, uint64(max(c.N, 1)), it.series, &f))
}

// countOverflow counts observations in the overflow series of their signal type.
func (s *Shard) countOverflow(w *window, it *pendingItem, c *Counted) {
	key := seriesKey{
		src: aggregate.OverflowGroup, dst: aggregate.OverflowGroup, loc: aggregate.OverflowLocation, overflow: true,
		heavyLo: 1, signalIndex: it.key.signalIndex(), kind: c.Kind, class: it.key.class(),
	}
	switch {
	case it.code&itemWide != 0:
		it.code |= itemCount
		if key.class != classTrimmed {
			key.class = classCount
		}
	case key.class == classValue:
		if lo, hi, ok := s.signals[key.signalIndex].table.HeavyCodes(0); ok {
			key.heavyLo, key.heavyHi = lo, hi
		}
	}
	it.series = s.seriesOf(key)
	if it.code&itemWide != 0 {
		it.entry = w.wideOf(it.series, &s.series)
	} else {
		it.entry = w.compactOf(it.series, &s.series)
	}
	w.countMany(it, c.N, c.Bytes)
}

// countMany counts a pending item n times. Wide ones have no value.
func (e *entries) countMany(it *pendingItem, n, bytes uint64) {
	if it.code&itemWide != 0 {
		w := &e.wide[it.entry]
		w.bytes = aggregate.AddSat(w.bytes, bytes)
		w.count += n
		return
	}
	w, c := &e.compact[it.entry], it.code&31
	w.bytes = aggregate.AddSat(w.bytes, bytes)
	w.used |= 1 << c
	sum := uint64(w.hist[c]) + n
	w.hist[c] = uint8(sum)
	if sum >= 256 {
		e.carry(it.entry, c, sum>>8)
	}
}

// countCodes counts the codes of wide observations.
func (s *Shard) countCodes(w *window, it *pendingItem, c *Counted) {
	n, codes := c.N, &c.Codes
	e, t := &w.wide[it.entry], s.signals[it.key.signalIndex()].table
	e.bytes = aggregate.AddSat(e.bytes, c.Bytes)
	e.count += n
	w.dist.countMany(it.entry, codes.Bucket, n)
	least, most := t.Value(codes.Min), t.Value(codes.Max)
	sum := aggregate.MulSat(least, n)
	if most > least {
		step := (most - least) / uint64(codes.Max-codes.Min)
		sum = aggregate.AddSat(sum, aggregate.MulSat(step, codes.Sum-n*uint64(codes.Min)))
	}
	e.min, e.max = min(e.min, least), max(e.max, most)
	e.sum = aggregate.AddSat(e.sum, sum)
	if e.heavyLo <= codes.Min && codes.Min <= e.heavyHi {
		e.heavy += n
		e.heavySum = aggregate.AddSat(e.heavySum, sum)
	}
}

// countMany is count for n observations, at least one.
func (d *distribution) countMany(entry, bucket uint32, n uint64) {
	e := &d.entries[entry]
	if e.listed != paged {
		if uint64(e.listed)+n <= listLen {
			for range n {
				d.count(entry, bucket)
			}
			return
		}
		d.spill(e)
	}
	p := d.page(e, bucket/pageBuckets)
	count := &d.pages[p][bucket%pageBuckets]
	sum := uint64(*count) + n
	*count = uint8(sum)
	if sum >= 256 {
		d.carry(e, bucket, sum>>8)
	}
}
