package remote

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/csigscope/csigscope/ingest/wire"
)

// exporter is a collector's state of one identity, an exporter's or a peer's. Limits bound its
// size.
type exporter struct {
	name                          string
	peer                          bool
	limits                        atomic.Pointer[Limits]
	requests, bytes, rows, naming *rate.Limiter
	provisional                   *rate.Limiter
	inFlight                      atomic.Int32  // its running requests
	held                          atomic.Int64  // bytes that they hold
	working                       chan struct{} // a token for each of them that may be decoded and stored
	last                          atomic.Int64  // Unix ns of the last request
	counts                        counts
	clock                         clockOffset
	ahead                         clockAhead

	mu        sync.Mutex
	streams   map[uint64]*stream // by producer; see Server.enter
	full      time.Time          // last time that no stream could give way; zero after a stream has ended
	undurable map[blockID]*item  // batches with rows in the sink that are not durable yet
	described []described        // its descriptions, latest last
}

// stream is a series of numbered blocks.
type stream struct {
	incarnations []incarnationState // by incarnation, the last few
	used         time.Time          // when its last item came
	ended        bool               // by its last item
}

// incarnationState is one incarnation of a stream.
type incarnationState struct {
	incarnation uint64
	epochs      []uint64 // under which its runs were announced
	dedup       dedupWindow
	began, used time.Time // when its first and its last item came; used is zero after its end
}

const (
	maxIncarnations      = 16  // of a stream; an exporter that is often killed sends blocks of several
	maxIncarnationEpochs = 4   // of an incarnation
	minDescribed         = 256 // of an exporter; hosts that share a credential have one each

	// streamSilence is how long a stream sends nothing before it gives way to a new one. A stream that
	// lives has a record each minute.
	streamSilence = 5 * time.Minute
	// giveWayEvery is the minimum time between two searches for such a stream.
	giveWayEvery = time.Second
)

func newExporter(name string, l *Limits) *exporter {
	e := &exporter{name: name, working: make(chan struct{}, l.MaxInFlight), streams: map[uint64]*stream{}}
	e.limits.Store(l)
	for i, b := range l.budgets() {
		*e.limiters()[i] = rate.NewLimiter(b.perSecond, b.burst)
	}
	return e
}

func (e *exporter) limiters() [5]**rate.Limiter {
	return [...]**rate.Limiter{&e.requests, &e.bytes, &e.rows, &e.naming, &e.provisional}
}

// use applies these limits to the exporter from now on.
func (e *exporter) use(l *Limits, now time.Time) {
	if e.limits.Swap(l) == l {
		return
	}
	for i, b := range l.budgets() {
		limiter := *e.limiters()[i]
		limiter.SetBurstAt(now, b.burst)
		limiter.SetLimitAt(now, b.perSecond)
	}
}

// arrive begins a request of the exporter under these limits.
func (e *exporter) arrive(l *Limits, now time.Time) {
	e.use(l, now)
	e.last.Store(now.UnixNano())
	e.inFlight.Add(1)
}

// budget refills at a rate, up to a burst.
type budget struct {
	perSecond rate.Limit
	burst     int
}

// budgets returns the budgets for requests, bytes, rows, names and provisional rows.
func (l *Limits) budgets() [5]budget {
	of := func(perSecond float64) budget { return budget{rate.Limit(perSecond), max(1, int(perSecond*l.Burst))} }
	return [...]budget{
		of(l.RequestRate), of(l.ByteRate), of(l.RowRate),
		{rate.Limit(float64(l.MaxNames) / time.Hour.Seconds()), max(l.MaxNames, maxMessageNames)},
		{rate.Limit(provisionalShare * l.RowRate), max(1, int(provisionalBurst*provisionalShare*l.RowRate))},
	}
}

// textNames is the number of names that the text of a new configuration counts as: it may be long, and the collector
// writes its own text after it.
const textNames = 64

// blockID identifies a block or batch of a stream.
type blockID struct {
	producer, incarnation, seq uint64
}

