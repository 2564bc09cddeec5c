package table

import (
	"cmp"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

const (
	// fineTime is how long a Memory of short windows keeps them, at least, after it stops waiting
	// for their blocks.
	fineTime = 5 * time.Second
	// fineLog is how many times as many revisions such a Memory logs.
	fineLog = 10
)

// NewFineMemory makes a Memory of windows shorter than aggregate.LiveResolution, for blocks that
// may hold only cells with heavy observations. So a missing producer means nothing, and windows
// follow the clock: a window is shown once a producer has rows of it. Once seconds, the Memory of
// windows of aggregate.LiveResolution, has a window, short ones without rows are shown too, after their
// lateness.
//
// States and coverage are those of seconds at the time of a revision: short windows are never
// judged, and no producer has to write them. It uses the clock and the thresholds of seconds. It
// keeps a window for 5 s after it stops waiting for its blocks: by default for 10 s in all.
func NewFineMemory(seconds *Memory, resolution, lateness time.Duration, maxRows int) *Memory {
	o := &seconds.opts
	m := NewMemory(MemoryOptions{
		Resolution: resolution, Lateness: lateness, MaxRows: maxRows, Log: fineLog * o.Log, Ahead: o.Ahead, Thresholds: o.Thresholds, Now: o.Now,
		Windows: int((fineTime + seconds.fineAwaited()) / resolution),
	})
	m.seconds = seconds
	return m
}

// fineAwaited returns how long after its lateness a short window waits for blocks that were
// announced. They come at the latest with the windows of seconds, when those close.
func (m *Memory) fineAwaited() time.Duration { return m.opts.Lateness + m.presence() }

// newestByClock returns the start of the last window that has ended and has rows, or would be final
// without any; noWindow before the first.
func (m *Memory) newestByClock(now time.Time) int64 {
	started := func(at time.Time) int64 { return at.UnixNano() / m.table.width * m.table.width }
	newest, written := m.table.newest, len(m.table.list)
	if newest != noWindow || m.seconds.State().Newest() != nil {
		newest = max(newest, started(now.Add(-m.opts.Lateness-closingTime))-m.table.width)
	}
	if written > 0 {
		newest = max(newest, min(m.table.list[written-1].start, started(now)-m.table.width))
	}
	return newest
}

// nextByClock returns the time at which the window after the newest one is shown if nobody writes
// until then. Very short windows without rows come several at a time.
func (m *Memory) nextByClock(now time.Time) time.Time {
	if m.table.newest == noWindow {
		return now.Add(m.seconds.opts.Resolution) // seconds may have one
	}
	next := m.table.newest + m.table.width
	if m.table.upToNewest() < len(m.table.list) {
		return time.Unix(0, next+m.table.width)
	}
	at, pause := m.closes(next), m.state.Load().Published
	if at.Before(pause) {
		at = pause
	}
	return at.Add(closingTime)
}

// fineCoverage returns the coverage of seconds, with the end of the newest short window that has
// rows. The caller holds mu.
func (m *Memory) fineCoverage() *Coverage {
	c := *m.seconds.State().Coverage
	for _, p := range m.producers {
		if end := time.Unix(0, min(p.newest, m.table.newest)+m.table.width).UTC(); end.After(c.Newest) {
			c.Newest = end
		}
	}
	return &c
}

// writeCells records the cells of a block for the memory's own coverage. The caller holds mu.
func (m *Memory) writeCells(b *aggregate.Block) {
	if m.seconds == nil {
		m.cells.write(b)
	}
}

// producersOf returns the number of producers that wrote a window. Producers need not write short
// windows; for these it counts the producers of the newest window of seconds.
func (m *Memory) producersOf(w *openWindow) int {
	if m.seconds == nil {
		return w.producers()
	}
	if newest := m.seconds.State().Newest(); newest != nil {
		return newest.Producers
	}
	return 0
}

// judgeBySeconds sets the states of cells to those at the end of the newest window of seconds.
func (m *Memory) judgeBySeconds(windows []*Window) {
	seconds := cmp.Or(m.seconds.State().standing, &standing{})
	j := &judgement{thresholds: m.opts.Thresholds, length: seconds.length, seconds: seconds}
	if n := len(seconds.windows); n > 0 {
		j.windows = seconds.windows[n-1:]
	}
	for _, w := range windows {
		w.Rows.judged = j
	}
}
