package finding

import "math/bits"

// slots are the times in which something happened, a bit for each of 64 equal parts of
// the time so far.
type slots struct {
	bits uint64
	step uint8 // of the clock, when bits were set
}

// slotClock says how long a slot is: 1 ms, doubled so often that 64 of them reach from the
// first observation to the last.
type slotClock struct {
	start   int64
	step    uint8
	started bool
}

const slotNS = 1_000_000

// at is the slot of a time; what came before the first observation is in the first one.
func (c *slotClock) at(ns int64) uint {
	if !c.started {
		c.start, c.started = ns, true
	}
	n := uint64(max(ns-c.start, 0)) / slotNS
	for n>>c.step >= 64 {
		c.step++
	}
	return uint(n >> c.step)
}

// set marks a time.
func (s *slots) set(c *slotClock, ns int64) {
	at := c.at(ns)
	s.bits = s.now(c) | 1<<at
	s.step = c.step
}

// now are the bits by the clock's present step.
func (s *slots) now(c *slotClock) uint64 {
	b := s.bits
	for n := s.step; n < c.step && b != 0; n++ {
		var half uint64
		for i := range 32 {
			if b>>(2*i)&3 != 0 {
				half |= 1 << i
			}
		}
		b = half
	}
	return b
}

// overlap is the share of the times of one in which the other happened as well.
func overlap(one, other uint64) float64 {
	if one == 0 {
		return 0
	}
	return float64(bits.OnesCount64(one&other)) / float64(bits.OnesCount64(one))
}
