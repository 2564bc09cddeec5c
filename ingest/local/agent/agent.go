// Package agent captures on a host: it opens taps, runs the pipeline behind them, commits
// closed windows through a journal, and applies a changed configuration without losing or
// repeating a packet.
//
// It knows the order in which taps, pipeline and journal begin, change and end. It must never
// know configuration files, the implementation of the log, or who queries it.
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

// Setup is everything that a configuration determines about capturing.
type Setup struct {
	// Instance identifies the rows of this agent. It cannot change.
	Instance string
	Taps     taps.Config
	Settings window.Settings
	Network  journal.Network
	Interval time.Duration // between commits; a change applies at the next start
}

// Names writes names for the numbers in rows.
type Names interface {
	// Use makes rows from now on refer to the names of this network. Rows under the previous
	// one may still arrive.
	Use(journal.Network)
	// Run writes names until ctx ends, and then the last ones.
	Run(ctx context.Context) error
}

// Agent captures on a host. Call Open, Resume and Start in that order, then Run. Taps, Stats
// and Commits are safe for concurrent use after Start.
type Agent struct {
	logger *slog.Logger
	setup  Setup // in use
	opened time.Time

	taps     taps.Set
	using    atomic.Pointer[taps.Set] // the same, for other goroutines
	journal  *journal.Journal
	names    Names
	pipeline *local.Pipeline
	after    uint64                          // highest incarnation of earlier processes
	running  atomic.Pointer[context.Context] // Run's context; capturing ends with it
}

// Open opens the taps of a setup. Their rings buffer frames until the pipeline runs.
func Open(s Setup, logger *slog.Logger) (*Agent, error) {
	a := &Agent{logger: logger, setup: s}
	var err error
	s.Taps.Settings = &s.Settings
	a.taps, err = taps.Open(s.Taps, nil)
	a.opened = time.Now()
	set := a.taps // Reload replaces the field
	a.using.Store(&set)
	return a, err
}

// Close closes the taps of an agent that never ran.
func (a *Agent) Close() error { return a.taps.Close() }

// Resume opens the journal and returns the marks of an earlier process. It calls missing for
// each mark with its gaps. The writers receive the rows of taps, their findings and their gaps.
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

// Start makes the pipeline behind the taps. Rows of windows that have ended go to provisional
// before they close; nil: none. Nothing runs before Run.
func (a *Agent) Start(names Names, provisional aggregate.ProvisionalSink) error {
	a.names = names
	names.Use(a.setup.Network)
	cfg := local.Config{Instance: a.setup.Instance, Interval: a.setup.Interval, Journal: a.journal, Provisional: provisional, After: a.after, Logger: a.logger}
	var err error
	a.pipeline, err = local.New(cfg, plan(&a.setup, a.taps, nil))
	return err
}

// plan returns the pipeline's plan for the taps of a set that replaces before.
func plan(s *Setup, set, before taps.Set) local.Plan {
	return local.Plan{Settings: s.Settings, Rings: set.Rings(before)}
}

// Run captures until ctx ends. The functions in before end with ctx; those in behind continue
// until the pipeline has ended.
func (a *Agent) Run(ctx context.Context, before, behind []func(context.Context) error) error {
	a.running.Store(&ctx)
	behindCtx, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	back, behindCtx := errgroup.WithContext(behindCtx)
	for _, work := range append(behind, a.names.Run) {
		back.Go(func() error { return work(behindCtx) })
	}
	front, capturing := errgroup.WithContext(ctx)
	capturing, stop := context.WithCancel(capturing)
	defer stop()
	defer context.AfterFunc(behindCtx, stop)()
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

// Reload applies another setup. Taps in both continue without interruption. If it refuses the setup, nothing
// changes; if a new tap cannot start, Run ends with the error. After the setup is checked and before windows
// close, Reload calls adopt, which applies the rest of the configuration or refuses all of it: revoked
// credentials must not stay valid while windows close.
// Call Reload only while Run runs, from one of the functions in Run's parameter before.
func (a *Agent) Reload(ctx context.Context, s Setup, adopt func() error) error {
	if s.Instance != a.setup.Instance {
		return fmt.Errorf("instance %q was %q: changing it takes a restart", s.Instance, a.setup.Instance)
	}
	s.Taps.Settings = &s.Settings
	set, err := taps.Open(s.Taps, a.taps)
	if err != nil {
		return err
	}
	if err := a.pipeline.Reload(ctx, plan(&s, set, a.taps), func() error {
		if err := adopt(); err != nil {
			return err
		}
		set.Expect()
		a.names.Use(s.Network)
		return nil
	}); err != nil {
		return err
	}
	a.setup, a.taps = s, set
	a.using.Store(&set)
	return nil
}

// Taps returns the open taps.
func (a *Agent) Taps() taps.Set { return *a.using.Load() }

// Stats returns a snapshot of the pipeline.
func (a *Agent) Stats() local.Stats { return a.pipeline.Stats() }

// Commits returns a snapshot of the journal.
func (a *Agent) Commits() journal.Stats { return a.journal.Stats() }

// PendingLoss describes the loss if the process ends at once.
func (a *Agent) PendingLoss() string {
	return fmt.Sprintf("open windows are lost, and the next process records the time since %s as a gap", a.Commits().Last.UTC().Format(time.RFC3339))
}
