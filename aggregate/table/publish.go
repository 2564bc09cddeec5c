package table

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// Run publishes a revision when windows have changed, until ctx ends.
func (m *Memory) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-m.dirty:
			m.debounce(ctx)
			m.Publish()
		case <-m.waits():
			m.Publish()
		}
	}
	return nil
}

// maxDebounce is the longest time for which a revision waits for further blocks of the same moment.
const maxDebounce = 10 * time.Millisecond

// debounce waits for further blocks of the same moment, such as those of other taps, until every
// present producer wrote the newest window, with as many blocks as the previous one.
func (m *Memory) debounce(ctx context.Context) {
	ended := time.NewTimer(maxDebounce)
	defer ended.Stop()
	for !m.isComplete() {
		select {
		case <-ctx.Done():
			return
		case <-ended.C:
			return
		case <-m.dirty:
		}
	}
}

// waits returns a channel that fires when, without a write, a window may become final, producers for
// which the windows ahead wait stop being present, or a window follows by the clock. Before the first
// window it is nil.
func (m *Memory) waits() <-chan time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.opts.Now()
	at, ok := m.nextFinal(now)
	noLater := func(next time.Time) {
		if !ok || next.Before(at) {
			at, ok = next, true
		}
	}
	if m.seconds != nil {
		noLater(m.nextByClock(now))
	} else if m.table.upToNewest() < len(m.table.list) {
		noLater(now.Add(m.presence()))
	}
	if silent, follows := m.nextSilence(now); follows {
		noLater(silent)
	}
	if !ok {
		return nil
	}
	return time.After(min(at.Sub(now), maxWaits))
}

// maxWaits bounds a wait for a time of the clock, which can be set back meanwhile.
const maxWaits = DefaultMaxAge * aggregate.LiveResolution

func (m *Memory) isComplete() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.complete
}

// Publish makes a revision of the changes since the last one, if there are any.
func (m *Memory) Publish() {
	// Waiting clients compute their results themselves, at the same time.
	for _, w := range m.publish() {
		if m.seconds == nil { // few clients use short windows
			w.warm()
		}
	}
}

// publish returns the windows of the revision whose rows have changed, none if there is no revision.
func (m *Memory) publish() (changed []*Window) {
	m.publishing.Lock()
	defer m.publishing.Unlock()
	last := m.state.Load()
	s := m.newState(last.Revision + 1)
	m.mu.Lock()
	s.durable = m.durable
	m.chooseNewest(s.Published)
	m.fill()
	m.forget(s.Published)
	s.Epoch, s.Coverage = m.epoch, m.coverage()
	for _, step := range m.table.list[:m.table.upToNewest()] {
		w := m.windows[step.start]
		if m.becomesFinal(w, s.Published) || w.changed {
			flows, forgotten := m.sharedFlows(step.start)
			w.changed, w.known = false, &Window{
				Start: time.Unix(0, step.start).UTC(), End: time.Unix(0, step.start+int64(m.opts.Resolution)).UTC(), Revision: s.Revision,
				Producers: m.producersOf(w), Coverage: s.Coverage, Rows: m.rows(w), Memo: newMemo(), Final: w.final,
				Durable: w.lastWritten() <= s.durable, last: w.lastWritten(), flows: flows, flowsForgotten: forgotten,
			}
			if m.seconds == nil { // short windows are not judged
				w.known.lacking = maps.Collect(m.lacking(w, s.Published))
			}
			changed = append(changed, w.known)
		}
		s.Windows = append(s.Windows, w.known)
	}
	m.complete = false
	m.counts.UntrackedCells = m.histories.untracked
	select {
	case <-m.dirty: // this revision includes all changes
	default:
	}
	m.mu.Unlock()
	log := last.log
	if s.Epoch != last.Epoch {
		log = nil
		m.histories.rewind(s.Published.Add(m.opts.Ahead).UnixNano())
	} else if len(changed) == 0 && (len(s.Windows) > 0 || s.Coverage.expectsAs(last.Coverage)) {
		return nil
	}
	of := change{windows: changed, rows: rowsOf(changed)}
	if m.seconds != nil {
		m.judgeBySeconds(changed)
	} else {
		m.histories.add(s, changed)
		var mended []*Window
		s.standing, mended = m.histories.stand(s)
		of.windows = slices.Concat(changed, mended)
		slices.SortFunc(of.windows, func(a, b *Window) int { return a.Start.Compare(b.Start) })
		of.rows += s.standing.own
		m.know(s.Windows)
	}
	s.log = m.logged(log, s, of)
	m.state.Store(s)
	close(last.next)
	return changed
}

// know keeps windows for the next revisions, unless they are forgotten.
func (m *Memory) know(windows []*Window) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, known := range windows {
		if w := m.windows[known.Start.UnixNano()]; w != nil {
			w.known = known
		}
	}
}

// rowsOf returns the number of rows of windows.
func rowsOf(windows []*Window) (rows int) {
	for _, w := range windows {
		rows += w.Rows.Len()
	}
	return rows
}

// logged returns the log with a further revision, within the bounds on revisions and rows, but at least with the revision
// before. Logged states have no log themselves; otherwise, none would ever be freed.
func (m *Memory) logged(log []change, s *State, of change) []change {
	apart := *s
	apart.log = nil
	of.state = &apart
	log = append(slices.Clone(log), of)
	rows := 0
	for i := len(log) - 1; i >= 0; i-- {
		rows += log[i].rows
		if kept := len(log) - i; kept > 2 && (kept > m.opts.Log || rows > m.opts.MaxRows) {
			return slices.Delete(log, 0, i+1)
		}
	}
	return log
}

// State returns the state at the latest revision.
func (m *Memory) State() *State { return m.state.Load() }
