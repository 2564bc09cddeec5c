package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/rest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/simulation"
	"github.com/csigscope/csigscope/replay/persist"
)

// pipelineFlags are the flags of a replay, shared by replay and demo.
type pipelineFlags struct {
	taps      tapFlags
	fine      time.Duration
	fineAll   bool
	pace      float64
	workers   int
	chunkSize int64
	dedup     time.Duration
}

func (f *pipelineFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.taps.add(flags)
	addDedupFlag(flags, &f.dedup)
	flags.DurationVar(&f.fine, "fine", 0, "also store windows of this length below 1s, such as 10ms")
	flags.BoolVar(&f.fineAll, "fine-all", false, "keep fine rows of all cells, not only of those with heavy observations")
	flags.Float64Var(&f.pace, "pace", 0, "replay at this multiple of the captured pace; 0 is as fast as possible")
	flags.IntVar(&f.workers, "workers", runtime.NumCPU(), "cores to use")
	addByteFlag(flags, &f.chunkSize, "chunk-size", replay.DefaultChunkBytes, "largest `SIZE` of the equal chunks that an uncompressed capture is cut into for several cores; 0 does not cut it")
}

// addDedupFlag adds --dedup.
func addDedupFlag(flags *pflag.FlagSet, to *time.Duration) {
	flags.DurationVar(to, "dedup", 0, "leave out a frame if its tap captured the same bytes within this time before it, such as 1ms; 0 counts all frames")
}

// config returns the configuration for a replay of files, by the flags and the network.
func (f *pipelineFlags) config(files []string, n *network) (replay.Config, error) {
	c := replay.Config{
		Files: files, Settings: n.Settings(), Dedup: f.dedup, ChunkBytes: f.chunkSize, Workers: f.workers, Pace: f.pace,
		Tap:         func(name string) window.Tap { return n.Tap(name, f.taps.defaults()) },
		TapSettings: fmt.Sprint(f.taps, n.FileTaps, n.Config.Taps),
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

// check validates the flags; finest is the shortest window besides --fine.
func (f *pipelineFlags) check(finest time.Duration) error {
	switch {
	case f.dedup < 0:
		return fmt.Errorf("--dedup %s: expected 0 (none) or more", f.dedup)
	case f.fine != 0 && finest < time.Second:
		return fmt.Errorf("--fine %s: windows.resolutions has %s, expected at most one length below 1s", f.fine, finest)
	case f.fine != 0 && (f.fine < window.MinResolution || f.fine >= finest || finest%f.fine != 0):
		return fmt.Errorf("--fine %s: expected a whole part of %s, of at least %s, such as 1ms or 10ms", f.fine, finest, window.MinResolution)
	case !(f.pace >= 0):
		return fmt.Errorf("--pace %v: expected 0 (as fast as possible) or more", f.pace)
	case f.workers < 1:
		return fmt.Errorf("--workers %d: expected at least 1", f.workers)
	}
	return nil
}

// replayFlags are the flags of replay.
type replayFlags struct {
	network  networkFlags
	scenario scenarioFlags
	pipeline pipelineFlags
	outbox   outboxFlags
	dsn      string
	out      output
}

func newReplayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay FILE...",
		Short: "Run captures through the pipeline into the store",
		Long: `replay reads pcap and pcapng files, decodes their CSIG tags and reflections, aggregates them by
window, cell, signal and location, stores the result, and prints a summary (-o json with its
cells in the form of query cells, without trend). The content of a file is its identity: replaying
it again, under another name or in another order, changes no number. FILE may be a folder of
captures, a named pipe, or - for standard input; pipes are copied to $TMPDIR first, since their
content is their identity as well. With --pace all files are replayed at the same time, by their
timestamps; pauses of more than a day are skipped. Damaged files are read as decode reads them.

After a replay is interrupted or killed, run the same command again, at any pace: its rows replace
the earlier ones. Until then the result of an earlier replay of the file stays visible. If there
was none, query and schema verify show the stored part and call it incomplete.

replay counts its findings in the summary and stores them (csigscope query findings): packets
that by themselves violate the protocol or the configuration, and ports that are stuck from window to
window. csigscope report looks for more kinds, such as flows that lose their tags.
The section findings of the configuration names the permitted senders of tags.

With --scenario or --scenario-file, a scenario of emit is simulated and replayed at once,
without files; the scenario is its identity. --set changes its keys, as for emit.`,
		Example: `  csigscope replay captures/*.pcapng --fabric captures/fabric.yaml
  csigscope replay big.pcap --store none
  csigscope replay tap1.pcapng --pace 1 --fine 10ms
  csigscope replay --scenario overlay --store none
  csigscope replay tap1.pcapng --store clickhouse://csigscope@db.example:9440/csigscope?secure=true`,
		RunE: f.run,
	}
	before(cmd, func(args []string) error { // not in Args, which flags of the environment come after
		if !f.scenario.chosen() {
			return filesArgs(cmd, args)
		}
		if len(args) > 0 || f.network.fabric != "" {
			return errors.New("a scenario has its own fabric and is replayed by itself: leave out files and --fabric")
		}
		return nil
	})
	f.network.add(cmd.Flags())
	f.scenario.add(cmd.Flags(), "", " to simulate instead of reading files")
	exclusive(cmd.Flags(), "scenario", "fabric")
	exclusive(cmd.Flags(), "scenario-file", "fabric")
	f.pipeline.add(cmd)
	addStoreFlag(cmd, &f.dsn)
	cmd.Flags().Lookup("store").Usage = "where to store: none (only print the summary), " + storeTargets
	f.outbox.add(cmd.Flags())
	f.out.add(cmd, "table", "json")
	return cmd
}

