package window

import (
	"errors"
	"fmt"

	"github.com/csigscope/csigscope/aggregate"
)

// Reset prepares a flushed shard for another capture: blocks carry the new source and are numbered
// from seqBase. Counts start from zero, and the earlier capture has no effect: the blocks are those
// of a new shard. The shard keeps its knowledge of addresses and locators and its memory, and so is
// faster than a new one.
//
// It fails after an error of the sink, which it returns, and when windows are open.
func (s *Shard) Reset(source aggregate.Source, seqBase uint64) error {
	if s.err != nil {
		return s.err
	}
	if s.pending > 0 || len(s.clock.waiting) > 0 || s.openWindows() > 0 {
		return fmt.Errorf("reset shard: %w", errNotFlushed)
	}
	s.cfg.Source, s.cfg.SeqBase = source, seqBase
	s.rows.block.Source, s.rows.seq = source, seqBase
	s.clock.init(&s.cfg)
	s.counts = aggregate.Counts{}
	s.endpoints.resets, s.keys.resets = 0, 0
	if s.repeats != nil {
		s.repeats.forget()
	}
	s.witness.forget()
	s.forgetStarts()
	s.dropDeadAt = min(s.cfg.MaxSeries, minDropDeadAt)
	s.series.nextLife()
	// Leftovers share the budget of series with this life, and begin with at most half of it.
	if len(s.series.list) > s.cfg.MaxSeries/2 {
		s.forgetSeries()
	}
	return nil
}

// forgetStarts makes the levels begin again, at any time.
func (s *Shard) forgetStarts() {
	for i := range s.levels {
		s.levels[i].first, s.levels[i].announced = -1, 0
	}
}

// forgetSeries forgets all series. No window may be open.
func (s *Shard) forgetSeries() {
	s.series.forget()
	s.keys.clear()
}

var errNotFlushed = errors.New("windows are open: call Flush before")

func (s *Shard) openWindows() (n int) {
	for i := range s.levels {
		n += len(s.levels[i].open)
	}
	return n
}

// dropDeadSeries forgets the series that no open window counts.
func (s *Shard) dropDeadSeries() {
	live := make([]bool, len(s.series.list))
	for i := range s.levels {
		for _, w := range s.levels[i].open {
			for id := range w.eachSeries {
				live[id] = true
			}
		}
	}
	s.keepSeries(live)
	s.dropDeadAt = min(s.cfg.MaxSeries, max(2*len(s.series.list), minDropDeadAt))
}

// dropLeftovers forgets the series of earlier lives before they could use up this life's budget.
func (s *Shard) dropLeftovers() {
	s.countOpen()
	live := make([]bool, len(s.series.list))
	for i, life := range s.series.lives {
		live[i] = life == s.series.life
	}
	s.keepSeries(live)
}

// countOpen records that the series in open windows have been counted in this life, as closing them
// would.
func (s *Shard) countOpen() {
	for _, w := range s.levels[0].open {
		for id := range w.eachSeries {
			s.series.count(id)
		}
	}
}

// keepSeries forgets all series but the live ones, and the keys, which hold series numbers. Open
// windows must have only live series, and no pending item may have its series yet.
func (s *Shard) keepSeries(live []bool) {
	renumbered := s.series.retain(live)
	s.keys.clear()
	for i := range s.levels {
		s.levels[i].renumber(s.seeds, renumbered, &s.series)
	}
}
