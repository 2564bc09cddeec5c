package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/local/journal"
	"github.com/csigscope/csigscope/ingest/local/taps"
)

// capturing is what commands that capture live packets have in common: taps, the pipeline
// behind them, and reloads.
type capturing struct {
	cmd    *cobra.Command
	logger *slog.Logger
	read   func() (*network, *collectConfig, error) // the files as they are now, under the flags
	unsaid tapFlags                                 // of taps
	// fixed are settings that a reload does not take over, started those that are in use.
	fixed   func(*network, *collectConfig) (settings, error)
	started settings

	network *network
	using   atomic.Pointer[network] // the same, for other goroutines
	config  *collectConfig
	taps    taps.Set
	opened  time.Time                // the first taps
	open    atomic.Pointer[taps.Set] // the same, for other goroutines
	live    *local.Pipeline
	names   namesWriter
	ops     *operations
	// reloaded takes over a configuration that has been checked, before windows do; nil for
	// nothing.
	reloaded func(*network, *collectConfig) error

	file    *checkpoint.File // of marks, nil for none
	journal *journal.Journal
	records *journal.Recorder
	ending  func() bool // no more frames are taken; set by run
}

// namesWriter says what the numbers in rows stand for, beside the rows.
type namesWriter interface {
	// Use names what rows under a network mean, from now on. Rows under the one before
	// may still come.
	Use(journal.Network)
	// Run writes names until ctx ends, and the last ones then.
	Run(ctx context.Context) error
}

// begin reads the files and opens the taps, whose rings hold what comes while the rest
// starts.
func (c *capturing) begin() (instance string, err error) {
	if c.network, c.config, err = c.read(); err != nil {
		return "", err
	}
	if instance, err = c.config.instance(); err != nil {
		return "", err
	}
	if c.started, err = c.fixed(c.network, c.config); err != nil {
		return "", err
	}
	c.using.Store(c.network)
	c.taps, err = openTaps(c.config, c.network, c.unsaid, nil, c.logger)
	c.opened = time.Now()
	return instance, err
}

// use has everybody see what is captured, and how.
func (c *capturing) use(n *network, set taps.Set) {
	c.names.Use(n.naming())
	c.using.Store(n)
	c.open.Store(&set)
}

// run captures until ctx ends. What comes before the pipeline ends with ctx; what others do
// for the pipeline goes on until it has ended.
func (c *capturing) run(ctx context.Context, reload <-chan os.Signal, before, behind []func(context.Context) error) error {
	c.ending = func() bool { return ctx.Err() != nil }
	around, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	back, around := errgroup.WithContext(around)
	for _, work := range append(behind, c.names.Run, c.beat, c.watchTags, c.watchPrefixes) {
		back.Go(func() error { return work(around) })
	}
	front, ctx := errgroup.WithContext(ctx)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(around, stop)()
	for _, work := range before {
		front.Go(func() error { return work(ctx) })
	}
	front.Go(func() error {
		defer stop()
		return c.live.Run(ctx)
	})
	front.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-reload:
				c.reload(ctx)
			}
		}
	})
	err := front.Wait()
	end()
	return errors.Join(err, back.Wait())
}

// reload goes on under the files as they are now, or tells why not.
func (c *capturing) reload(ctx context.Context) {
	c.ops.notifier.Reloading()
	defer c.ops.notifier.Ready()
	if err := c.tryReload(ctx); err != nil {
		c.logger.Error("reload refused, going on as before", slog.String("error", err.Error()))
		return
	}
	c.logger.Warn("reloaded", slog.String("epoch", fmt.Sprintf("%016x", c.network.epoch)), slog.String("taps", c.taps.String()))
}

func (c *capturing) tryReload(ctx context.Context) error {
	n, config, err := c.read()
	if err != nil {
		return err
	}
	if n.epoch == c.network.epoch {
		n.fabric, n.domain, n.decode = c.network.fabric, c.network.domain, c.network.decode // what it has met stays known
	}
	if a, b := c.config.Instance, config.Instance; a.text != b.text {
		return fmt.Errorf("instance %q was %q: changing it takes a restart", b.text, a.text)
	}
	set, err := openTaps(config, n, c.unsaid, c.taps, c.logger)
	if err != nil {
		return err
	}
	if c.reloaded != nil { // at once: windows take their time to close, and credentials may have been revoked
		if err := c.reloaded(n, config); err != nil {
			return err
		}
	}
	c.names.Use(n.naming())
	if err := c.live.Reload(ctx, n.plan(set, c.taps)); err != nil {
		return err
	}
	c.network, c.config, c.taps = n, config, set
	c.use(n, set)
	c.tellFixed(n, config)
	return nil
}