func (f *replayFlags) run(cmd *cobra.Command, files []string) error {
	if f.scenario.chosen() {
		return f.simulate(cmd)
	}
	n, err := openNetwork(f.network.config, f.network.fabric)
	if err != nil {
		return err
	}
	return replay.Spool(cmd.Context(), files, func(files []string) error {
		c, err := f.pipeline.config(files, n)
		if err != nil {
			return err
		}
		return f.replay(cmd, c, n)
	})
}

// simulate replays the packets of a scenario's taps while it is simulated.
func (f *replayFlags) simulate(cmd *cobra.Command) error {
	s, err := f.scenario.load()
	if err != nil {
		return err
	}
	spec, err := scenario.Fabric(s)
	if err != nil {
		return usageError{err}
	}
	n, err := newNetwork(f.network.config, spec, s.Name)
	if err != nil {
		return err
	}
	c, err := f.pipeline.config(nil, n)
	if err != nil {
		return err
	}
	id, err := s.ID()
	if err != nil {
		return err
	}
	progress, stop := showSimulation(cmd)
	defer stop()
	var taps []string
	for i := range spec.Taps {
		taps = append(taps, spec.Taps[i].Name)
	}
	c.Piped = &replay.PipedCapture{Name: s.Name, ID: id, Taps: taps, Write: func(ctx context.Context, w io.Writer) error {
		_, err := simulation.Write(ctx, s, w, progress)
		return err
	}}
	return f.replay(cmd, c, n)
}

// replay checks the files before it opens the store, so that a wrong file name does not cost an
// engine start.
func (f *replayFlags) replay(cmd *cobra.Command, c replay.Config, n *network) error {
	r, err := newReplayRun(cmd, c, n)
	if err != nil {
		return err
	}
	db, err := openStore(cmd, f.dsn, &f.outbox, store.Retention{})
	if err != nil {
		return err
	}
	if db != nil {
		defer db.Close()
	}
	if err := r.run(cmd, db, &f.out); err != nil || f.out.format != "table" || f.out.named() {
		return err
	}
	next := "csigscope query serve"
	switch {
	case db == nil:
		next = "csigscope report FILE... for one document, or repeat this command without --store none to store the result"
	case db.target.Kind == store.KindServer:
		next += " with the same --store or --config"
	default:
		if usual, err := embeddedFolder(store.Target{}); err != nil || db.target.Dir != usual {
			next += " --store '" + strings.ReplaceAll(db.target.String(), "'", `'\''`) + "'"
		}
	}
	fmt.Fprintln(cmd.OutOrStdout(), "\nnext:", next)
	return nil
}

