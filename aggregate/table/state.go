package table

import (
	"context"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// State is everything that is known at one revision. It never changes, but for what its
// Memo remembers.
type State struct {
	Epoch      uint64 // of the memory: revisions of different epochs do not compare
	Revision   uint64 // 0 before the first window
	Resolution time.Duration
	Published  time.Time
	Windows    []*Window // ascending, without those in which nothing was observed
	Memo       *Memo

	log  []change
	next chan struct{}
}

// change is what a revision changed.
type change struct {
	state   *State
	windows []*Window
}

// Newest is the last window, nil without any.
func (s *State) Newest() *Window {
	if len(s.Windows) == 0 {
		return nil
	}
	return s.Windows[len(s.Windows)-1]
}

// Last are the last n windows, or all where there are fewer.
func (s *State) Last(n int) []*Window { return s.Windows[max(len(s.Windows)-n, 0):] }

// Next is closed when there is a later revision.
func (s *State) Next() <-chan struct{} { return s.next }

// At is the State of an earlier revision, if it is at hand.
func (s *State) At(revision uint64) (*State, bool) {
	if revision == s.Revision {
		return s, true
	}
	for _, c := range s.log {
		if c.state.Revision == revision {
			return c.state, true
		}
	}
	return nil, false
}

// Merge adds up windows, one of them at least.
func Merge(windows []*Window) *Summary {
	if len(windows) == 1 {
		return windows[0].summary
	}
	sum := windows[0].summary.Clone()
	for _, w := range windows[1:] {
		sum.Merge(w.summary)
	}
	return sum
}

// Signals are those that have values in any of the windows, ascending.
func (s *State) Signals() []csig.Signal {
	list, _ := s.Memo.Get("signals", func() any {
		var all []csig.Signal
		for _, w := range s.Windows {
			all = append(all, w.Signals()...)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}).([]csig.Signal)
	return list
}

// Window is one closed window. It never changes: a later delta makes another Window of the
// same start.
type Window struct {
	Start, End time.Time
	Revision   uint64 // that brought it
	// Producers have told of this window, of those Expected that told of any window kept
	// then. A tap that observes nothing is not told from one that is silent.
	Producers, Expected int
	Memo                *Memo

	summary *Summary
}

// Completeness is the share of the producers that have told of the window.
func (w *Window) Completeness() float64 {
	if w.Expected == 0 {
		return 0
	}
	return min(float64(w.Producers)/float64(w.Expected), 1)
}

// Summary is what the window came to. It is not to be written to.
func (w *Window) Summary() *Summary { return w.summary }

// Signals are those that have values, ascending.
func (w *Window) Signals() []csig.Signal {
	list, _ := w.Memo.Get("signals", func() any { return w.summary.Signals() }).([]csig.Signal)
	return list
}

// Cells are the window's cells as aggregate.Summary gives them, with modes at locations.
// They belong to the window.
func (w *Window) Cells(s csig.Signal) []aggregate.CellStats {
	type key csig.Signal
	list, _ := w.Memo.Get(key(s), func() any { return w.summary.Cells(s, nil) }).([]aggregate.CellStats)
	return list
}

// warm works out what most ask for before anybody does.
func (w *Window) warm() {
	for _, s := range w.Signals() {
		w.Cells(s)
	}
}

// Wait waits for a revision after the one given, until ctx ends or the memory's epoch is
// another one. It gives the latest State in any case, and whether it is later.
func (m *Memory) Wait(ctx context.Context, epoch, after uint64) (*State, bool) {
	for {
		s := m.State()
		if s.Epoch != epoch || s.Revision > after {
			return s, true
		}
		select {
		case <-s.next:
		case <-ctx.Done():
			return s, false
		}
	}
}
