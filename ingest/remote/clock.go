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

// sentAt is the header with the time at which a request was sent, by the exporter's clock, in
// Unix ns. The time is not part of the request, which may be sent repeatedly from the spool.
const sentAt = "sent-unix-ns"

// offsetSpan is the minimum lifetime of a clock sample; the maximum is twice that.
const offsetSpan = 5 * time.Minute

// clockOffset estimates how far a clock is ahead, from the times at which requests were sent
// and received. Each sample is too small by the delay of its request. The largest recent sample
// belongs to the fastest request, so the estimate is the offset less the one-way delay of that
// request, including the connection setup if there was no faster one. It is safe for concurrent
// use; the zero value has no samples.
type clockOffset struct {
	mu          sync.Mutex
	since       time.Time // begin of now
	now, before sample
}

// sample is the largest of its period.
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

// aheadEvery is the interval at which the finding about an exporter's fast clock is rewritten
// with its new count.
const aheadEvery = time.Minute

// clockAhead is the finding that an exporter's windows began too far ahead of the collector's
// clock. It is safe for concurrent use; the zero value has found nothing.
type clockAhead struct {
	mu             sync.Mutex
	of             aggregate.Source // the first source that it was found for
	first, last    int64            // Unix ns, by the collector's clock
	count, written uint64           // refusals of blocks and batches, which may arrive twice
	wrote          time.Time
	most           time.Duration // maximum lead of a window
}

// findAhead counts a block or a batch that was refused because its time is ahead.
func (p *push) findAhead(it *item, v verdict, producer func(identity, stream string) uint64) {
	if v.outcome != wire.Outcome_OUTCOME_FUTURE || p.own(it, producer) != toStore {
		return
	}
	by, _ := errors.AsType[outsideError](v.err)
	c, now := &p.e.ahead, p.now().UnixNano()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == 0 {
		c.first, c.of = now, aggregate.Source{Producer: it.at.producer, Incarnation: it.at.incarnation, Epoch: it.epoch}
	}
	c.last, c.most = now, max(c.most, by.by)
	c.count++
}

// finding returns the finding to write about the exporter, nil if there is none, and a function
// to call once it is written.
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

// observe takes the sample of a request. It ignores an invalid time.
func (c *clockOffset) observe(h http.Header, came time.Time) {
	sent, err := strconv.ParseInt(h.Get(sentAt), 10, 64)
	if err != nil || sent <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn(came)
	// Both are positive, so the difference cannot overflow.
	c.now = c.now.or(sample{time.Duration(sent - came.UnixNano()), true})
}

// turn starts a new period when the current one is over. The caller holds the lock.
func (c *clockOffset) turn(at time.Time) {
	switch age := at.Sub(c.since); {
	case age >= 2*offsetSpan || age < 0:
		c.now, c.before, c.since = sample{}, sample{}, at
	case age >= offsetSpan:
		c.now, c.before, c.since = sample{}, c.now, at
	}
}

// ahead returns the estimate at the given time; 0 if there is none.
func (c *clockOffset) ahead(at time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn(at)
	return c.now.or(c.before).ahead
}
