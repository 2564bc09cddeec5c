package conform

import (
	"math"
	"math/bits"
)

// stratum is a group of packets that a device has no reason to treat differently except for their
// tag: those of one flow and about one size. Packets of different flows meet different queues, and
// a full queue accepts small packets longer than large ones, so even a faithful device may lose
// more tagged packets in total (Simpson's paradox). A wider stratum is all packets of about one size
// to one destination.
type stratum struct {
	of   uint64 // flow, or destination
	size uint8  // binary logarithm of the length
	to   bool   // of is a destination
}

// crossing counts the packets of a stratum: first untagged ones, then tagged ones.
type crossing struct {
	came, lost [2]uint64
	shortest   uint32 // length of a lost tagged packet
	longest    uint32 // length of an untagged packet that came out
}

// bySize reports whether the device may have lost the tagged packets for their size: none of the untagged
// packets that came out is as long. The maximum size of a link explains that.
func (c *crossing) bySize() bool { return c.lost[1] > 0 && c.shortest > c.longest }

// losses are the packets that entered and did not leave.
type losses struct {
	of    map[stratum]*crossing
	lost  [2]uint64 // untagged packets, tagged ones
	first Example   // the first tagged one that was lost, in any part
	order uint32    // its order
}

// add counts a packet before the device. One that came out in fragments is not lost on account of its
// tag: it is compared with none.
func (l *losses) add(w *waiter, fragmented bool) {
	tagged := 0
	if w.tagged {
		tagged = 1
	}
	if !w.taken {
		l.lost[tagged]++
		if fragmented {
			return
		}
		if w.tagged && (l.first.Before == 0 || w.order < l.order) {
			l.first, l.order = exampleOf(&w.sighting, nil), w.order
		}
	}
	size := uint8(bits.Len32(w.length))
	for _, of := range [...]stratum{{w.flow, size, false}, {w.to, size, true}} {
		if of.of == 0 {
			continue
		}
		c := l.of[of]
		if c == nil {
			if len(l.of) >= maxFlows {
				continue
			}
			c = new(crossing)
			l.of[of] = c
		}
		c.came[tagged]++
		switch {
		case w.taken && !w.tagged:
			c.longest = max(c.longest, w.length)
		case w.taken:
		case w.tagged && (c.lost[1] == 0 || w.length < c.shortest):
			c.shortest = w.length
			fallthrough
		default:
			c.lost[tagged]++
		}
	}
}

// minLosses is the number of packets of each kind that a comparison of losses needs.
const minLosses = 50

// significant is the number of standard deviations beyond which a difference is not chance: one
// honest device in a billion is that far off.
const significant = 6

// judgeLosses finds tagged packets that were lost more often than untagged ones of their flow and
// size (the Cochran-Mantel-Haenszel test), or destinations that lost all tagged packets and few
// others of a size: a full queue lets some of every kind pass.
func (j *Judge) judgeLosses() {
	l := &j.losses
	var came [2]uint64
	var compared, blocked uint64 // lost tagged packets
	var excess, variance float64
	for of, c := range l.of {
		n0, n1, lost := float64(c.came[0]), float64(c.came[1]), float64(c.lost[0]+c.lost[1])
		switch {
		case c.bySize():
		case of.to:
			if c.came[0] >= minLosses && c.came[1] >= minLosses && c.lost[1] == c.came[1] && 2*c.lost[0] < c.came[0] {
				blocked += c.lost[1]
			}
		case c.came[0] > 0 && c.came[1] > 0:
			n := n0 + n1
			came[0], came[1], compared = came[0]+c.came[0], came[1]+c.came[1], compared+c.lost[1]
			excess += float64(c.lost[1]) - n1*lost/n
			variance += n0 * n1 * lost * (n - lost) / (n * n * (n - 1))
		}
	}
	switch {
	case min(came[0], came[1]) >= minLosses && variance > 0 && excess > significant*math.Sqrt(variance):
		j.brokeOften(TaggedLost, compared, l.first)
	case blocked > 0:
		j.brokeOften(TaggedLost, blocked, l.first)
	case min(came[0], came[1]) < minLosses:
		j.counts.LossUnknown = l.lost[1]
	default:
		j.counts.LossUnknown = l.lost[1] - compared
	}
}
