package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/local/journal"
	"github.com/csigscope/csigscope/ingest/remote"
)

// collector is what collect runs.
type collector struct {
	capturing
	flags *collectFlags
	db    *openedStore

	server *remote.Server   // nil unless exporters are listened for
	told   *checkpoint.File // names that wait for the store; nil for none
	handed *checkpoint.File // those of exporters; nil for none
	top    *table.TopBottlenecks
	feed   *liveFeed // nil without --api-listen

	watching sinks // what sees closed windows beside the store
}

// newCollector reads the configuration, and opens what it names.
func newCollector(cmd *cobra.Command, f *collectFlags) (c *collector, err error) {
	c = &collector{flags: f}
	c.cmd, c.logger, c.unsaid = cmd, newLogger(cmd, cmd.ErrOrStderr()), f.taps
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
		return c, errors.Join(err, c.taps.Close())
	}
	if c.config.Ingest.Listen.text != "" {
		c.handed = c.openNames("ingest " + instance)
		if c.server, err = c.config.Ingest.server(c.db.store, &watchedSink{c.db.store, &c.watching}, c.handed, f.exposed, c.logger); err != nil {
			return c, errors.Join(err, c.taps.Close())
		}
	}
	c.reloaded = c.takeOver
	c.use(c.network, c.taps)
	c.holdNames(c.network)
	return c, nil
}

// holdNames keeps exporters from changing what the fabric file names. Without one, what the
// first exporter says of a name holds.
func (c *collector) holdNames(n *network) {
	if c.server != nil && c.flags.network.fabric != "" {
		c.server.HoldNames(remote.Description{Text: n.text, Groups: n.fabric.Groups(), Locations: n.fabric.Locations()})
	}
}

// takeOver gives a reloaded configuration to the listeners: who may come in, and the names of
// the fabric file.
func (c *collector) takeOver(n *network, config *collectConfig) error {
	c.holdNames(n)
	if c.server != nil {
		if err := c.server.Use(config.Ingest.admission()); err != nil {
			return err
		}
	}
	if c.feed != nil {
		return c.feed.door.Use(n.config.API.settings())
	}
	return nil
}

// newPipeline opens the store, and what an earlier process left.
func (c *collector) newPipeline(instance string) (*local.Pipeline, error) {
	var err error
	if c.db, err = c.flags.openStore(c.cmd, c.config, &c.network.config.API); err != nil {
		return nil, err
	}
	if c.db == nil {
		return nil, usageError{errors.New("collect: --store none keeps nothing")}
	}
	c.recordTaps(journal.ToStore(c.db.store))
	c.top = newTopBottlenecks()
	c.watching = sinks{c.top}
	if err := c.openFeed(); err != nil {
		return nil, err
	}
	dir, err := c.marksFolder()
	if err != nil {
		return nil, err
	}
	var names *journal.Names
	err = c.openJournal(dir, "collect "+instance, journal.Config{
		Log: c.db.store, Seen: []aggregate.Sink{&c.watching},
		Begin: func(wrote map[aggregate.Source]bool, marks []local.Mark) { names.Begin(wrote, marks) },
	})
	if err != nil {
		return nil, err
	}
	marks, after, err := c.resume(func(_ *local.Mark, gaps []store.Gap) error { return c.db.store.WriteGaps(c.cmd.Context(), gaps) })
	if err != nil {
		return nil, err
	}
	names = journal.NewNames(c.db.store, marks, c.logger)
	if c.told = c.openNames("collect " + instance); c.told != nil {
		names.KeepIn(c.told)
	}
	c.names = names
	cfg := local.Config{Instance: instance, Interval: c.config.Checkpoint.Every.d, Journal: c.journal, After: after, Logger: c.logger}
	return local.New(cfg, c.network.plan(c.taps, nil))
}

// openFeed makes the live windows for --api-listen.
func (c *collector) openFeed() error {
	if c.flags.api == "" {
		return nil
	}
	names := &api.BothNames{Fabric: func() *fabric.Fabric { return c.using.Load().fabric }}
	if c.config.Ingest.Listen.text != "" {
		names.Stored = query.FromStore(c.db.store)
	}
	access := &c.network.config.API
	d, err := access.open(c.cmd.Context(), "--api-listen", c.flags.api, c.flags.apiExposed, c.logger)
	if err != nil {
		return err
	}
	if c.feed, err = newLiveFeed(c.cmd, d, names, c.db); err != nil {
		return errors.Join(err, d.Close())
	}
	c.watching = append(c.watching, c.feed.memory)
	return nil
}

// marksFolder is the one that was asked for, or beside the outbox.
func (c *collector) marksFolder() (string, error) {
	at := &c.config.Checkpoint
	if at.Every.d == 0 && c.db.outbox.dir == "none" {
		return "", nil
	}
	if at.Every.d > 0 && at.Dir != "" {
		return at.Dir, nil
	}
	return c.db.checkpointFolder()
}

// namesWait is how long names wait for a process that writes them: rows do so for ever.
const namesWait = 366 * 24 * time.Hour

// openNames is where names wait for the store: on disk where rows do, in a place of the
// name. It is nil where nothing waits there, or where that cannot be, which the log says.
func (c *collector) openNames(name string) *checkpoint.File {
	if c.config.Checkpoint.Every.d == 0 && c.db.outbox.dir == "none" {
		return nil
	}
	dir, err := c.marksFolder()
	if err == nil {
		var file *checkpoint.File
		o := checkpoint.Options{Dir: filepath.Join(dir, "names"), Name: name, MaxAge: namesWait, Logger: c.logger}
		if file, err = checkpoint.Open(o); err == nil {
			return file
		}
	}
	c.logger.Error("names cannot wait on disk: those that are not stored when this process ends are lost", slog.String("error", err.Error()))
	return nil
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
	return c.capturing.run(ctx, reload, before, behind)
}

// lastWords are what ending at once means.
func (c *collector) lastWords() string { return c.left() + "; rows in the outbox wait for it" }

// close lets go of what is open.
func (c *collector) close() error {
	var failed error
	if c.feed != nil {
		c.feed.door.Close()
	}
	if c.db != nil {
		failed = c.db.Close()
		if c.db.left > 0 {
			failed = errors.Join(failed, fmt.Errorf("end: the store did not take %d rows in time: they wait in the outbox for the next command that stores there", c.db.left))
		}
	}
	for _, names := range []*checkpoint.File{c.told, c.handed} {
		if names != nil {
			failed = errors.Join(failed, names.Close())
		}
	}
	return errors.Join(failed, c.closeMarks())
}
