package access

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits are what one asker may do: who shows a credential by its name, others by their
// address, of IPv6 its /64. The zero value of a field means its default.
type Limits struct {
	Requests float64 // a second; 100
	// Burst is how many requests may come at once; twice a second's.
	Burst      int
	Concurrent int // answered at a time; 16
	Watchers   int // requests that wait or watch at a time; 128
	// StoreTime is how long the store may work for the asker in a minute; 1 min: one question
	// at all times. What takes longer is answered, and what comes then has to wait.
	StoreTime time.Duration
	// Askers are remembered, of those with a credential and of addresses; 4096 each. Those
	// beyond it share what one asker has.
	Askers int
}

// Defaults of Limits.
const (
	DefaultRequests   = 100
	DefaultConcurrent = 16
	DefaultWatchers   = 128
	DefaultStoreTime  = time.Minute
	DefaultAskers     = 4096
)

const (
	maxRate    = 1e6
	maxAtATime = 1 << 20
)

func (l Limits) withDefaults() (Limits, error) {
	if l.Requests == 0 {
		l.Requests = DefaultRequests
	}
	if l.Burst == 0 {
		l.Burst = max(1, int(min(2*l.Requests, maxAtATime)))
	}
	orDefault(&l.Concurrent, DefaultConcurrent)
	orDefault(&l.Watchers, DefaultWatchers)
	orDefault(&l.Askers, DefaultAskers)
	if l.StoreTime == 0 {
		l.StoreTime = DefaultStoreTime
	}
	if !(l.Requests > 0 && l.Requests <= maxRate) {
		return l, fmt.Errorf("limits: requests %g: expected more than 0 and at most %g a second", l.Requests, float64(maxRate))
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"burst", l.Burst}, {"concurrent", l.Concurrent}, {"watchers", l.Watchers}, {"askers", l.Askers}} {
		if n.value < 1 || n.value > maxAtATime {
			return l, fmt.Errorf("limits: %s %d: expected 1 to %d", n.name, n.value, maxAtATime)
		}
	}
	if l.StoreTime < time.Millisecond || l.StoreTime > time.Hour {
		return l, fmt.Errorf("limits: store_time %s: expected 1ms to 1h, in a minute", l.StoreTime)
	}
	return l, nil
}

func orDefault(n *int, fallback int) {
	if *n == 0 {
		*n = fallback
	}
}

// Of requests whose credential is no good, from one address.
const (
	failureRate  = 5 // a second
	failureBurst = 50
)

// bucket holds what may be used at once and fills up again. It may be overdrawn: the price
// of some things is known afterwards.
type bucket struct {
	mu sync.Mutex
	l  *rate.Limiter
}

func newBucket(perSecond float64, burst int) bucket {
	return bucket{l: rate.NewLimiter(rate.Limit(perSecond), burst)}
}

// wait is how long until there is one at least; 0 for at once.
func (b *bucket) wait(now time.Time) time.Duration {
	missing := 1 - b.l.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return max(time.Duration(missing/float64(b.l.Limit())*float64(time.Second)), 1)
}

// take uses up n, more than there is if need be.
func (b *bucket) take(now time.Time, n int) {
	for n > 0 {
		part := min(n, b.l.Burst())
		b.l.ReserveN(now, part)
		n -= part
	}
}

// pass takes one if there is one, and else says how long until then.
func (b *bucket) pass(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait := b.wait(now)
	if wait == 0 {
		b.take(now, 1)
	}
	return wait
}