// enter finds or adds the incarnation of an item, and takes the item's number unless that is 0, as
// of a record. finish must follow if the outcome of a number is OUTCOME_STORED. It returns the
// producers of the streams that gave way to a new one; without room for it, the outcome is
// OUTCOME_STREAMS.
func (e *exporter) enter(at blockID, now time.Time) (o wire.Outcome, gone []uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.streams[at.producer]
	if s == nil {
		var ok bool
		if gone, ok = e.makeRoom(now); !ok {
			return wire.Outcome_OUTCOME_STREAMS, gone
		}
		s = &stream{}
		e.streams[at.producer] = s
	}
	s.used, s.ended = now, false
	l := s.incarnation(at.incarnation)
	if l == nil {
		return wire.Outcome_OUTCOME_STALE, gone
	}
	if l.used = now; l.began.IsZero() {
		l.began = now
	}
	if at.seq == 0 {
		return wire.Outcome_OUTCOME_STORED, gone
	}
	return l.dedup.begin(at.seq), gone
}

// makeRoom makes room for a stream. At the limit the streams that were used least recently give way, if
// they have ended or are silent, and no item of them is at work. An item of one that comes again is
// stored again as equal rows, as after a restart of the collector. The caller holds mu.
func (e *exporter) makeRoom(now time.Time) (gone []uint64, ok bool) {
	for most := e.limits.Load().MaxStreams; len(e.streams) >= most; {
		if now.Sub(e.full) < giveWayEvery {
			return gone, false
		}
		var oldest *stream
		var producer uint64
		for p, s := range e.streams {
			if (oldest == nil || s.used.Before(oldest.used)) && (s.ended || now.Sub(s.used) >= streamSilence) && !s.busy() {
				oldest, producer = s, p
			}
		}
		if oldest == nil {
			e.full = now
			return gone, false
		}
		delete(e.streams, producer)
		gone = append(gone, producer)
	}
	return gone, true
}

// end records that a stream has ended under an epoch, unless a later run of it has begun.
func (e *exporter) end(at blockID, epoch uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.streams[at.producer]
	if s == nil {
		return
	}
	latest := &s.incarnations[len(s.incarnations)-1]
	if n := len(latest.epochs); latest.incarnation == at.incarnation && (n == 0 || latest.epochs[n-1] == epoch) {
		s.ended, e.full, latest.used = true, time.Time{}, time.Time{}
	}
}

// overtaken returns when a later incarnation of the stream began, if two processes write the stream: the later one has
// sent something since the given one began, still does, and began more than ahead before the given window (Unix ns). One
// process sends the windows of its predecessors first, so those are older. Otherwise it returns zero.
func (e *exporter) overtaken(at blockID, window int64, now time.Time, ahead time.Duration) (since time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.streams[at.producer]
	own := s.find(at.incarnation)
	if own == nil {
		return time.Time{}
	}
	for _, l := range s.incarnations {
		alive := l.used.After(own.began) && now.Sub(l.used) < streamSilence
		if l.incarnation > at.incarnation && alive && window > l.began.Add(ahead).UnixNano() {
			return l.began
		}
	}
	return time.Time{}
}

// finish ends the work on an item whose number enter took. If the sink has rows of a batch that
// is not durable, finish keeps the batch until it is sent again.
func (e *exporter) finish(it *item, durable bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.streams[it.at.producer].find(it.at.incarnation); l != nil {
		l.dedup.end(it.at.seq, durable)
	}
	if durable || !it.batch || !it.wrote {
		return
	}
	if e.undurable == nil || len(e.undurable) >= maxInFlightBlocks {
		e.undurable = map[blockID]*item{} // more than a correct exporter leaves unanswered
	}
	it.kept = nil // counted for good
	e.undurable[it.at] = it
}

// resume returns the batch with this number that finish kept; nil if there is none.
func (e *exporter) resume(at blockID) *item {
	e.mu.Lock()
	defer e.mu.Unlock()
	it := e.undurable[at]
	delete(e.undurable, at)
	return it
}

// unannounced reports whether an incarnation has not been announced under the epoch.
func (e *exporter) unannounced(at blockID, epoch uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.streams[at.producer].find(at.incarnation)
	return l != nil && !slices.Contains(l.epochs, epoch)
}

// announced records that an incarnation was announced.
func (e *exporter) announced(at blockID, epoch uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.streams[at.producer].find(at.incarnation); l != nil {
		l.epochs = appendRecent(l.epochs, epoch, maxIncarnationEpochs)
	}
}

