package conform

import "math"

// losses are the packets that went in, by whether they were tagged and came out.
type losses struct {
	came, lost [2]uint64 // other packets, tagged ones
	first      Example   // the first tagged one that was lost
}

func (l *losses) add(w *waiter) {
	tagged := 0
	if w.tagged {
		tagged = 1
	}
	l.came[tagged]++
	if w.taken {
		return
	}
	if l.lost[tagged]++; w.tagged && (l.lost[1] == 1 || w.number < l.first.Before) {
		l.first = exampleOf(&w.sighting, nil)
	}
}

// Losses are judged from so many packets of each kind on.
const minLosses = 50

// significant is the number of standard deviations beyond which a difference is no chance:
// one honest device of a billion is that far off.
const significant = 6

// judgeLosses tells whether tagged packets were lost more often than others (a test of two
// proportions).
func (j *Judge) judgeLosses() {
	l := &j.losses
	if l.came[0] < minLosses || l.came[1] < minLosses {
		j.counts.LossUnknown = l.lost[1]
		return
	}
	n0, n1 := float64(l.came[0]), float64(l.came[1])
	p0, p1 := float64(l.lost[0])/n0, float64(l.lost[1])/n1
	p := (float64(l.lost[0]) + float64(l.lost[1])) / (n0 + n1)
	deviation := math.Sqrt(p * (1 - p) * (1/n0 + 1/n1))
	if deviation > 0 && (p1-p0)/deviation > significant {
		j.brokeOften(TaggedLost, l.lost[1], l.first)
	}
}
