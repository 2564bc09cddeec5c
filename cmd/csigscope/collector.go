package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/live"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/ingest"
)

// collector is what collect runs.
type collector struct {
	capturing
	flags *collectFlags
	db    *openedStore

	server *ingest.Server // nil unless exporters are listened for
	worst  *aggregate.Worst
	feed   *liveFeed // nil without --api-listen

	watching sinks // what sees closed windows beside the store

	file        *checkpoint.File // nil without checkpoints
	checkpoints *store.Journal   // nil without

	records *tapRecorder
	ending  func() bool // set by run
}

// newCollector reads the configuration, and opens what it names.
func newCollector(cmd *cobra.Command, f *collectFlags) (c *collector, err error) {
	c = &collector{flags: f}
	c.cmd, c.logger, c.place = cmd, newLogger(cmd, cmd.ErrOrStderr()), f.place
	c.read = func() (*network, *collectConfig, error) { return f.read(cmd) }
	c.fixed = c.fixedSettings
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	instance, err := c.begin()
	if err != nil {
		return c, err
	}
	if c.live, err = c.newPipeline(instance); err != nil {
		return c, errors.Join(err, c.taps.close())
	}
	if c.server, err = c.config.Ingest.server(c.db.store, &watchedSink{c.db.store, &c.watching}, f.exposed, c.logger); err != nil {
		return c, errors.Join(err, c.taps.close())
	}
	c.use(c.network, c.taps)
	return c, nil
}

// newPipeline opens the store, and what an earlier process left.
func (c *collector) newPipeline(instance string) (*live.Pipeline, error) {
	opened := time.Now()
	var err error
	if c.db, err = c.flags.openStore(c.cmd, c.config, &c.network.config.API); err != nil {
		return nil, err
	}
	if c.db == nil {
		return nil, usageError{errors.New("collect: --store none keeps nothing")}
	}
	names := newNamer(c.db.store, c.logger)
	c.names = names
	c.ending = func() bool { return false }
	c.records = &tapRecorder{
		stats: func() []live.RingStats { return c.live.Stats().Rings }, taps: func() liveTaps { return *c.open.Load() },
		ending: func() bool { return c.ending() }, write: c.db.store.WriteTaps,
		gaps: c.db.store.WriteGaps, logger: c.logger,
	}
	cfg := live.Config{Instance: instance, Interval: c.config.Checkpoint.Every.d, Logger: c.logger}
	var states []live.State
	if cfg.Journal, states, err = c.openJournal(instance, opened); err != nil {
		return nil, err
	}
	c.worst = newWorst()
	c.watching = sinks{c.worst}
	if c.flags.api != "" {
		names := &liveNames{fabric: func() *fabric.Fabric { return c.using.Load().fabric }}
		if c.config.Ingest.Listen.text != "" {
			names.stored = c.db.store
		}
		access := &c.network.config.API
		d, err := access.open(c.cmd.Context(), "--api-listen", c.flags.api, c.flags.apiExposed, c.logger)
		if err != nil {
			return nil, err
		}
		if c.feed, err = newLiveFeed(c.cmd, d, names, c.db); err != nil {
			return nil, errors.Join(err, d.listener.Close())
		}
		c.reloaded = func(n *network) error { return d.reconfigure(&n.config.API) }
		c.watching = append(c.watching, c.feed.memory)
	}
	cfg.Journal = &announcedJournal{&watchedJournal{cfg.Journal, &c.watching}, names, make(map[aggregate.Source]bool)}
	return live.New(cfg, c.taps.plan(c.network, nil), states)
}

// openJournal finds the checkpoint that an earlier process left, stores what was closed in
// it, and records what was missed from then until the taps were open.
func (c *collector) openJournal(instance string, opened time.Time) (live.Journal, []live.State, error) {
	every, dir := c.config.Checkpoint.Every.d, c.config.Checkpoint.Dir
	if every == 0 {
		return passing{c.db.store, c.records}, nil, nil
	}
	var err error
	if dir == "" {
		if dir, err = c.db.checkpointFolder(); err != nil {
			return nil, nil, err
		}
	}
	c.file, err = checkpoint.Open(checkpoint.Options{Dir: dir, Name: "collect " + instance, Logger: c.logger})
	if err != nil {
		return nil, nil, fmt.Errorf("%w: does another process of the instance %q run?", err, instance)
	}
	c.checkpoints = store.NewJournal(c.db.store, store.JournalOptions{File: c.file, Every: every, Logger: c.logger})
	saved, err := c.checkpoints.Resume(c.cmd.Context())
	if err != nil || saved == nil {
		return &journal{Journal: c.checkpoints, network: &c.using, records: c.records}, nil, err
	}
	states, err := live.ParseStates(saved.Section(tapsSection))
	if err != nil {
		c.logger.Error("checkpoint cannot be gone on from", slog.String("error", err.Error()))
	}
	if err := c.records.restore(saved.Section(recordsSection)); err != nil {
		c.logger.Warn("rows of taps may be missing", slog.String("error", err.Error()))
	}
	if err := c.network.fabric.RestoreMet(saved.Section(metSection)); err != nil {
		c.logger.Warn("some locations may have no name", slog.String("error", err.Error()))
	}
	for _, s := range states {
		since := saved.Time
		if s.At > 0 {
			since = time.Unix(0, s.At)
		}
		if err := c.writeGap(&s, since, opened); err != nil {
			return nil, nil, err
		}
	}
	return &journal{Journal: c.checkpoints, network: &c.using, records: c.records}, states, nil
}

