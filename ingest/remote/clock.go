package remote

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/wire"
)

// sentAt is the metadata that tells when a request was sent, by the exporter's clock, in
// ns of Unix time. A request is made once and sent perhaps often, from the spool: the time
// is not part of it.
const sentAt = "sent-unix-ns"

// offsetSpan is how long a sample of a clock counts, at least; at most twice as long.
const offsetSpan = 5 * time.Minute

// clockOffset estimates how far a clock is ahead, by when requests say that they were sent
// and when they came. Each sample is too small by the time that the request took. The
// largest one of a while is of the fastest request: the estimate is the offset less the
// one-way delay of that, with the making of a connection where there was no other. Safe
// for concurrent use; the zero value knows nothing.
type clockOffset struct {
	mu          sync.Mutex
	since       time.Time // that now is of
	now, before sample
}

// sample is the largest of a while.
type sample struct {
	ahead time.Duration
	known bool
}

func (s sample) or(o sample) sample {
	if !s.known || o.known && o.ahead > s.ahead {
		return o
	}
	return s
}

// aheadEvery is how often the finding about an exporter whose clock is ahead is written again,
// with the count that it has come to.
const aheadEvery = time.Minute

// clockAhead is the finding that an exporter's windows began too far ahead of the collector's
// clock. Safe for concurrent use; the zero value found nothing.
type clockAhead struct {
	mu             sync.Mutex
	of             aggregate.Source // the first that it was found of
	first, last    int64            // Unix ns, by the collector's clock
	count, written uint64           // refusals of blocks and batches, which may come twice
	wrote          time.Time
	most           time.Duration // that one was ahead
}

// findAhead counts a block or a batch that was refused for a time that is ahead.
func (p *push) findAhead(it *item, v verdict, producer func(identity, stream string) uint64) {
	if v.outcome != wire.Outcome_OUTCOME_FUTURE || p.own(it, producer) != toStore {
		return
	}
	var by outsideError
	errors.As(v.err, &by)
	c, now := &p.e.ahead, p.now().UnixNano()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == 0 {
		c.first, c.of = now, aggregate.Source{Producer: it.at.producer, Incarnation: it.at.incarnation, Epoch: it.epoch}
	}
	c.last, c.most = now, max(c.most, by.by)
	c.count++
}

// finding is what is to be written about the exporter at a time, nil for nothing, and what to
// call once it is.
func (c *clockAhead) finding(exporter string, limit time.Duration, now time.Time) (f *Finding, written func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == c.written || now.Sub(c.wrote) < aheadEvery {
		return nil, nil
	}
	n := c.count
	f = &Finding{c.of, &wire.Finding{
		Kind: clockAheadKind, Id: producerOf(clockAheadKind, exporter, ""), Severity: "warning", FromNs: c.first, ToNs: c.last, Count: n,
		Evidence: fmt.Sprintf("exporter %q: windows begin up to %s ahead of the collector's clock and are refused beyond %s: set the clock of one of the two hosts", exporter, c.most.Round(time.Millisecond), limit),
	}}
	return f, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.written, c.wrote = n, now
	}
}

// clockAheadKind is the kind of the finding; see package finding.
const clockAheadKind = "clock-ahead"

// observe takes a request in. What is no time is passed over.
func (c *clockOffset) observe(h http.Header, came time.Time) {
	sent, err := strconv.ParseInt(h.Get(sentAt), 10, 64)
	if err != nil || sent <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn(came)
	// Both are positive: the difference is within bounds.
	c.now = c.now.or(sample{time.Duration(sent - came.UnixNano()), true})
}

// turn begins a new while where it is time. The caller holds the lock.
func (c *clockOffset) turn(at time.Time) {
	switch age := at.Sub(c.since); {
	case age >= 2*offsetSpan || age < 0:
		c.now, c.before, c.since = sample{}, sample{}, at
	case age >= offsetSpan:
		c.now, c.before, c.since = sample{}, c.now, at
	}
}

// ahead is the estimate as of the time; 0 where nothing is known.
func (c *clockOffset) ahead(at time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn(at)
	return c.now.or(c.before).ahead
}
