package window

import (
	"context"
	"fmt"
	"math"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// pendingItems is the number of observations that are looked up before they are counted, so that
// the cache misses of one overlap with the work on others.
const pendingItems = 256

// pendingItem is an observation whose window is known.
type pendingItem struct {
	key    lookupKey // lookup adds the endpoint classes
	obs    uint32    // index in the batch
	series uint32    // set by lookup; until findSeries the number of the key's first slot
	code   uint32    // with itemWide and itemCount
	bytes  uint32
	slot   uint32 // of the window at the finest level
	entry  uint32 // of the window, set by findEntries
	bucket uint32 // wide: set by countWide

	value uint64 // if it has one; wide: set by countWide
}

// hasDist reports whether a wide item enters a distribution.
func (it *pendingItem) hasDist() bool { return it.code&(itemWide|itemCount) == itemWide }

const (
	itemWide  = 1 << 31
	itemCount = 1 << 30 // has no value
	codeBits  = itemCount - 1
)

// Shard aggregates the observations of one tap on one core. Its methods must not be called
// concurrently; shards of other cores are independent, and their rows merge.
//
// Only the finest resolution is updated per observation. The others are exact folds of it, made
// when windows close. The same observations in the same order give the same blocks, however they
// are divided into batches.
type Shard struct {
	cfg     Config
	sink    aggregate.Sink
	signals *[numSignalInfos]signalInfo
	levels  []level // finest first

	refused [4]uint8 // by kind: 1 unless the tap's place admits it

	series     seriesTable
	dropDeadAt int // number of series at which dead ones are dropped
	endpoints  endpointCache
	keys       keyCache
	ways       *wayCache // nil without evidence of paths
	witness    *witness  // nil except in the middle of the fabric
	repeats    *reflectionDedup

	forgetter aggregate.Forgetter // nil if the resolver is none
	revision  uint64              // of the groups in endpoints
	groupsAt  int64               // resolution of the windows whose groups the forgetter gets

	batch   []decode.Observation  // the items' observations
	one     [1]decode.Observation // batch of a Counted or a Sampled
	counted bool                  // batch is one[:]: it is not watched
	survey  survey                // of a batch of Add
	items   [pendingItems]pendingItem
	pending int
	heavy   heavyItems
	touched uint64 // keeps prefetching reads alive

	watching *watching // nil without a Watch

	clock  watermark
	rows   rowBuilder
	counts aggregate.Counts

	seeds    *flow.Seeds
	flowRows flowRows
	flushing bool
	resumes  bool  // windows that are not due get more blocks: see Suspend
	err      error // of the sink: after it, nothing is accepted
}

// NewShard makes a shard that writes the windows that it closes to the sink. It fails if the
// configuration is invalid.
func NewShard(cfg Config, sink aggregate.Sink) (*Shard, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure shard: %w", err)
	}
	s := &Shard{cfg: cfg, sink: sink, signals: newSignalInfos(cfg.Domain), seeds: flow.NewSeeds()}
	for i, r := range cfg.Resolutions {
		live := r == aggregate.LiveResolution || r == aggregate.FineResolution(cfg.Resolutions)
		s.levels = append(s.levels, level{res: int64(r), lateness: int64(cfg.Lateness[i]), live: live, first: -1, flowBudget: cfg.Flows.Budget})
	}
	if s.forgetter, _ = cfg.Resolver.(aggregate.Forgetter); s.forgetter != nil {
		s.revision = s.forgetter.Revision()
	}
	for i := range s.levels {
		if s.groupsAt < int64(fineBelow) {
			s.groupsAt = s.levels[i].res
		}
	}
	s.series = newSeriesTable(s.signals, cfg.MaxSeries)
	s.dropDeadAt = min(cfg.MaxSeries, minDropDeadAt)
	s.endpoints = newEndpointCache(cfg.Resolver, cfg.Watch, s.seeds, powerOfTwo(max(cfg.MaxSeries/2, 1<<17)))
	s.ways = newWayCache(cfg.Resolver)
	s.witness = newWitness(cfg.Resolver, cfg.ObservationPoint, s.seeds)
	s.keys = newKeyCache(powerOfTwo(max(cfg.MaxSeries*2, 1<<18)))
	s.refused = [4]uint8{1, 1, 1, 1}
	if cfg.Tags {
		s.refused[decode.Tag] = 0
	}
	if cfg.Reflections {
		s.refused[decode.Reflection] = 0
		s.repeats = newReflectionDedup(cfg.UDPRepeat)
	}
	if cfg.Watch != nil {
		s.watching = &watching{sent: cfg.Place == sender}
	}
	s.rows.block.Source = cfg.Source
	s.rows.seq = cfg.SeqBase
	s.clock.init(&cfg)
	return s, nil
}

func powerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// Add counts a batch of observations, in the order of their capture. It does not keep the slice. It
// writes the windows that close; an error of the sink ends the shard, and every later call returns
// it.
func (s *Shard) Add(ctx context.Context, obs []decode.Observation) error {
	if s.err != nil {
		return s.err
	}
	s.counts.In += uint64(len(obs)) * s.cfg.Weight
	for len(obs) > 0 {
		n := min(len(obs), pendingItems)
		if err := s.add(ctx, obs[:n], s.surveyOf(obs[:n])); err != nil {
			return err
		}
		obs = obs[n:]
	}
	return nil
}

// addDecoded is Add for at most pendingItems observations of a decoder, and their survey.
func (s *Shard) addDecoded(ctx context.Context, obs []decode.Observation, v *survey) error {
	if s.err != nil {
		return s.err
	}
	s.counts.In += uint64(len(obs)) * s.cfg.Weight
	return s.add(ctx, obs, v)
}

func (s *Shard) add(ctx context.Context, obs []decode.Observation, v *survey) error {
	s.batch = obs
	reflections := v.reflected[:v.reflections]
	if s.watching != nil && (v.marked || v.longest > s.watching.longest) {
		s.noticeTags()
	}
	if s.repeats != nil {
		s.touched |= s.repeats.prepare(obs, reflections)
	}
	if v.odd == 0 && v.first > 0 && v.first >= s.clock.from && v.last < s.clock.to {
		s.addPlain(v.last, reflections)
	} else {
		for i := range obs {
			if err := s.admit(ctx, i); err != nil {
				return err
			}
		}
	}
	s.apply()
	s.flushWatched()
	s.batch = nil
	return nil
}

// survey sums up a batch, so that it can be counted without a decision for each observation.
type survey struct {
	first, last int64               // times of the earliest and the latest one; 0 without a time
	odd         uint                // not 0 if one may be rejected, except as a repeat
	longest     uint32              // greatest Bytes
	marked      bool                // whether a tag has reserved bits or D
	reflected   [pendingItems]uint8 // numbers of the reflections
	reflections int
}

func (v *survey) reset() {
	v.first, v.last, v.odd, v.longest, v.marked, v.reflections = math.MaxInt64, 0, 0, 0, false, 0
}

// add adds observation i of the batch; refused is by kind. It does not branch on kinds, which the
// processor cannot predict.
func (v *survey) add(i int, o *decode.Observation, refused *[4]uint8) {
	v.addTag(o, uint(o.Flags&decode.Orphan)|uint(refused[o.Kind&3]))
	v.reflected[v.reflections&(pendingItems-1)] = uint8(i)
	v.reflections += int(o.Kind>>1) & 1
}

// addTag is add for a tag that is no orphan; refused is that of tags.
func (v *survey) addTag(o *decode.Observation, refused uint) {
	v.first, v.last, v.longest = min(v.first, o.TimeNS), max(v.last, o.TimeNS), max(v.longest, o.Bytes)
	v.odd |= refused
	v.marked = v.marked || o.Tag.D || o.Tag.R != 0
}

// surveyOf returns the survey of observations that may have impossible kinds and layouts.
func (s *Shard) surveyOf(obs []decode.Observation) *survey {
	v := &s.survey
	v.reset()
	for i := range obs {
		o := &obs[i]
		v.add(i, o, &s.refused)
		v.odd |= uint(o.Kind>>2) | ((uint(o.Tag.Layout.Format)-1)|(uint(o.Tag.Layout.Profile)-1))>>1
	}
	return v
}