// described is a known description and its epoch.
type described struct{ id, epoch uint64 }

// describe records that the exporter sent a description.
func (e *exporter) describe(d described) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.described = appendRecent(e.described, d, max(minDescribed, e.limits.Load().MaxStreams))
}

// epochOf returns the epoch of a description that the exporter sent.
func (e *exporter) epochOf(id uint64) (epoch uint64, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return find(e.described, id)
}

func find(list []described, id uint64) (epoch uint64, ok bool) {
	for _, d := range list {
		if d.id == id {
			return d.epoch, true
		}
	}
	return 0, false
}

// appendRecent adds a value as the latest one, and drops the oldest beyond a number.
func appendRecent[T comparable](list []T, v T, most int) []T {
	list = slices.DeleteFunc(list, func(x T) bool { return x == v })
	if len(list) >= most {
		list = slices.Delete(list, 0, len(list)-most+1)
	}
	return append(list, v)
}

// busy reports whether numbers of the stream are taken.
func (s *stream) busy() bool {
	return slices.ContainsFunc(s.incarnations, func(l incarnationState) bool { return l.dedup.busy != dedupWindow{}.busy })
}

// find returns nil for an incarnation, or a stream, that is not remembered.
func (s *stream) find(incarnation uint64) *incarnationState {
	if s == nil {
		return nil
	}
	for i := range s.incarnations {
		if s.incarnations[i].incarnation == incarnation {
			return &s.incarnations[i]
		}
	}
	return nil
}

// incarnation finds or adds an incarnation; it returns nil for one older than the remembered ones.
func (s *stream) incarnation(incarnation uint64) *incarnationState {
	if l := s.find(incarnation); l != nil {
		return l
	}
	at, _ := slices.BinarySearchFunc(s.incarnations, incarnation, func(l incarnationState, n uint64) int { return cmp.Compare(l.incarnation, n) })
	if len(s.incarnations) >= maxIncarnations {
		if at == 0 {
			return nil
		}
		s.incarnations = slices.Delete(s.incarnations, 0, 1)
		at--
	}
	s.incarnations = slices.Insert(s.incarnations, at, incarnationState{incarnation: incarnation})
	return &s.incarnations[at]
}

// dedupWindow remembers the latest numbers of an incarnation. The zero value has seen none.
type dedupWindow struct {
	top        uint64
	busy, done [maxInFlightBlocks / 64]uint64 // by number modulo maxInFlightBlocks
}

// begin takes a new number and returns OUTCOME_STORED; end must follow. Otherwise the number is
// older than the remembered ones (OUTCOME_STALE), durable (OUTCOME_REPEAT), or taken and not
// durable yet (OUTCOME_UNSPECIFIED).
func (s *dedupWindow) begin(n uint64) wire.Outcome {
	word, bit := bitOf(n)
	switch {
	case n > s.top:
		s.advance(n)
	case s.top-n >= maxInFlightBlocks:
		return wire.Outcome_OUTCOME_STALE
	case s.done[word]&bit != 0:
		return wire.Outcome_OUTCOME_REPEAT
	case s.busy[word]&bit != 0:
		return wire.Outcome_OUTCOME_UNSPECIFIED
	}
	s.busy[word] |= bit
	return wire.Outcome_OUTCOME_STORED
}

// end records whether the number is durable; otherwise it may be taken again.
func (s *dedupWindow) end(n uint64, durable bool) {
	if n > s.top || s.top-n >= maxInFlightBlocks {
		return
	}
	word, bit := bitOf(n)
	s.busy[word] &^= bit
	if durable {
		s.done[word] |= bit
	}
}

// advance forgets the numbers that fall out of the range ending at n.
func (s *dedupWindow) advance(n uint64) {
	if n-s.top >= maxInFlightBlocks {
		*s = dedupWindow{}
	} else {
		for i := s.top + 1; i <= n; i++ {
			word, bit := bitOf(i)
			s.busy[word] &^= bit
			s.done[word] &^= bit
		}
	}
	s.top = n
}

func bitOf(n uint64) (word int, bit uint64) {
	n %= maxInFlightBlocks
	return int(n / 64), 1 << (n % 64)
}
