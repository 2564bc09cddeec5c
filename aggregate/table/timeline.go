package table

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// Timeline adds up the blocks of one resolution in memory, step by step of time. It is a
// Sink, safe for concurrent use. Its memory is
// bounded: where the first and the last window are more steps apart than it may hold, or
// the steps have more rows together, it makes them longer (widened); where one step has too
// many, they are added to its overflow row.
type Timeline struct {
	resolution time.Duration
	maxSteps   int
	maxKeys    int

	mu          sync.Mutex
	step        int64 // ns
	first, last int64 // starts of windows, Unix ns
	steps       map[int64]*Summary
	rows        int // of all steps
	full        bool
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
func (t *Timeline) WriteBlock(ctx context.Context, b *aggregate.Block) error {
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
		t.full = true
		t.widen()
	}
	t.full = t.full || t.rows >= t.maxKeys
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

// widen makes one step of two, or of five.
func (t *Timeline) widen() {
	old := t.steps
	t.step = widened(t.step, int64(t.resolution))
	t.steps = make(map[int64]*Summary, len(old)/2+1)
	for start, s := range old {
		t.at(start).Merge(s)
	}
	t.rows = 0
	for _, s := range t.steps {
		t.rows += s.Len()
	}
}

// widened is the step after one: 2, 10, 20, 100 and so on times the resolution, so that
// steps of 1 ms come to whole parts of a second.
func widened(step, resolution int64) int64 {
	for resolution*10 <= step {
		resolution *= 10
	}
	if step == resolution {
		return 2 * step
	}
	return 5 * step
}

// Full tells whether there was no room for all rows: steps are longer than the number of
// steps asks for, or some rows are in an overflow row.
func (t *Timeline) Full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.full
}

// Extent is from the start of the first window to that of the last one, Unix ns; both are
// 0 without any.
func (t *Timeline) Extent() (first, last int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first, t.last
}

// StepFor is the step of a timeline that is bounded by the number of steps alone.
func StepFor(first, last int64, resolution time.Duration, maxSteps int) time.Duration {
	step := int64(resolution)
	for last/step-first/step >= int64(max(maxSteps, 2)) {
		step = widened(step, int64(resolution))
	}
	return time.Duration(step)
}

// Step is the length of a step: 1, 2, 10, 20, 100 and so on times the resolution.
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
