package journal

import (
	"time"

	"github.com/csigscope/csigscope/aggregate/store"
)

const (
	// statisticsAge is how old what the kernel counts may be.
	statisticsAge = time.Second
	// togetherWithin is how far apart losses are one gap: a ring leaves at most so many
	// gaps in a minute.
	togetherWithin = 5 * time.Second
)

// missing is a time in which packets of a ring were lost.
type missing struct {
	From, To time.Time
	Count    uint64 // observations; 0 is nothing
}

// add counts what was lost between two barriers.
func (m *missing) add(n uint64, from, to time.Time) {
	if n == 0 {
		return
	}
	if m.Count == 0 {
		m.From = from
	}
	m.Count += n
	m.To = to
}

// endMissing makes gaps of what is missing, once nothing more has been for a while, or now.
func (r *Recorder) endMissing(g *ringRecord, now time.Time, end bool) {
	for m, reason := range map[*missing]string{&g.Drops: store.GapDrops, &g.Mirror: store.GapMirror} {
		if m.Count == 0 || !end && now.Sub(m.To) < togetherWithin {
			continue
		}
		r.state.Gaps = append(r.state.Gaps, store.Gap{
			Source: g.Row.Source, From: m.From, To: m.To, Reason: reason, Observations: m.Count, ID: uint64(g.Ring),
		})
		*m = missing{}
	}
}
