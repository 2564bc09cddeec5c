package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/replay"
)

// replayFlags are what replay and demo let users change about a replay.
type replayFlags struct {
	taps      tapFlags
	fine      time.Duration
	fineAll   bool
	pace      float64
	workers   int
	chunkSize int64
}

func (f *replayFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.taps.add(flags)
	flags.DurationVar(&f.fine, "fine", 0, "also aggregate at this resolution below 1s, such as 10ms")
	flags.BoolVar(&f.fineAll, "fine-all", false, "keep fine rows of all cells, not only of those that were heavily loaded")
	flags.Float64Var(&f.pace, "pace", 0, "replay at this multiple of the captured pace; 0 is as fast as possible")
	flags.IntVar(&f.workers, "workers", runtime.NumCPU(), "cores to use")
	addByteFlag(flags, &f.chunkSize, "chunk-size", replay.DefaultChunkBytes, "`SIZE` of the pieces that a pcap is cut into for several cores; 0 reads it in one piece")
}

// config is the replay of files that the flags and the network describe.
func (f *replayFlags) config(files []string, n *network) (replay.Config, error) {
	c := replay.Config{
		Files: files, Settings: n.settings(), ChunkBytes: f.chunkSize, Workers: f.workers, Pace: f.pace,
		Tap:         func(name string) window.Tap { return n.tap(name, f.taps) },
		TapSettings: fmt.Sprint(f.taps, n.fabric.Taps(), n.config.Taps),
	}
	c.FineHeavyOnly = c.FineHeavyOnly && !f.fineAll
	if f.chunkSize == 0 {
		c.ChunkBytes = -1
	}
	if err := errors.Join(f.taps.check(), f.check(c.Resolutions[0])); err != nil {
		return c, usageError{err}
	}
	if f.fine > 0 {
		c.Resolutions = slices.Concat([]time.Duration{f.fine}, c.Resolutions)
	}
	return c, nil
}

// check finds values out of bounds; finest is the shortest window beside --fine.
func (f *replayFlags) check(finest time.Duration) error {
	switch {
	case f.fine != 0 && (f.fine < window.MinResolution || f.fine >= finest || finest%f.fine != 0):
		return fmt.Errorf("--fine %s: expected a whole part of %s, of at least %s, such as 1ms or 10ms", f.fine, finest, window.MinResolution)
	case !(f.pace >= 0):
		return fmt.Errorf("--pace %v: expected 0 (as fast as possible) or more", f.pace)
	case f.workers < 1:
		return fmt.Errorf("--workers %d: expected at least 1", f.workers)
	}
	return nil
}

func newReplayCommand() *cobra.Command {
	var network networkFlags
	var f replayFlags
	var scenario emitFlags
	var box outboxFlags
	var checkpoints checkpointFlags
	var dsn, output string
	cmd := &cobra.Command{
		Use:   "replay FILE...",
		Short: "Run captures through the pipeline into the store",
		Long: `replay reads pcap and pcapng files, decodes their CSIG tags and reflections,
aggregates them by window, cell, signal and location, stores the result, and
prints a summary. The content of a file is its identity: replaying it again, under
another name or in another order, changes no number. FILE may be a folder of
captures, a named pipe, or - for standard input; pipes are copied to $TMPDIR first,
since their content is their identity as well. With --pace all files are replayed side by side, by their times.
Damaged files are read as decode reads them.

A replay with --pace saves every few seconds where it is (--checkpoint). When it is
interrupted or killed, the same command goes on there, at any pace, and comes to the same
numbers; --from-start begins anew.

A replay that is interrupted or fails is not done: what an earlier one of the same file
gave stays visible. Where there is none, what was stored is shown, and named as incomplete
by query and schema verify, until the file is replayed to its end.

What single packets show that breaks the protocol or the configuration, and ports that are
stuck from window to window, is counted in the summary and stored as well (csigscope query
findings); section findings of the configuration says who may send tags.

With --scenario or --scenario-file, what emit would write is simulated and replayed at
once, without files; the scenario is its identity.`,
		Example: `  csigscope replay captures/*.pcapng --fabric captures/fabric.yaml
  csigscope replay big.pcap --store none
  csigscope replay tap1.pcapng --pace 1 --fine 10ms
  csigscope replay tap1.pcapng --pace 1 --fine 10ms                # after Ctrl-C: goes on
  csigscope replay tap1.pcapng --pace 1 --fine 10ms --from-start   # or begins anew
  csigscope replay --scenario overlay --store none
  csigscope replay tap1.pcapng --store clickhouse://csigscope@db.example:9440/csigscope?secure=true`,
		Args: func(cmd *cobra.Command, args []string) error {
			if !scenario.chosen() {
				return filesArgs(cmd, args)
			}
			if len(args) > 0 || network.fabric != "" {
				return usageError{errors.New("a scenario is replayed alone, with a fabric of its own: leave out files and --fabric")}
			}
			return nil
		},
	}
	network.add(cmd.Flags())
	scenario.addScenario(cmd.Flags(), "", " to simulate instead of reading files")
	f.add(cmd)
	addStoreFlag(cmd, &dsn)
	cmd.Flags().Lookup("store").Usage = "where to store: none (print the summary alone), " + storeTargets
	box.add(cmd.Flags())
	checkpoints.add(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "text", "summary `FORMAT`: text or json")
	cmd.RunE = func(cmd *cobra.Command, files []string) (err error) {
		if output != "text" && output != "json" {
			return usageError{fmt.Errorf("output format %q: expected text or json", output)}
		}
		if err := checkpoints.check(); err != nil {
			return err
		}
		to := replayTarget{dsn, &box, &checkpoints, output}
		if scenario.chosen() {
			return replayScenario(cmd, &scenario, &f, network.config, &to)
		}
		n, err := openNetwork(network.config, network.fabric)
		if err != nil {
			return err
		}
		files, remove, err := replay.Spool(cmd.Context(), files)
		defer func() { err = errors.Join(err, remove()) }()
		if err != nil {
			return err
		}
		c, err := f.config(files, n)
		if err != nil {
			return err
		}
		return replayFiles(cmd, c, n, &to)
	}
	return cmd
}