// writeGap records that nobody captured since a checkpoint. Under another configuration
// the windows that were open then cannot be gone on with, and are missing as well.
func (c *collector) writeGap(s *live.State, since, until time.Time) error {
	if s.Source.Epoch != c.network.epoch {
		list := c.network.config.Windows.Resolutions
		since = since.Add(-3 * list[len(list)-1]) // the window, and its lateness
	}
	return c.db.store.WriteGap(c.cmd.Context(), store.Gap{Source: s.Source, From: since, To: until, Reason: store.GapRestart})
}

// tapsSection is the section of a checkpoint with the states of taps.
const tapsSection = "taps"

// journal keeps the states of taps, their rows and the locations that were met in the
// checkpoints of a store.
type journal struct {
	*store.Journal
	network *atomic.Pointer[network]
	records *tapRecorder
	states  []byte
	met     []byte
}

// Commit implements live.Journal.
func (j *journal) Commit(ctx context.Context, states []live.State) error {
	j.states = live.AppendStates(j.states[:0], states)
	var err error
	if j.met, err = j.network.Load().fabric.AppendMet(j.met[:0]); err != nil {
		return err
	}
	rows, err := j.records.barrier(time.Now(), states)
	if err != nil {
		return err
	}
	before := j.Stats().Taken
	err = j.Journal.Commit(ctx, checkpoint.Section{Name: tapsSection, Data: j.states},
		checkpoint.Section{Name: metSection, Data: j.met}, checkpoint.Section{Name: recordsSection, Data: rows})
	if err == nil && j.Stats().Taken > before {
		j.records.flush(ctx)
	}
	return err
}

// passing is a journal without checkpoints.
type passing struct {
	*store.Store
	records *tapRecorder
}

// Commit implements live.Journal.
func (p passing) Commit(ctx context.Context, states []live.State) error {
	_, err := p.records.barrier(time.Now(), states)
	p.records.flush(ctx)
	return err
}

// run captures until ctx ends.
func (c *collector) run(ctx context.Context, reload <-chan os.Signal) error {
	from := c.taps.String()
	var before []func(context.Context) error
	if c.server != nil {
		from = strings.TrimPrefix(from+", exporters at "+c.config.Ingest.Listen.text, ", ")
		before = append(before, c.server.Run)
	}
	var behind []func(context.Context) error
	if c.feed != nil {
		behind = append(behind, c.feed.run)
	}
	fmt.Fprintf(c.cmd.OutOrStdout(), "collecting from %s into %s\n", from, c.db.target)
	c.db.keepTrimmed(ctx)
	c.ending = func() bool { return ctx.Err() != nil }
	return c.capturing.run(ctx, reload, before, behind)
}

// lastWords are what ending at once means.
func (c *collector) lastWords() string {
	if c.checkpoints == nil {
		return "windows that are open are lost, and there is no checkpoint to go on from"
	}
	return fmt.Sprintf("the next one goes on from the checkpoint of %s, and records as a gap what came since; rows in the outbox wait for it",
		c.checkpoints.Stats().Last.UTC().Format(time.RFC3339))
}

// close lets go of what is open.
func (c *collector) close() error {
	var failed error
	if c.feed != nil {
		c.feed.door.listener.Close()
	}
	if c.db != nil {
		failed = c.db.Close()
		if c.db.left > 0 {
			failed = errors.Join(failed, fmt.Errorf("end: the store did not take %d rows in time: they wait in the outbox for the next command that stores there", c.db.left))
		}
	}
	if c.file != nil {
		failed = errors.Join(failed, c.file.Close())
	}
	return failed
}
