package aggregate

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Timeline adds up the blocks of one resolution in memory, step by step of time. It is a
// Sink, safe for concurrent use. Its memory is
// bounded: where the first and the last window are more steps apart than it may hold, or
// the steps have more rows together, it doubles their length; where one step has too many,
// they are added to its overflow row.
type Timeline struct {
	resolution time.Duration
	maxSteps   int
	maxKeys    int

	mu          sync.Mutex
	step        int64 // ns
	first, last int64 // starts of windows, Unix ns
	steps       map[int64]*Summary
	rows        int // of all steps
}

// NewTimeline makes a Timeline of the blocks at the resolution, of at most maxSteps steps,
// 2 at least, and of at most maxKeys rows of a cell and a location.
func NewTimeline(resolution time.Duration, maxSteps, maxKeys int) *Timeline {
	return &Timeline{
		resolution: resolution, maxSteps: max(maxSteps, 2), maxKeys: maxKeys,
		step: int64(resolution), steps: make(map[int64]*Summary),
	}
}

// WriteBlock adds the block's rows, if it is of the timeline's resolution. It never fails.
func (t *Timeline) WriteBlock(ctx context.Context, b *Block) error {
	if b.Resolution != int64(t.resolution) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.steps) == 0 {
		t.first, t.last = b.WindowStart, b.WindowStart
	}
	t.first, t.last = min(t.first, b.WindowStart), max(t.last, b.WindowStart)
	for t.last/t.step-t.first/t.step >= int64(t.maxSteps) {
		t.widen()
	}
	s := t.at(b.WindowStart)
	before := s.Len()
	err := s.WriteBlock(ctx, b)
	for t.rows += s.Len() - before; t.rows > t.maxKeys && len(t.steps) > 1; {
		t.widen()
	}
	return err
}

// at is the summary of the step that a window is in.
func (t *Timeline) at(start int64) *Summary {
	start -= start % t.step
	s := t.steps[start]
	if s == nil {
		s = NewSummary(t.resolution, t.maxKeys)
		t.steps[start] = s
	}
	return s
}

// widen makes one step of two.
func (t *Timeline) widen() {
	old := t.steps
	t.step *= 2
	t.steps = make(map[int64]*Summary, len(old)/2+1)
	for start, s := range old {
		t.at(start).Merge(s)
	}
	t.rows = 0
	for _, s := range t.steps {
		t.rows += s.Len()
	}
}

// Step is the length of a step, a power of two times the resolution.
func (t *Timeline) Step() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Duration(t.step)
}

// Steps are the starts of steps in which something was observed, ascending, Unix ns, and
// their summaries. They are not to be written to.
func (t *Timeline) Steps() (starts []int64, of map[int64]*Summary) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.steps)), maps.Clone(t.steps)
}
