package table

import (
	"context"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// Codes adds up the distributions of the blocks of one resolution in memory, by cell and
// step of time. It is a Sink, safe for concurrent use. Its memory is bounded: where there
// are too many steps, or no room for another code, steps become longer, as those of a
// Timeline, and what has no room in a single step is counted for OverflowGroup.
type Codes struct {
	resolution int64
	maxSteps   int
	maxCodes   int

	mu       sync.Mutex
	step     int64 // ns
	counts   map[codeKey]uint64
	first    int64 // start of the first window, Unix ns
	last     int64
	full     bool
	overflow uint64
}

type codeKey struct {
	start    int64 // of the step, Unix ns
	cell     aggregate.CellKey
	code     uint16 // csig.DistIndex
	encoding aggregate.Encoding
}

// CodeCount is how often a code was measured in a step.
type CodeCount struct {
	Start    int64 // of the step, Unix ns
	Encoding aggregate.Encoding
	Code     uint16 // csig.DistIndex
	N        uint64
}

// NewCodes makes a Codes of the blocks at the resolution, of at most maxSteps steps, 2 at
// least. It holds about maxCodes codes of a cell and step.
func NewCodes(resolution time.Duration, maxSteps, maxCodes int) *Codes {
	return &Codes{resolution: int64(resolution), maxSteps: max(maxSteps, 2), maxCodes: maxCodes, step: int64(resolution), counts: make(map[codeKey]uint64)}
}

// WriteBlock adds the block's distributions, if it is of the resolution. It never fails.
func (c *Codes) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if b.Resolution != c.resolution {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	from := uint32(0)
	for i := range b.Len() {
		k := codeKey{
			start:    b.WindowStart,
			cell:     b.Cell(i),
			encoding: aggregate.Encoding(b.Encoding[i]),
		}
		for at := from; at < b.DistEnd[i]; at++ {
			k.code = b.DistCode[at]
			c.add(k, b.DistCount[at])
		}
		from = b.DistEnd[i]
	}
	return nil
}

func (c *Codes) add(k codeKey, n uint64) {
	if len(c.counts) == 0 {
		c.first, c.last = k.start, k.start
	}
	c.first, c.last = min(c.first, k.start), max(c.last, k.start)
	for c.last/c.step-c.first/c.step >= int64(c.maxSteps) {
		c.widen()
	}
	start := k.start
	k.start -= start % c.step
	_, known := c.counts[k]
	for !known && len(c.counts) >= c.maxCodes {
		c.full = true
		if c.first/c.step == c.last/c.step {
			k.cell.Src, k.cell.Dst = aggregate.OverflowGroup, aggregate.OverflowGroup
			c.overflow = aggregate.AddSat(c.overflow, n)
			break
		}
		c.widen()
		k.start = start - start%c.step
		_, known = c.counts[k]
	}
	c.counts[k] = aggregate.AddSat(c.counts[k], n)
}

// widen makes one step of two, or of five.
func (c *Codes) widen() {
	c.step = widened(c.step, c.resolution)
	old := c.counts
	c.counts = make(map[codeKey]uint64, len(old))
	for k, n := range old {
		k.start -= k.start % c.step
		c.counts[k] = aggregate.AddSat(c.counts[k], n)
	}
}

// Each calls f for the codes of the signal, in any order: those of both kinds, which never
// add up. f must not use c.
func (c *Codes) Each(sig csig.Signal, f func(aggregate.CellID, CodeCount)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, n := range c.counts {
		if k.cell.Signal == sig {
			f(k.cell.ID(), CodeCount{Start: k.start, Encoding: k.encoding, Code: k.code, N: n})
		}
	}
}

// Step is the length of a step: 1, 2, 10, 20, 100 and so on times the resolution.
func (c *Codes) Step() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(c.step)
}

// Overflow is how many observations, of tags and reflections, were counted for OverflowGroup
// because there was no room for them.
func (c *Codes) Overflow() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overflow
}

// Full tells whether there was no room for all codes.
func (c *Codes) Full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.full
}
