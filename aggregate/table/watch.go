package table

import "context"

// Step is what a Watcher is to be told next.
type Step struct {
	Kind  StepKind
	State *State
	// Windows are those that changed, of a Changed step; Missed is how many revisions were
	// passed over, of a Lagging or Gap step of the same epoch.
	Windows []*Window
	Missed  uint64
}

// StepKind says what a Step is.
type StepKind uint8

// The kinds. After Lagging and Gap follows a Snapshot.
const (
	Snapshot StepKind = iota // everything, at the state's revision
	Changed                  // windows that are new or have changed
	Lagging                  // the watcher was too slow, and has missed revisions
	Gap                      // what the watcher resumes from is not at hand any more
)

// Watcher follows the revisions of a Memory, at its own speed: it holds a revision and no
// queue, so that the slowest costs the memory nothing. It serves one goroutine.
type Watcher struct {
	memory   *Memory
	revision uint64
	pending  []Step
	maxLag   int
}

// Watch follows the memory from a snapshot on. A watcher that is more than maxLag revisions
// behind, at most Config.Log, has to begin anew.
func (m *Memory) Watch(maxLag int) *Watcher {
	w := &Watcher{memory: m, maxLag: m.lag(maxLag)}
	w.restart(m.State())
	return w
}

// Resume follows the memory from what somebody has seen on: with a Gap and a snapshot where
// that is not at hand.
func (m *Memory) Resume(maxLag int, epoch, revision uint64) *Watcher {
	w := &Watcher{memory: m, maxLag: m.lag(maxLag), revision: revision}
	s := m.State()
	_, known := s.At(revision)
	if s.Epoch == epoch && known && s.Revision-revision <= uint64(w.maxLag) {
		return w
	}
	gap := Step{Kind: Gap, State: s}
	if s.Epoch == epoch && revision < s.Revision {
		gap.Missed = s.Revision - revision
	}
	w.pending = append(w.pending, gap)
	w.restart(s)
	return w
}

func (m *Memory) lag(n int) int {
	if n <= 0 || n >= m.cfg.Log {
		return m.cfg.Log - 1
	}
	return n
}

func (w *Watcher) restart(s *State) {
	w.revision = s.Revision
	w.pending = append(w.pending, Step{Kind: Snapshot, State: s})
}

// Next waits for the next step, until ctx ends.
func (w *Watcher) Next(ctx context.Context) (Step, error) {
	if len(w.pending) == 0 {
		if err := w.wait(ctx); err != nil {
			return Step{}, err
		}
	}
	step := w.pending[0]
	w.pending = w.pending[1:]
	return step, nil
}

// wait fills pending.
func (w *Watcher) wait(ctx context.Context) error {
	s, later := w.memory.Wait(ctx, w.memory.cfg.Epoch, w.revision)
	if !later {
		return ctx.Err()
	}
	behind := s.Revision - w.revision
	if behind > uint64(w.maxLag) || behind > uint64(len(s.log)) {
		w.pending = append(w.pending, Step{Kind: Lagging, State: s, Missed: behind})
		w.restart(s)
		return nil
	}
	next := s.log[len(s.log)-int(behind)]
	w.revision = next.state.Revision
	w.pending = append(w.pending, Step{Kind: Changed, State: next.state, Windows: next.windows})
	return nil
}