// addPlain enqueues a plain batch: all of it is admitted, except for repeated reflections, and is in
// the current window, so that the order of its times does not matter.
func (s *Shard) addPlain(last int64, reflections []uint8) {
	s.clock.now = max(s.clock.now, last)
	from := 0
	for _, i := range reflections {
		if s.repeats.seen(int(i)) {
			s.counts.Rejected[aggregate.RejectRepeat] += s.cfg.Weight
			s.enqueue(from, int(i), s.clock.slot)
			from = int(i) + 1
		}
	}
	s.enqueue(from, len(s.batch), s.clock.slot)
}

// admit finds the window of an observation unless it is rejected.
func (s *Shard) admit(ctx context.Context, i int) error {
	if reason, bad := s.reject(i); bad {
		s.counts.Rejected[reason] += s.cfg.Weight
		return nil
	}
	return s.assignWindow(ctx, i)
}

// maxTime is the latest valid time: stores hold no later ones.
const maxTime = aggregate.EndOfTime - 1

func (s *Shard) reject(i int) (aggregate.Rejection, bool) {
	o := &s.batch[i]
	switch {
	case o.Flags&decode.Orphan != 0:
		if s.watching != nil {
			s.notice(aggregate.Watched{Observation: o, Why: aggregate.WatchedOrphan})
		}
		return aggregate.RejectOrphan, true
	case layoutIndex(o.Tag.Layout) >= csig.NumLayouts, o.TimeNS < 0, o.TimeNS > maxTime:
		return aggregate.RejectInvalid, true
	case o.Kind == decode.Tag && s.cfg.Tags:
	case o.Kind == decode.Reflection && s.cfg.Reflections:
	case o.Kind == decode.Tag || o.Kind == decode.Reflection:
		s.noticeSent(o)
		s.witness.see(o)
		return aggregate.RejectPlace, true
	default:
		return aggregate.RejectInvalid, true
	}
	if o.Flags&decode.NoTime != 0 {
		return aggregate.RejectNoTime, true
	}
	return aggregate.RejectRepeat, o.Kind == decode.Reflection && s.repeats.seen(i)
}

// refusePlace counts an observation that the shard must not see, since the tap's place is not its own.
func (s *Shard) refusePlace() {
	s.counts.In += s.cfg.Weight
	s.counts.Rejected[aggregate.RejectPlace] += s.cfg.Weight
}

// enqueue makes pending items of the batch's observations in [from, to). Their layouts must exist.
func (s *Shard) enqueue(from, to int, slot uint32) {
	if s.pending+to-from > pendingItems {
		s.apply()
	}
	batch, items := s.batch[from:to], s.items[s.pending:]
	items = items[:len(batch)]
	s.pending += len(batch)
	for i := range batch {
		o, it := &batch[i], &items[i]
		ti := (uint(o.Tag.Layout.Index())<<4 | uint(o.Tag.T&15)) & (numSignalInfos - 1)
		info := &s.signals[ti]
		cl, lm := info.class, uint32(o.Tag.LM)
		if o.Tag.S == info.initial {
			cl = classUntouched
			if !s.cfg.LocateUntouched {
				lm = noLM
			}
		}
		code := uint32(info.code[o.Tag.S&31])
		if info.wide {
			code = itemWide | itemCount
			if info.table != nil {
				code = itemWide | info.table.Code(o.Tag.S)
			}
		}
		if o.Tag.D {
			cl = classTrimmed
			code = code&itemWide | itemCount
		}
		it.obs, it.slot = uint32(from+i), slot
		it.key = newLookupKey(lm, ti, cl, o.Kind)
		it.code, it.bytes, it.value = code, o.Bytes, info.value[code&31]
	}
}

