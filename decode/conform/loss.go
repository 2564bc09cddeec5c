package conform

import (
	"math"
	"math/bits"
)

// stratum is a group of packets that a device has no reason to treat differently except for their
// tag: those of one flow and about one size. Packets of different flows meet different queues, and
// a full queue accepts small packets longer than large ones, so even a faithful device may lose
// more tagged packets in total (Simpson's paradox). A stratum of size 0 is all packets to one
// destination.
type stratum struct {
	of   uint64 // flow, or destination
	size uint8  // binary logarithm, plus 2
}

// crossing counts the packets of a stratum: first untagged ones, then tagged ones.
type crossing struct{ came, lost [2]uint64 }

// losses are the packets that entered and did not leave.
type losses struct {
	of    map[stratum]*crossing
	lost  [2]uint64 // untagged packets, tagged ones
	first Example   // the first tagged one that was lost
}

func (l *losses) add(w *waiter) {
	tagged := 0
	if w.tagged {
		tagged = 1
	}
	if !w.taken {
		if l.lost[tagged]++; w.tagged && (l.lost[1] == 1 || w.number < l.first.Before) {
			l.first = exampleOf(&w.sighting, nil)
		}
	}
	if w.flow == 0 {
		return
	}
	for _, of := range [...]stratum{{w.flow, uint8(1 + bits.Len32(w.length))}, {w.to, 0}} {
		c := l.of[of]
		if c == nil {
			if len(l.of) >= maxFlows {
				continue
			}
			c = new(crossing)
			l.of[of] = c
		}
		c.came[tagged]++
		if !w.taken {
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
// others: a full queue lets some of every kind pass.
func (j *Judge) judgeLosses() {
	l := &j.losses
	var came [2]uint64
	var compared, blocked uint64 // lost tagged packets
	var excess, variance float64
	for of, c := range l.of {
		n0, n1, lost := float64(c.came[0]), float64(c.came[1]), float64(c.lost[0]+c.lost[1])
		switch {
		case of.size == 0:
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
