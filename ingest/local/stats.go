package local

import (
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
)

// Stats is what a pipeline has counted until its last barrier.
type Stats struct {
	Rings       []RingStats // those that run, and those that ran
	Barriers    uint64
	LastBarrier time.Time // the zero Time before the first one
	Stalled     uint64    // times that a ring did not stop for a barrier in time
	Full        uint64    // times that a ring held so many rows that it had to wait
	Reloads     uint64
}

// RingStats is what one ring of a tap has counted, or a session of its source, which is a
// tap of its own.
type RingStats struct {
	Name string // of the tap
	Ring int
	// Of is the tap that the session arrived at, and Session what its source calls it;
	// empty for the tap itself.
	Of, Session string

	Ended bool      // no frame will come, or the ring was removed
	Cut   time.Time // when it was counted: a ring that hangs stays as it was
	// Source is the identity of the ring's rows since the last barrier.
	Source aggregate.Source
	// Wrote is that of the rows before it: another one where a reload changed the epoch.
	Wrote aggregate.Source

	window.Tally                   // frames
	Decoded      decode.Counters   // frames and what was in them
	Counts       aggregate.Counts  // observations
	Findings     []finding.Finding // since the process began
	Observed     int64             // up to when there were observations, Unix ns; before the first, since when there is none
	LastFrame    time.Time         // when it was captured; the zero Time for none
	StateBytes   uint64            // memory of the aggregation
}

// Stats is a snapshot. It is safe to call at any time.
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

// ring is what was counted of a ring before.
func (p *Pipeline) ring(k key) RingStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.stats.Rings {
		if r := &p.stats.Rings[i]; r.Name == k.name && r.Ring == k.ring {
			return *r
		}
	}
	return RingStats{}
}

// set replaces what is known of a ring.
func (s *Stats) set(r *RingStats) {
	for i := range s.Rings {
		if s.Rings[i].Name == r.Name && s.Rings[i].Ring == r.Ring {
			s.Rings[i] = *r
			return
		}
	}
	s.Rings = append(s.Rings, *r)
}

// Counts are those of all rings.
func (s Stats) Counts() (sum aggregate.Counts) {
	for i := range s.Rings {
		sum.Merge(&s.Rings[i].Counts)
	}
	return sum
}

// Decoded are the counters of all rings.
func (s Stats) Decoded() (sum decode.Counters) {
	for i := range s.Rings {
		sum.Add(&s.Rings[i].Decoded)
	}
	return sum
}

// Open is how many observations are in windows that are not closed yet, or wait to be
// believed: those that no other count has.
func Open(c *aggregate.Counts) uint64 {
	known := c.Stored + c.Overflow + c.Late
	for _, n := range c.Rejected {
		known += n
	}
	return c.In - known
}