// A replayRun is a replay with its summary.
type replayRun struct {
	*persist.Recorder
	network *network
	summary *table.Table
	judged  *table.Judged
}

// newReplayRun checks the files of a replay whose blocks also go to further sinks.
func newReplayRun(cmd *cobra.Command, c replay.Config, n *network, sinks ...aggregate.Sink) (*replayRun, error) {
	r := &replayRun{network: n, summary: table.New(table.Bounds{
		Resolution: c.Resolutions[len(c.Resolutions)-1], Rows: c.MaxSeries,
	}), judged: table.NewJudged(n.Config.States.Thresholds(), aggregate.LiveResolution, c.MaxSeries)}
	c.Logger = newLogger(cmd, cmd.ErrOrStderr())
	var err error
	r.Recorder, err = persist.New(c, persist.Network(n.Naming()), append(sinks, r.summary, r.judged)...)
	return r, err
}

// run replays into the store, nil for none, and prints the summary.
func (r *replayRun) run(cmd *cobra.Command, db *openedStore, out *output) error {
	run := func(ctx context.Context) error { return r.withProgress(ctx, cmd) }
	if db == nil {
		if err := run(cmd.Context()); err != nil {
			return err
		}
	} else {
		db.keepTrimmed(cmd.Context())
		if err := r.Store(cmd.Context(), db.store, run); err != nil {
			printPartial(cmd, db, r.Recorder)
			return err
		}
	}
	result, names, rows := r.Result(), r.network.Fabric.Names(), r.judged.Judge(r.summary.Total())
	err := out.write(cmd, func(w io.Writer) error {
		if out.format == "json" {
			cells, err := r.cells(rows)
			if err != nil {
				return err
			}
			return result.WriteJSON(w, rows, names, cells)
		}
		if err := result.WriteSummary(w, rows, names); err != nil || db == nil || len(result.Findings) == 0 {
			return err
		}
		_, err := fmt.Fprintln(w, "\nlist the findings: csigscope query findings")
		return err
	})
	result.NoteMissing(cmd.ErrOrStderr(), r.network.Domain)
	return errors.Join(append([]error{err}, result.Cuts...)...)
}

// cells returns the cells of the rows in the query API's JSON form, for each signal sorted by
// source and destination.
func (r *replayRun) cells(rows table.Rows) ([]json.RawMessage, error) {
	from, to := r.judged.Extent()
	schema, list, signals := rest.NewSchema(), []json.RawMessage{}, rows.Signals()
	names := csig.SignalNames(signals)
	for i, s := range signals {
		for _, c := range api.CellsOf(rows.Cells(s, nil), r.network.Fabric.Groups(), r.network.Fabric.Locations()) {
			text, err := schema.Append(nil, &wire.ExportedCell{From: timestamppb.New(from), To: timestamppb.New(to), Signal: names[i], Cell: c})
			if err != nil {
				return nil, err
			}
			list = append(list, text)
		}
	}
	return list, nil
}

func (r *replayRun) withProgress(ctx context.Context, cmd *cobra.Command) error {
	_, total, _ := r.Progress()
	if total == 0 {
		return r.Run(ctx) // the writer of the stream shows the progress
	}
	begin := time.Now()
	stop := showProgress(cmd, total, func() (int64, string) {
		done, _, packets := r.Progress()
		return done, fmt.Sprintf("%.2f M packets, %.2f M/s", float64(packets)/1e6, float64(packets)/1e6/time.Since(begin).Seconds())
	})
	defer stop()
	return r.Run(ctx)
}