// replayTarget is what a replay is to come to.
type replayTarget struct {
	dsn         string
	outbox      *outboxFlags
	checkpoints *checkpointFlags
	output      string
}

// replayFiles checks the files first, then opens the store, so that a mistake in
// a file name costs no engine start.
func replayFiles(cmd *cobra.Command, c replay.Config, n *network, to *replayTarget) error {
	r, err := newReplayRun(cmd, c, n)
	if err != nil {
		return err
	}
	r.checkpoints = to.checkpoints
	db, err := openStore(cmd, to.dsn, to.outbox)
	if err != nil {
		return err
	}
	if db != nil {
		defer db.Close()
	}
	return r.run(cmd, db, to.output)
}

// A replayRun is a replay whose blocks go to the summary and to a store.
type replayRun struct {
	replay  *replay.Replay
	network *network
	summary *table.Table
	sinks   *sinks
	store   *store.Store // nil for none
	logger  *slog.Logger

	pace        float64
	resolution  time.Duration    // of the summary
	checkpoints *checkpointFlags // nil for none
}

func newReplayRun(cmd *cobra.Command, c replay.Config, n *network) (*replayRun, error) {
	r := &replayRun{
		network: n, logger: newLogger(cmd, cmd.ErrOrStderr()),
		pace: c.Pace, resolution: c.Resolutions[len(c.Resolutions)-1],
	}
	r.summary = r.newSummary()
	r.sinks = &sinks{r.summary}
	c.Sink, c.Logger = r.sinks, r.logger
	c.Taps = r.writeTaps
	var err error
	r.replay, err = replay.New(c)
	return r, err
}

// run replays into the store, nil for none, and prints the summary.
func (r *replayRun) run(cmd *cobra.Command, db *openedStore, output string) error {
	var err error
	if db == nil {
		err = r.withProgress(cmd)
	} else {
		err = r.into(cmd, db)
	}
	if err != nil {
		return err
	}
	result := r.replay.Result()
	if err := printSummary(cmd.OutOrStdout(), result, r.summary.Total(), r.network, output); err != nil {
		return err
	}
	noteNoCSIG(cmd.ErrOrStderr(), result.Packets, result.Counts.In, r.network.domain)
	if output == "text" && db != nil && len(result.Findings) > 0 {
		fmt.Fprintln(cmd.OutOrStdout(), "\nwhat was found: csigscope query findings")
	}
	return errors.Join(result.Cuts...)
}

// into replays into the store.
func (r *replayRun) into(cmd *cobra.Command, db *openedStore) (err error) {
	ctx := cmd.Context()
	defer func() {
		if err != nil {
			r.tellPartial(cmd, db)
		}
	}()
	db.keepTrimmed(ctx)
	r.store = db.store
	if err := db.begin(ctx, r.replay, r.network); err != nil {
		return err
	}
	c, err := r.openCheckpoints(cmd, db)
	if err != nil {
		return err
	}
	if c == nil {
		*r.sinks = append(*r.sinks, db.store)
		if err := r.withProgress(cmd); err != nil {
			return err
		}
		return db.end(ctx, r.replay, r.network)
	}
	defer c.file.Close()
	*r.sinks = append(*r.sinks, c.journal)
	if err := r.withProgress(cmd); err != nil {
		return err
	}
	if err := c.end(ctx); err != nil {
		return err
	}
	if err := db.end(ctx, r.replay, r.network); err != nil {
		return err
	}
	return c.journal.Finish()
}

func (r *replayRun) withProgress(cmd *cobra.Command) error {
	_, total, _ := r.replay.Progress()
	if total == 0 {
		return r.replay.Run(cmd.Context()) // whoever makes the stream knows how far it is
	}
	begin := time.Now()
	stop := showProgress(cmd.ErrOrStderr(), total, true, func() (int64, string) {
		done, _, packets := r.replay.Progress()
		return done, fmt.Sprintf("%.2f M packets, %.2f M/s", float64(packets)/1e6, float64(packets)/1e6/time.Since(begin).Seconds())
	})
	defer stop()
	return r.replay.Run(cmd.Context())
}

func printSummary(w io.Writer, result *replay.Result, s table.Rows, n *network, output string) error {
	if output == "json" {
		return result.WriteJSON(w, s, newNames(n.fabric))
	}
	return result.WriteSummary(w, s, newNames(n.fabric))
}

// sinks hands every block to all of its members.
type sinks []aggregate.Sink

// WriteBlock implements aggregate.Sink.
func (s *sinks) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	for _, sink := range *s {
		if err := sink.WriteBlock(ctx, b); err != nil {
			return err
		}
	}
	return nil
}