// apply looks up and counts the pending items.
func (s *Shard) apply() {
	s.makeRoom()
	s.lookup()
	windows, items := s.levels[0].all, s.items[:s.pending]
	wide, heavy := 0, 0
	for i := range items {
		it := &items[i]
		w := windows[it.slot]
		s.heavy.list[heavy&(pendingItems-1)] = uint8(i) // kept only if it is heavy, which the processor cannot predict
		if it.code&itemWide != 0 {
			heavy += int(s.countWide(w, it))
			wide++
			continue
		}
		e := &w.compact[it.entry]
		c := it.code & 31
		e.bytes += uint64(it.bytes)
		e.used |= 1 << c
		n := e.hist[c] + 1
		e.hist[c] = n
		heavy += int(e.heavy >> c & 1)
		if n == 0 {
			w.carry(it.entry, c, 1)
		}
	}
	if wide > 0 {
		s.countDist()
	}
	s.countFlows(s.heavy.list[:heavy])
	s.pending = 0
}

// makeRoom forgets series of earlier lives if the pending items could exceed the budget.
func (s *Shard) makeRoom() {
	if s.series.own+s.pending > s.cfg.MaxSeries && s.series.current < len(s.series.list) {
		s.dropLeftovers()
	}
}

// countWide counts everything but the distribution, for which it stores the bucket in the item. It
// returns 1 for a heavy observation.
func (s *Shard) countWide(w *window, it *pendingItem) (heavy uint32) {
	e := &w.wide[it.entry]
	e.bytes += uint64(it.bytes)
	if it.code&itemCount == 0 {
		code := it.code &^ itemWide
		it.value = s.signals[it.key.signalIndex()].table.Value(code)
		heavy = e.addValue(it.value, code)
		it.bucket = uint32(csig.DistIndex(code))
	}
	e.count++
	return heavy
}

// countDist counts the buckets of the pending items.
func (s *Shard) countDist() {
	l := &s.levels[0]
	items := s.items[:s.pending]
	touched := uint8(0)
	for i := range items {
		if it := &items[i]; it.hasDist() {
			touched |= l.all[it.slot].dist.touchPage(it.entry, it.bucket)
		}
	}
	s.touched |= uint64(touched)
	for i := range items {
		if it := &items[i]; it.hasDist() {
			l.all[it.slot].dist.count(it.entry, it.bucket)
		}
	}
}

// Counts accounts for the observations so far.
func (s *Shard) Counts() aggregate.Counts {
	c := s.counts
	if s.repeats != nil {
		c.ReflectionEvictions += s.repeats.evictions
	}
	c.CacheResets += s.endpoints.resets + s.keys.resets
	return c
}

// Watermark returns the latest accepted time in Unix nanoseconds, or the time of the latest
// AdvanceTo; 0 before the first observation.
func (s *Shard) Watermark() int64 { return s.clock.now }

// StateBytes returns the approximate memory use of the shard's state, in bytes.
func (s *Shard) StateBytes() uint64 {
	n := s.series.bytes() + s.endpoints.bytes() + s.keys.bytes() + s.ways.bytes() + s.witness.bytes() + s.rows.bytes() + s.flowRows.bytes()
	for i := range s.levels {
		n += s.levels[i].bytes()
	}
	if s.repeats != nil {
		n += repeatSets * repeatWays * 16
	}
	return n
}

// Reconfigure makes a shard with another configuration that continues this one, which must be flushed
// and must not be used afterwards. The successor writes to the same sink, continues the numbering
// of blocks, keeps the counts and the watermark, and remembers the reflections that may still be
// repeated. So a configuration can change while packets arrive, and each is counted once.
//
// Give the configuration the SeqBase of this shard: provisional blocks still carry its upper bits,
// though the numbers of closed windows continue from this shard's. Reconfigure fails after an error of the sink,
// when windows are open, or when the configuration is invalid.
func (s *Shard) Reconfigure(cfg Config) (*Shard, error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.pending > 0 || len(s.clock.waiting) > 0 || s.openWindows() > 0 {
		return nil, fmt.Errorf("reconfigure shard: %w", errNotFlushed)
	}
	next, err := NewShard(cfg, s.sink)
	if err != nil {
		return nil, err
	}
	next.rows.seq = s.rows.seq
	next.clock.now, next.clock.started = s.clock.now, s.clock.started
	next.counts = s.Counts()
	if next.repeats != nil && s.repeats != nil {
		next.repeats = s.repeats
		next.repeats.within = int64(cfg.UDPRepeat)
		next.repeats.evictions = 0 // next.counts has them
	}
	return next, nil
}
