package remote

import (
	"net/http"
	"strconv"
	"sync"
	"time"
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
