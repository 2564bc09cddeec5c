package access

import (
	"container/list"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// client is what is known of one asker. It is safe for concurrent use.
type client struct {
	key      string
	requests bucket
	store    bucket // milliseconds of the store's time
	failures bucket

	using    atomic.Int64 // requests that hold it
	running  atomic.Int64
	watching atomic.Int64

	role      atomic.Pointer[Role] // of the last request
	asked     atomic.Uint64
	limited   atomic.Uint64
	rows      atomic.Uint64
	storeTime atomic.Int64 // ns
	last      atomic.Int64 // Unix ns
}

func newClient(key string, l *Limits) *client {
	const minute = 60
	ms := max(1, int(l.StoreTime.Milliseconds()))
	return &client{
		key: key, requests: newBucket(l.Requests, l.Burst), store: newBucket(float64(ms)/minute, ms), failures: newBucket(failureRate, failureBurst),
	}
}

// limitedError is a request that may come later.
type limitedError struct {
	reason Reason
	detail string
	retry  time.Duration
}

func (e *limitedError) Error() string { return e.detail }

// begin counts a request that is to be answered; its error is a limitedError.
func (c *client) begin(now time.Time, l *Limits) error {
	if wait := c.requests.pass(now); wait > 0 {
		return &limitedError{rateLimit, fmt.Sprintf("more than %g requests a second: ask less often, or watch what you ask for again and again", l.Requests), wait}
	}
	if !enter(&c.running, l.Concurrent) {
		return &limitedError{concurrent, fmt.Sprintf("%d requests are being answered already: wait for one of them", l.Concurrent), time.Second}
	}
	return nil
}

// enter counts one more, up to a limit.
func enter(n *atomic.Int64, limit int) bool {
	if n.Add(1) > int64(limit) {
		n.Add(-1)
		return false
	}
	return true
}

// done lets go of the client.
func (c *client) done() { c.using.Add(-1) }

// table remembers so many clients; those who were longest away are forgotten. It is safe for
// concurrent use.
type table struct {
	limits Limits

	mu     sync.Mutex
	known  map[string]*list.Element // of *client
	order  *list.List               // the last one to come is in front
	others *client                  // all whom there is no room for
	forgot uint64
}

func (t *table) init(l Limits) {
	t.limits, t.known, t.order = l, make(map[string]*list.Element), list.New()
	t.others = newClient("others", &l)
}

// maxPassed bounds the clients that are looked at to find one that can be forgotten.
const maxPassed = 16

// get gives the client, who is held until done.
func (t *table) get(key string, now time.Time) *client {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.find(key)
	c.using.Add(1)
	c.last.Store(now.UnixNano())
	return c
}

func (t *table) find(key string) *client {
	if e, ok := t.known[key]; ok {
		t.order.MoveToFront(e)
		return e.Value.(*client)
	}
	if len(t.known) >= t.limits.Askers && !t.forget() {
		return t.others
	}
	c := newClient(key, &t.limits)
	t.known[key] = t.order.PushFront(c)
	return c
}

// forget makes room, if one of those who were away for long is not at work.
func (t *table) forget() bool {
	e := t.order.Back()
	for range maxPassed {
		if e == nil {
			return false
		}
		if c := e.Value.(*client); c.using.Load() == 0 {
			t.order.Remove(e)
			delete(t.known, c.key)
			t.forgot++
			return true
		}
		e = e.Prev()
	}
	return false
}

// list are all clients, the last one to come first.
func (t *table) list() []*client {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*client, 0, len(t.known)+1)
	for e := t.order.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*client))
	}
	if t.others.asked.Load() > 0 {
		all = append(all, t.others)
	}
	return all
}

// milliseconds are those of d, at least one, so that nothing is free.
func milliseconds(d time.Duration) int {
	return int(max(1, math.Ceil(float64(d)/float64(time.Millisecond))))
}
