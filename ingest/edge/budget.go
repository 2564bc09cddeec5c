package edge

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Limits bounds the resources of one client. A client with a credential is identified by its
// name, others by their address (an IPv6 client by its /64). A zero field means its default.
type Limits struct {
	Requests float64 // per second; 100
	// Burst is the maximum number of requests at once; default: twice Requests.
	Burst      int
	Concurrent int // running at a time; 16
	Watchers   int // waiting or watching requests at a time; 128
	// StoreTime is the store's working time for the client per minute; 1 min, enough for one query
	// that always runs. A longer query is still answered, and later ones have to wait.
	StoreTime time.Duration
	// Clients is the maximum number of remembered clients, with a credential and without one;
	// 4096 each. Beyond it idle ones are forgotten; if there is none, further clients share one budget.
	Clients int
}

// Defaults of Limits.
const (
	DefaultRequests   = 100
	DefaultConcurrent = 16
	DefaultWatchers   = 128
	DefaultStoreTime  = time.Minute
	DefaultClients    = 4096
)

const (
	maxRate    = 1e6
	maxAtATime = 1 << 20
)

func (l Limits) withDefaults() (Limits, error) {
	l.Requests, l.StoreTime = cmp.Or(l.Requests, DefaultRequests), cmp.Or(l.StoreTime, DefaultStoreTime)
	l.Burst = cmp.Or(l.Burst, max(1, int(min(2*l.Requests, maxAtATime))))
	l.Concurrent, l.Watchers, l.Clients = cmp.Or(l.Concurrent, DefaultConcurrent), cmp.Or(l.Watchers, DefaultWatchers), cmp.Or(l.Clients, DefaultClients)
	if !(l.Requests > 0 && l.Requests <= maxRate) {
		return l, fmt.Errorf("limits: requests %g: expected more than 0 and at most %g a second", l.Requests, float64(maxRate))
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"burst", l.Burst}, {"concurrent", l.Concurrent}, {"watchers", l.Watchers}, {"clients", l.Clients}} {
		if n.value < 1 || n.value > maxAtATime {
			return l, fmt.Errorf("limits: %s %d: expected 1 to %d", n.name, n.value, maxAtATime)
		}
	}
	if l.StoreTime < time.Millisecond || l.StoreTime > time.Hour {
		return l, fmt.Errorf("limits: store_time %s: expected 1ms to 1h, in a minute", l.StoreTime)
	}
	return l, nil
}

// Limits for requests with wrong credentials from one address.
const (
	failureRate  = 5 // per second
	failureBurst = 50
)

// Budget is a request's share of its client's budget. A nil Budget is unlimited; it is used for
// work that no request waits for. It is safe for concurrent use.
type Budget struct {
	account *account
	limits  Limits
	now     func() time.Time
	refusal atomic.Uint32 // reason for a refused request

	rows      atomic.Int64
	storeTime atomic.Int64 // ns
	watching  atomic.Bool
	streamed  atomic.Bool // has watched or waited
}

type budgetKey struct{}

// BudgetOf returns the budget of the request that a context belongs to, nil if there is none.
func BudgetOf(ctx context.Context) *Budget {
	b, _ := ctx.Value(budgetKey{}).(*Budget)
	return b
}

// LimitError is the error for an exhausted budget.
type LimitError struct {
	Detail string        // the limit and a way out
	Retry  time.Duration // when to retry
}

func (l *LimitError) Error() string { return l.Detail }

// RetryAfter returns the value of the header Retry-After: whole seconds, at least one.
func (l *LimitError) RetryAfter() string {
	return fmt.Sprint(max(1, int64((l.Retry+time.Second-1)/time.Second)))
}

// Check must be called before each store query that may take long; its error is a LimitError. A
// request that has run its first query may finish: if it were cut off half way, the client
// would repeat it and never finish.
func (b *Budget) Check() error {
	if b == nil || b.storeTime.Load() > 0 {
		return nil
	}
	if wait := untilOne(b.account.store, b.now()); wait > 0 {
		b.refusal.Store(uint32(storeTime))
		return &LimitError{Retry: wait, Detail: fmt.Sprintf(
			"your queries took more than %s of the store's time in a minute: take shorter ranges, or leave out from and to for the windows in memory", b.limits.StoreTime)}
	}
	return nil
}

// ChargeTime charges working time of the store.
func (b *Budget) ChargeTime(d time.Duration) {
	if b == nil {
		return
	}
	b.storeTime.Add(int64(d))
	b.account.storeTime.Add(int64(d))
	// Charge at least a millisecond, so that nothing is free. The limiter may be overdrawn,
	// since the cost of a query is known only afterwards, but it grants at most its burst per
	// call.
	now, store := b.now(), b.account.store
	for ms := int(max(1, math.Ceil(float64(d)/float64(time.Millisecond)))); ms > 0; ms -= store.Burst() {
		store.ReserveN(now, min(ms, store.Burst()))
	}
}

// ChargeRows counts rows of the response.
func (b *Budget) ChargeRows(n int) {
	if b == nil {
		return
	}
	b.rows.Add(int64(n))
	b.account.rows.Add(uint64(n))
}

