package store

import (
	"sync"
	"time"
)

// latencyBounds are the upper bounds of the buckets of Latency. Windows of 1 s close 2 s
// after their end and wait for about another one in their batch.
var latencyBounds = [...]time.Duration{
	500 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second, 5 * time.Second,
	7500 * time.Millisecond, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour,
}

// Latency is how long 1 s windows took from their end until the server had taken their
// rows, which is when questions see them. It says something about windows that were
// measured now; those of a replayed capture are as late as the capture is old.
type Latency struct {
	Bounds []time.Duration // upper, inclusive, ascending; read-only
	Counts []uint64        // one more than Bounds: the last is what is beyond
	Sum    time.Duration
}

// latency counts for Latency.
type latency struct {
	mu     sync.Mutex
	counts [len(latencyBounds) + 1]uint64
	sum    time.Duration
}

// taken counts the windows of a batch that the server has taken at a time: once for each
// run of rows of one producer and number, as a closed window leaves them.
func (l *latency) taken(b *batch, now time.Time) {
	if b.grain != secondGrain {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	producer, seq := b.words[producerColumn], b.words[seqColumn]
	for i := range seq {
		if i == 0 || seq[i] != seq[i-1] || producer[i] != producer[i-1] {
			l.add(now.Sub(b.windowStart[i].Add(grainAt(secondGrain).Length)))
		}
	}
}

func (l *latency) add(d time.Duration) {
	d = max(d, 0) // of a tap whose clock is ahead
	i := 0
	for i < len(latencyBounds) && d > latencyBounds[i] {
		i++
	}
	l.counts[i]++
	l.sum += d
}

// Latency is a snapshot of what was counted since the store was opened.
func (s *Store) Latency() Latency {
	l := &s.latency
	l.mu.Lock()
	defer l.mu.Unlock()
	return Latency{Bounds: latencyBounds[:], Counts: append([]uint64(nil), l.counts[:]...), Sum: l.sum}
}
