package local

import (
	"maps"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
)

// Stats is a snapshot of a pipeline's counters, as of its last barrier.
type Stats struct {
	Rings       []RingStats // running and ended ones
	Barriers    uint64
	LastBarrier time.Time // zero before the first
	Stalled     uint64    // times that a ring did not stop in time for a barrier
	Full        uint64    // times that a ring waited because it held too many rows
	Reloads     uint64
}

// RingStats holds the counters of one ring of a tap, or of a session of its source, which is a
// tap of its own.
type RingStats struct {
	Name string // of the tap
	Ring int
	// Of is the tap that received the session, Session its name in the source; empty for the
	// tap itself.
	Of, Session string

	Ended bool      // no more frames will arrive, or the ring was removed
	Cut   time.Time // when these counters were read: those of a hanging ring stay as they were
	// Source is the identity of the ring's rows since the last barrier.
	Source aggregate.Source
	// Wrote is the identity of its earlier rows; it differs if a reload changed the epoch.
	Wrote aggregate.Source

	window.Tally                   // frames
	Decoded      decode.Counters   // frames and their contents
	Counts       aggregate.Counts  // observations
	Findings     []finding.Finding // since the process started
	Observed     int64             // time of the last observation, Unix ns; before the first: begin of the wait for it
	LastFrame    time.Time         // capture time; zero if none
	StateBytes   uint64            // memory of the aggregation, in bytes
}

// Stats returns a snapshot. It is safe for concurrent use.
func (p *Pipeline) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Rings = append([]RingStats(nil), s.Rings...)
	return s
}

func (p *Pipeline) count(change func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.stats)
}

// ring returns the counters of an earlier ring of this key.
func (p *Pipeline) ring(k ringID) RingStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.stats.Rings {
		if r := &p.stats.Rings[i]; r.Name == k.name && r.Ring == k.ring {
			return *r
		}
	}
	return RingStats{}
}

// A ledger sums up the counters of each ring over its successive workers. After a reload a ring may have two
// workers for a while.
type ledger struct {
	rings []RingStats
	of    map[ringID]int // index in rings
}

// add adds the counters of a worker.
func (l *ledger) add(list []RingStats) {
	if l.of == nil {
		l.of = make(map[ringID]int)
	}
	for i := range list {
		r := &list[i]
		if at, ok := l.of[ringID{r.Name, r.Ring}]; ok {
			l.rings[at].add(r)
			continue
		}
		l.of[ringID{r.Name, r.Ring}] = len(l.rings)
		l.rings = append(l.rings, *r)
	}
}

// with returns the sums with the counters of running workers, too.
func (l *ledger) with(workers []*worker) []RingStats {
	sum := ledger{slices.Clone(l.rings), maps.Clone(l.of)}
	for _, w := range workers {
		sum.add(w.stats)
	}
	return sum.rings
}

// add adds the counters of another worker of the ring. All but the counters is the newer worker's.
func (s *RingStats) add(o *RingStats) {
	sum, older := *o, *s
	if o.Source.Incarnation < s.Source.Incarnation {
		sum, older = older, sum
	}
	sum.Merge(&older.Tally)
	sum.Decoded.Add(&older.Decoded)
	sum.Counts.Merge(&older.Counts)
	if sum.LastFrame.IsZero() {
		sum.LastFrame = older.LastFrame
	}
	*s = sum
}

// Counts returns the sum over all rings.
func (s Stats) Counts() (sum aggregate.Counts) {
	for i := range s.Rings {
		sum.Merge(&s.Rings[i].Counts)
	}
	return sum
}

// Decoded returns the sum of the decoders' counters over all rings.
func (s Stats) Decoded() (sum decode.Counters) {
	for i := range s.Rings {
		sum.Add(&s.Rings[i].Decoded)
	}
	return sum
}
