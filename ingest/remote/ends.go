package remote

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxEnds bounds the runs that wait for their end, and maxExporterEnds those of one
	// exporter, so that none takes the room of the others.
	maxEnds         = 1 << 14
	maxExporterEnds = 256
	// endTime bounds an attempt to end runs.
	endTime = time.Minute
	// endRuns is how many runs are ended at once: the store asks for them in one query.
	endRuns = 1000
)

var errEnds = errors.New("too many runs wait for their end")

// ender ends runs in the directory. A store ends a run when all rows before are in its
// tables, which takes as long as the store is away. So ends are tried again and again apart
// from the requests: nothing waits for them but the requests that tell of them, and those for
// a while. A run waits once, however often its exporter tells of its end.
type ender struct {
	to     Directory
	every  time.Duration // between two rounds, at least
	now    func() time.Time
	logger *slog.Logger
	refuse func(exporter string, runs uint64) // counts ends that are given up
	wake   chan struct{}

	mu      sync.Mutex
	waiting map[Run]*ending
	of      map[string]int // how many of them each exporter has
	over    bool

	failing quiet // of run alone
}

// ending is what waits to be done about a run.
type ending struct {
	end     bool // the run itself
	earlier bool // those of the same stream before it
	attempt *attempt
}

// attempt is the next one to end a run; err is set when done is closed.
type attempt struct {
	done chan struct{}
	err  error
}

func newEnder(to Directory, every time.Duration, now func() time.Time, logger *slog.Logger, refuse func(string, uint64)) *ender {
	return &ender{
		to: to, every: every, now: now, logger: logger, refuse: refuse, wake: make(chan struct{}, 1),
		waiting: map[Run]*ending{}, of: map[string]int{},
	}
}

// wait returns nil when the directory has the ends of all runs. After an error they are tried
// again, and the exporter has to tell of them again.
func (e *ender) wait(ctx context.Context, runs []Run) error {
	var attempts []*attempt
	for _, r := range runs {
		a, err := e.add(r, func(w *ending) { w.end = true })
		if err != nil {
			return err
		}
		attempts = append(attempts, a)
	}
	for _, a := range attempts {
		select {
		case <-a.done:
			if a.err != nil {
				return a.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// endEarlier has the earlier runs of the same streams ended. Where that is given up, the
// next run of a stream has it done.
func (e *ender) endEarlier(runs []Run) {
	for _, r := range runs {
		if _, err := e.add(r, func(w *ending) { w.earlier = true }); err != nil {
			e.refuse(r.Exporter, 1)
		}
	}
}

// add has something done about a run, and gives the attempt that does it.
func (e *ender) add(r Run, what func(*ending)) (*attempt, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return nil, errClosed
	}
	w := e.waiting[r]
	if w == nil {
		if len(e.waiting) >= maxEnds || e.of[r.Exporter] >= maxExporterEnds {
			return nil, errEnds
		}
		w = &ending{attempt: &attempt{done: make(chan struct{})}}
		e.waiting[r] = w
		e.of[r.Exporter]++
	}
	what(w)
	select {
	case e.wake <- struct{}{}:
	default:
	}
	return w.attempt, nil
}

// run ends runs until the context ends; whoever still waits then gets an error.
func (e *ender) run(ctx context.Context) {
	defer e.close()
	pause := firstPause
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wake:
		}
		err := e.round(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := e.every
		if err == nil {
			pause = firstPause
			if e.failing.well() {
				e.logger.Warn("the store takes ends of runs again")
			}
		} else {
			wait, pause = max(wait, pause), min(2*pause, longestPause)
			if line, say := e.failing.wrong(e.now(), slog.String("error", err.Error())); say {
				e.logger.Warn("the store does not take ends of runs, trying again", line...)
			}
			select {
			case e.wake <- struct{}{}:
			default:
			}
		}
		if !sleep(ctx, wait) {
			return
		}
	}
}

// round tries once to do what waits.
func (e *ender) round(ctx context.Context) error {
	e.mu.Lock()
	all := slices.Collect(maps.Keys(e.waiting))
	e.mu.Unlock()
	for list := range slices.Chunk(all, endRuns) {
		if err := e.try(ctx, list); err != nil {
			return err
		}
	}
	return nil
}

// try does what waits for some runs, and tells those that wait for it. What is added
// meanwhile is for the next attempt, since rows may have come in between.
func (e *ender) try(ctx context.Context, list []Run) error {
	began := make(map[Run]ending, len(list))
	var ends, later []Run
	e.mu.Lock()
	for _, r := range list {
		w := e.waiting[r]
		began[r] = *w
		if w.end {
			ends = append(ends, r)
		}
		if w.earlier {
			later = append(later, r)
		}
		*w = ending{attempt: &attempt{done: make(chan struct{})}}
	}
	e.mu.Unlock()
	err := e.write(ctx, ends, later)
	e.mu.Lock()
	defer e.mu.Unlock()
	for r, was := range began {
		was.attempt.err = err
		close(was.attempt.done)
		w := e.waiting[r]
		if err != nil {
			w.end, w.earlier = w.end || was.end, w.earlier || was.earlier
		} else if !w.end && !w.earlier {
			e.forget(r)
		}
	}
	return err
}

func (e *ender) write(ctx context.Context, ends, later []Run) error {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	if len(later) > 0 {
		if err := e.to.EndEarlier(ctx, later); err != nil {
			return err
		}
	}
	if len(ends) > 0 {
		return e.to.EndRuns(ctx, ends)
	}
	return nil
}

// forget drops a run. The caller holds mu.
func (e *ender) forget(r Run) {
	delete(e.waiting, r)
	if e.of[r.Exporter]--; e.of[r.Exporter] == 0 {
		delete(e.of, r.Exporter)
	}
}

// close gives up what waits. Exporters were not told that it is done: those that are there
// tell of it again.
func (e *ender) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	for r, w := range e.waiting {
		w.attempt.err = errClosed
		close(w.attempt.done)
		e.refuse(r.Exporter, 1)
	}
	if n := len(e.waiting); n > 0 {
		e.logger.Warn("ends of runs are given up: the store did not take them before the collector ended", slog.Int("runs", n))
	}
	clear(e.waiting)
	clear(e.of)
}
