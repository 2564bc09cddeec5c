package remote

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// exporter is a collector's state of one identity, an exporter's or a peer's. Limits bound its
// size.
type exporter struct {
	name                          string
	peer                          bool
	limits                        atomic.Pointer[Limits]
	requests, bytes, rows, naming *rate.Limiter
	provisional                   *rate.Limiter
	inFlight                      atomic.Int32
	last                          atomic.Int64 // Unix ns of the last request
	counts                        counts
	clock                         clockOffset
	owned                         int // number of producers; guarded by the server's mu
	ahead                         clockAhead

	mu        sync.Mutex
	streams   map[uint64]*stream // by producer
	undurable map[blockID]*item  // batches of which the sink has rows that are not durable yet
	described []described        // its descriptions, latest last
}

// stream is a series of numbered blocks.
type stream struct {
	incarnations []incarnationState // by incarnation, the last few
}

// incarnationState is one incarnation of a stream.
type incarnationState struct {
	incarnation uint64
	epochs      []uint64 // under which its runs were announced
	dedup       dedupWindow
}

const (
	maxIncarnations      = 16  // of a stream; an exporter that is often killed sends blocks of several
	maxIncarnationEpochs = 4   // of an incarnation
	maxDescribed         = 256 // of an exporter: hosts that share a credential have one each
)

func newExporter(name string, l *Limits) *exporter {
	e := &exporter{name: name, streams: map[uint64]*stream{}}
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

// blockID identifies a block or batch of a stream.
type blockID struct {
	producer, incarnation, seq uint64
}

// begin takes a number. finish must follow if the state is seqNew.
func (e *exporter) begin(at blockID, maxStreams int) (seqState, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, ok := e.incarnation(at, maxStreams)
	switch {
	case !ok:
		return 0, false
	case l == nil:
		return seqStale, true
	}
	return l.dedup.begin(at.seq), true
}

// meet registers the incarnation of a record.
func (e *exporter) meet(at blockID, maxStreams int) (seqState, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, ok := e.incarnation(at, maxStreams)
	if l == nil {
		return seqStale, ok
	}
	return seqNew, ok
}

// incarnation finds or adds an incarnation. It returns nil for one older than the remembered ones,
// and false if there are too many streams. The caller holds mu.
func (e *exporter) incarnation(at blockID, maxStreams int) (*incarnationState, bool) {
	s := e.streams[at.producer]
	if s == nil {
		if len(e.streams) >= maxStreams {
			return nil, false
		}
		s = &stream{}
		e.streams[at.producer] = s
	}
	return s.incarnation(at.incarnation), true
}

// finish ends the work on an item whose number begin returned as new. A batch of which the sink
// has rows is kept until it is sent again.
func (e *exporter) finish(it *item, durable bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.streams[it.at.producer]; s != nil {
		if l := s.find(it.at.incarnation); l != nil {
			l.dedup.end(it.at.seq, durable)
		}
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

// resume returns a batch of which the sink has rows, nil if there is none with this number.
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
	e.described = appendRecent(e.described, d, maxDescribed)
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

func (s *stream) find(incarnation uint64) *incarnationState {
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
	at, _ := slices.BinarySearchFunc(s.incarnations, incarnation, func(l incarnationState, n uint64) int {
		if l.incarnation < n {
			return -1
		}
		return 1
	})
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