// AcquireStream must be called before the request waits or watches. Until release it counts as
// one of the client's watchers, which have their own limit. Its error is a LimitError.
func (b *Budget) AcquireStream() (release func(), err error) {
	if b == nil {
		return func() {}, nil
	}
	if !enter(&b.account.watching, b.limits.Watchers) {
		b.refusal.Store(uint32(watchers))
		return nil, &LimitError{Retry: time.Second, Detail: fmt.Sprintf(
			"%d of your requests wait or watch already: end one of them, or share a watch", b.limits.Watchers)}
	}
	b.watching.Store(true)
	b.streamed.Store(true)
	b.account.running.Add(-1)
	return func() {
		b.watching.Store(false)
		b.account.watching.Add(-1)
		b.account.running.Add(1) // the request still has to finish
	}, nil
}

func (b *Budget) why() refusal { return refusal(b.refusal.Load()) }

// take takes a token from a limiter, or returns the time until one is available. Reserving and
// canceling would consume too many tokens with concurrent clients.
func take(l *rate.Limiter, now time.Time) time.Duration {
	if l.AllowN(now, 1) {
		return 0
	}
	return max(untilOne(l, now), 1)
}

// untilOne returns the time until a limiter has a token; 0 or less if it has one.
func untilOne(l *rate.Limiter, now time.Time) time.Duration {
	return time.Duration((1 - l.TokensAt(now)) / float64(l.Limit()) * float64(time.Second))
}

// account holds the budget and the usage of one client. It is safe for concurrent use.
type account struct {
	key      string
	rate     *rate.Limiter // requests
	store    *rate.Limiter // milliseconds of store time
	failures *rate.Limiter

	holders  atomic.Int64 // requests that use it
	running  atomic.Int64
	watching atomic.Int64

	role      atomic.Pointer[Role] // of the last request
	requests  atomic.Uint64
	refused   atomic.Uint64 // refused requests
	rows      atomic.Uint64
	storeTime atomic.Int64 // ns
	last      atomic.Int64 // Unix ns
}

func newAccount(key string, l *Limits) *account {
	const minute = 60
	ms := max(1, int(l.StoreTime.Milliseconds()))
	return &account{
		key: key, rate: rate.NewLimiter(rate.Limit(l.Requests), l.Burst),
		store: rate.NewLimiter(rate.Limit(float64(ms)/minute), ms), failures: rate.NewLimiter(failureRate, failureBurst),
	}
}

// begin counts a new request, or returns the reason for its refusal. Open requests do not count
// as running: they cost nothing, and a browser requests all files of a page at once.
func (c *account) begin(now time.Time, l *Limits, open bool) (refusal, *LimitError) {
	if wait := take(c.rate, now); wait > 0 {
		return rateLimit, &LimitError{fmt.Sprintf("more than %g requests a second on average: ask less often, or watch instead of polling", l.Requests), wait}
	}
	if !open && !enter(&c.running, l.Concurrent) {
		return concurrent, &LimitError{fmt.Sprintf("%d requests are being answered already: wait for one of them", l.Concurrent), time.Second}
	}
	return none, nil
}

// enter adds one to n and reports true, unless n is at its limit.
func enter(n *atomic.Int64, limit int) bool {
	if n.Add(1) > int64(limit) {
		n.Add(-1)
		return false
	}
	return true
}

func (c *account) release() { c.holders.Add(-1) }

// table holds a bounded number of accounts and evicts the least recently used. It is safe for
// concurrent use.
type table struct {
	limits Limits

	mu     sync.Mutex
	known  map[string]*list.Element // of *account
	order  *list.List               // latest first
	others *account                 // shared by all clients beyond the limit
	forgot uint64
}

func (t *table) init(l Limits) {
	t.limits, t.known, t.order = l, make(map[string]*list.Element), list.New()
	t.others = newAccount("others", &l)
}

// maxPassed is the maximum number of accounts examined to find one to evict.
const maxPassed = 16

// get returns the account of a key and holds it until release.
func (t *table) get(key string, now time.Time) *account {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.find(key)
	c.holders.Add(1)
	c.last.Store(now.UnixNano())
	return c
}

func (t *table) find(key string) *account {
	if e, ok := t.known[key]; ok {
		t.order.MoveToFront(e)
		return e.Value.(*account)
	}
	if len(t.known) >= t.limits.Clients && !t.forget() {
		return t.others
	}
	c := newAccount(key, &t.limits)
	t.known[key] = t.order.PushFront(c)
	return c
}

// forget evicts one of the oldest accounts that is not in use, and reports whether it found
// one.
func (t *table) forget() bool {
	e := t.order.Back()
	for range maxPassed {
		if e == nil {
			return false
		}
		if c := e.Value.(*account); c.holders.Load() == 0 {
			t.order.Remove(e)
			delete(t.known, c.key)
			t.forgot++
			return true
		}
		e = e.Prev()
	}
	return false
}

// list returns all accounts, latest first.
func (t *table) list() []*account {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*account, 0, len(t.known)+1)
	for e := t.order.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*account))
	}
	if t.others.requests.Load() > 0 {
		all = append(all, t.others)
	}
	return all
}
