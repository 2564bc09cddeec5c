// Package agent captures on a host: it opens taps, runs the pipeline behind them, commits the
// windows that close through a journal, and goes on under a changed configuration without losing
// or repeating a packet.
//
// It knows the order in which taps, pipeline and journal begin, change and end. It must never
// know files of configuration, what keeps the log, or who asks about it.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/local/journal"
	"github.com/csigscope/csigscope/ingest/local/taps"
)

// Setup is what is captured, and how, under one configuration.
type Setup struct {
	// Instance identifies the rows of this agent. It cannot change.
	Instance string
	Taps     taps.Config
	Settings window.Settings
	Network  journal.Network
	Interval time.Duration // between commits; it changes at the next start
}

// Names says what the numbers in rows stand for, beside the rows.
type Names interface {
	// Use names what rows under a network mean, from now on. Rows under the one before
	// may still come.
	Use(journal.Network)
	// Run writes names until ctx ends, and the last ones then.
	Run(ctx context.Context) error
}

// Agent captures on a host. Open, Resume and Start begin it in that order, Run runs it. Taps,
// Stats and Commits are safe for concurrent use once it has been started.
type Agent struct {
	logger *slog.Logger
	setup  Setup // in use
	opened time.Time

	taps     taps.Set
	using    atomic.Pointer[taps.Set] // the same, for other goroutines
	journal  *journal.Journal
	names    Names
	pipeline *local.Pipeline
	after    uint64                          // the latest incarnation of an earlier process
	running  atomic.Pointer[context.Context] // Run's; once it has ended no more frames are taken
}

// Open opens the taps of a setup, whose rings hold what comes while the rest begins.
func Open(s Setup, logger *slog.Logger) (*Agent, error) {
	a := &Agent{logger: logger, setup: s}
	var err error
	a.taps, err = taps.Open(s.Taps, nil)
	a.opened = time.Now()
	a.using.Store(&a.taps)
	return a, err
}

// Close closes the taps of an agent that was never run.
func (a *Agent) Close() error { return a.taps.Close() }

// Resume opens the journal and returns the marks of an earlier process, of each of which missing
// is told what is not there. Rows of taps, with what they found and did not take in, go to the
// writers.
func (a *Agent) Resume(cfg journal.Config, to journal.Writers, missing func(*local.Mark, []store.Gap) error) ([]local.Mark, error) {
	cfg.Opened, cfg.Logger = a.opened, a.logger
	cfg.Records = journal.NewRecorder(journal.RecorderConfig{
		Stats: func() []local.RingStats { return a.Stats().Rings },
		Tap: func(name string) journal.Tap {
			if t := a.Taps()[name]; t != nil {
				return t
			}
			return nil
		},
		Ending: func() bool {
			ctx := a.running.Load()
			return ctx != nil && (*ctx).Err() != nil
		},
		Writers: to, Logger: a.logger,
	})
	a.journal = journal.New(cfg)
	marks, err := a.journal.Resume(&a.setup.Settings, missing)
	for i := range marks {
		a.after = max(a.after, marks[i].Source.Incarnation)
	}
	return marks, err
}

// Start makes the pipeline behind the taps. Rows of windows that have ended go to provisional before
// they close; nil is for none. Nothing runs before Run.
func (a *Agent) Start(names Names, provisional aggregate.ProvisionalSink) error {
	a.names = names
	names.Use(a.setup.Network)
	cfg := local.Config{Instance: a.setup.Instance, Interval: a.setup.Interval, Journal: a.journal, Provisional: provisional, After: a.after, Logger: a.logger}
	var err error
	a.pipeline, err = local.New(cfg, plan(&a.setup, a.taps, nil))
	return err
}

// plan is what the pipeline does with taps, after those of before.
func plan(s *Setup, set, before taps.Set) local.Plan {
	return local.Plan{Settings: s.Settings, Rings: set.Rings(before)}
}

// Run captures until ctx ends. What comes before the pipeline ends with ctx; what others do
// behind it goes on until it has ended.
func (a *Agent) Run(ctx context.Context, before, behind []func(context.Context) error) error {
	a.running.Store(&ctx)
	around, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	back, around := errgroup.WithContext(around)
	for _, work := range append(behind, a.names.Run) {
		back.Go(func() error { return work(around) })
	}
	front, capturing := errgroup.WithContext(ctx)
	capturing, stop := context.WithCancel(capturing)
	defer stop()
	defer context.AfterFunc(around, stop)()
	for _, work := range before {
		front.Go(func() error { return work(capturing) })
	}
	front.Go(func() error {
		defer stop()
		return a.pipeline.Run(capturing)
	})
	err := front.Wait()
	end()
	return errors.Join(err, back.Wait())
}

// Reload goes on under another setup, or under the one in use where it fails. Taps that are in
// both go on. Adopt takes over the rest of the configuration, before windows do: they take their
// time to close, and credentials may have been revoked. It is for one of the functions that Run
// runs before the pipeline.
func (a *Agent) Reload(ctx context.Context, s Setup, adopt func() error) error {
	if s.Instance != a.setup.Instance {
		return fmt.Errorf("instance %q was %q: changing it takes a restart", s.Instance, a.setup.Instance)
	}
	set, err := taps.Open(s.Taps, a.taps)
	if err != nil {
		return err
	}
	if err := adopt(); err != nil {
		return err
	}
	a.names.Use(s.Network)
	if err := a.pipeline.Reload(ctx, plan(&s, set, a.taps)); err != nil {
		return err
	}
	a.setup, a.taps = s, set
	a.using.Store(&set)
	return nil
}

// Taps are those that are open.
func (a *Agent) Taps() taps.Set { return *a.using.Load() }

// Stats is a snapshot of the pipeline.
func (a *Agent) Stats() local.Stats { return a.pipeline.Stats() }

// Commits is a snapshot of the journal.
func (a *Agent) Commits() journal.Stats { return a.journal.Stats() }

// Left is what a process that ends at once leaves to the next one.
func (a *Agent) Left() string {
	return fmt.Sprintf("windows that are open are lost, and the next process records as a gap what came since %s", a.Commits().Last.UTC().Format(time.RFC3339))
}
