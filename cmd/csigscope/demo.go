package main

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query/alto"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/simulation"
)

// demoFlags are the flags of demo.
type demoFlags struct {
	scenario         scenarioFlags
	pipeline         pipelineFlags
	outbox           outboxFlags
	dir, listen, dsn string
	clickhouse       string
	now              bool
}

func newDemoCommand() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Emit a training job, replay it, store it, and show the heatmaps",
		Long: `demo runs the whole pipeline on one machine: it simulates a fabric of 64 hosts in 16 racks with a
training job, one rack with slow uplinks and one incast, replays the captures into the embedded
ClickHouse engine, and serves the two heatmaps on a local page: mean available bandwidth, and the mode
of the bottleneck.

` + setHelp,
		Example: `  csigscope demo
  csigscope demo --set seed=7 --listen 127.0.0.1:9999
  csigscope demo --set format=compact       # locators of few bits: sets of ports
  csigscope demo --now                      # for "the last 15 minutes" of Grafana`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	f.scenario.add(flags, "demo", "")
	f.pipeline.add(cmd)
	flags.StringVar(&f.dir, "dir", "csigscope-demo", "`FOLDER` for captures and data")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8080", "loopback `ADDRESS` of the page")
	flags.BoolVar(&f.now, "now", false, "simulate a job that ends now; without it each demo has the same data, of January 2026")
	addClickHouseFlag(cmd, &f.clickhouse)
	addStoreConfigFlag(cmd)
	flags.StringVar(&f.dsn, "store", "", "where to store, default embedded in the demo's folder, whatever the configuration file says")
	f.outbox.add(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd) }
	return cmd
}

func (f *demoFlags) run(cmd *cobra.Command) error {
	s, err := f.scenario.load()
	if err != nil {
		return err
	}
	if f.now {
		s.Start = time.Now().UTC().Add(-s.Duration).Truncate(time.Second)
	}
	// Two demos in one folder must not add up: each scenario has its own captures and store.
	id, err := s.ID()
	if err != nil {
		return err
	}
	own := filepath.Join(f.dir, fmt.Sprintf("%s-%08x", filepath.Base(s.Name), uint32(id)))
	if host, _, err := net.SplitHostPort(f.listen); err == nil && !edge.IsLoopback(host) {
		return usageError{fmt.Errorf("--listen %q: demo serves on loopback only: reach it by a tunnel, or serve its store with query serve", f.listen)}
	}
	// Simulating takes a while, so report a missing engine or a used address first.
	defaults := config.Default()
	d, err := openAPIServer(cmd.Context(), &defaults.API, "--listen", f.listen, false, newLogger(cmd, cmd.ErrOrStderr()), nil)
	if err != nil {
		return err
	}
	defer d.Close()
	if f.dsn == "" {
		f.dsn = store.KindEmbedded + ":" + filepath.Join(own, "store")
		if _, err := chdb.FindLibrary(""); err != nil {
			return err
		}
	}
	if f.dsn == store.KindNone {
		return usageError{errors.New("--store none keeps nothing to show: expected embedded, embedded:PATH or clickhouse://ADDRESS")}
	}
	report, err := simulate(cmd, s, filepath.Join(own, "captures"))
	if err != nil {
		return err
	}
	n, err := openNetwork("", report.Fabric)
	if err != nil {
		return err
	}
	db, err := openStore(cmd, f.dsn, &f.outbox, store.Retention{})
	if err != nil {
		return err
	}
	defer db.Close()
	n.Config.States.Onset, n.Config.States.Clear = db.thresholds.Onset, db.thresholds.Clear
	config, err := f.pipeline.config(report.Captures, n)
	if err != nil {
		return err
	}
	memory := table.NewMemory(table.MemoryOptions{Ahead: -1, Thresholds: db.thresholds}) // captures have their own clock
	r, err := newReplayRun(cmd, config, n, memory)
	if err != nil {
		return err
	}
	if err := db.listen(cmd, f.clickhouse); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "replaying into %s ...\n\n", db.target)
	if err := r.run(cmd, db, &output{format: "table"}); err != nil {
		return err
	}
	if err := memory.Sync(cmd.Context(), db.store.Sync); err != nil {
		return err
	}
	memory.Publish()
	return show(cmd, db, n, memory, s.Name, d)
}

// simulate writes the captures of a scenario into a folder and prints its size.
func simulate(cmd *cobra.Command, s scenario.Scenario, captures string) (report simulation.Report, err error) {
	network, err := scenario.Fabric(s)
	if err != nil {
		return report, usageError{err}
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "simulating %s of a fabric of %d switches and %d hosts ...\n", s.Duration, len(network.Devices), len(network.Hosts))
	if report, err = emitInto(cmd, s, captures); err == nil {
		fmt.Fprintf(out, "%d packets sent, %d captured in %d files\n", report.Sent, report.Captured, len(report.Captures))
	}
	return report, err
}

// show serves the page on the server d until the command is interrupted.
func show(cmd *cobra.Command, db *openedStore, n *network, memory *table.Memory, name string, d *edge.Server) error {
	server, err := newPageServer(db, name, memory, d, &config.API{}, &config.Memory{})
	if err != nil {
		return err
	}
	names := &api.BothNames{Fabric: func() *fabric.Fabric { return n.Fabric }}
	server.handler = withALTO(server.handler, alto.Config{Memory: memory, Groups: names.Groups, Prefixes: names.Prefixes, Logger: db.logger})
	announce(cmd, d)
	return server.run(cmd.Context())
}
