package window

import (
	"context"
	"math"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Counted are observations alike that were counted before they came here, such as in the kernel: with the same
// ends, kind, tag and window.
type Counted struct {
	// Observation is one of them. Its TimeNS is in their window of the finest resolution, by a clock that never
	// waits to be believed, and its ends are any addresses of their classes. Its Bytes, ports, flags but
	// HasAddrs, and number do not matter.
	decode.Observation
	N, Bytes uint64 // of all of them
	As       CountedAs
}

// CountedAs says what became of Counted observations.
type CountedAs uint8

const (
	// AsFound are for the shard to judge.
	AsFound CountedAs = iota
	// AsRepeat are reflections that repeat others.
	AsRepeat
	// AsOverflow had no room of their own: they have neither ends nor a locator, and wide ones no value.
	AsOverflow
)

// CountedFrames are the frames that Counted observations came in.
type CountedFrames struct {
	Packets, WireBytes uint64
	First, Last        int64  // times of the earliest and the latest, Unix ns, about
	Empty, Invalid     uint64 // as decode.Counters.EmptyReflections and InvalidReflections
}

// AddCounted counts observations behind all that was added. It keeps nothing of the list.
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

// AddCounted counts observations as Add does if it had them one by one. Flows are not counted, and nothing is
// shown to a Watch.
func (s *Shard) AddCounted(ctx context.Context, list []Counted) error {
	if s.err != nil {
		return s.err
	}
	s.apply()
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
	s.enqueue(0, layoutIndex(c.Tag.Layout), w.slot)
	s.makeRoom()
	it := &s.items[0]
	if c.As == AsOverflow {
		s.countOverflow(w, it, c)
	} else {
		s.lookup()
		s.countMany(w, it, c.N, c.Bytes)
	}
	s.pending, s.batch = 0, batch
	if len(s.clock.waiting) > 0 {
		return s.release(ctx)
	}
	return nil
}

// countOverflow counts observations in the overflow series of their signal type.
func (s *Shard) countOverflow(w *window, it *pendingItem, c *Counted) {
	key := seriesKey{
		src: aggregate.OverflowGroup, dst: aggregate.OverflowGroup, loc: aggregate.OverflowLocation, overflow: true,
		heavyLo: 1, traits: it.key.traits(), kind: c.Kind, class: it.key.class(),
	}
	switch {
	case it.code&itemWide != 0:
		it.code |= itemCount
		if key.class != classTrimmed {
			key.class = classCount
		}
	case key.class == classValue:
		if lo, hi, ok := s.traits[key.traits].table.HeavyCodes(0); ok {
			key.heavyLo, key.heavyHi = lo, hi
		}
	}
	it.series = s.series.id(key)
	for i := range s.levels {
		s.levels[i].refer(len(s.series.list))
	}
	s.series.count(it.series)
	l := &s.levels[0]
	it.entry = l.entry(w, it.series, &s.series.list[it.series])
	s.countMany(w, it, c.N, c.Bytes)
}

// manyAtOnce bounds what is added to a count at a time: an entry has room for that, or is sealed before.
const manyAtOnce = 1 << 16

// countMany counts a pending item, the only one, n times.
func (s *Shard) countMany(w *window, it *pendingItem, n, bytes uint64) {
	for first := true; n > 0; first = false {
		part := min(n, manyAtOnce)
		n -= part
		if !first {
			bytes = 0
		}
		if it.code&itemWide == 0 {
			s.countManyCompact(w, it, uint32(part), bytes)
		} else {
			s.countManyWide(w, it, uint32(part), bytes)
		}
	}
}

func (s *Shard) countManyCompact(w *window, it *pendingItem, n uint32, bytes uint64) {
	e, c := &w.compact[it.entry], it.code&31
	e.bytes = aggregate.AddSat(e.bytes, bytes)
	e.used |= 1 << c
	sum := uint32(e.hist[c]) + n
	e.hist[c] = uint8(sum)
	if sum >= 256 && !w.carry(it.entry, c, sum>>8) {
		s.seal(w, it)
	}
}

func (s *Shard) countManyWide(w *window, it *pendingItem, n uint32, bytes uint64) {
	e := &w.wide[it.entry]
	e.bytes = aggregate.AddSat(e.bytes, bytes)
	e.count += n
	if it.code&itemCount == 0 {
		code := it.code &^ itemWide
		v := s.traits[it.key.traits()].table.Value(code)
		e.addValues(v, code, n)
		w.dist.countMany(it.entry, uint32(csig.DistIndex(code)), n)
	}
	if e.count >= math.MaxUint32-2*manyAtOnce {
		s.seal(w, it)
	}
}

// addValues is addValue for n observations.
func (e *wideEntry) addValues(v uint64, code, n uint32) {
	e.min, e.max = min(e.min, v), max(e.max, v)
	sum := aggregate.MulSat(v, uint64(n))
	e.sum = aggregate.AddSat(e.sum, sum)
	if e.hasHeavy != 0 && e.heavyLo <= code && code <= e.heavyHi {
		e.heavy += n
		e.heavySum = aggregate.AddSat(e.heavySum, sum)
	}
}

// countMany is count for n observations, at least one.
func (d *distribution) countMany(entry, bucket, n uint32) {
	e := &d.entries[entry]
	if e.first != paged {
		if d.count(entry, bucket); n == 1 {
			return
		}
		n--
		if e.first != paged {
			d.spill(e)
		}
	}
	p := d.page(e, bucket/pageBuckets)
	count := &d.pages[p][bucket%pageBuckets]
	sum := uint32(*count) + n
	*count = uint8(sum)
	if sum >= 256 {
		d.carry(e, bucket, sum>>8)
	}
}
